"""Every page of the console under the rules of axe-core, light and dark, on a phone and on a desktop."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.console_pages import needs_chromium

AXE = Path(__file__).parent / "axe"
_NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "ENOTCACHED")
RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
    (each) => `${each.impact} ${each.id}: ${each.nodes.slice(0, 3).map((node) => `${node.target} (${node.any.concat(node.all).map((check) => check.message).join("; ")})`)}`
)"""

pytestmark = [
    pytest.mark.long,  # four times about 30 pages, each judged by a hundred rules
    pytest.mark.timeout(900),
    needs_chromium,
    pytest.mark.skipif(
        not (shutil.which("node") and shutil.which("npm")),
        reason="axe-core is fetched with npm: install nodejs and npm",
    ),
]


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the source of axe-core; skip the test where npm reaches no registry."""
    if not (AXE / "node_modules" / ".package-lock.json").exists():
        npm = subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=AXE,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if npm.returncode and any(code in npm.stderr for code in _NO_NETWORK):
            pytest.skip("npm cannot fetch axe-core here")
        assert npm.returncode == 0, npm.stderr
    return (AXE / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_no_page_breaks_a_rule_of_axe(axe, console_browser, console_url, console_paths, width, colours):
    found = {}
    window = await console_browser.new_context(
        base_url=console_url, viewport={"width": width, "height": 900}, color_scheme=colours
    )
    page = await window.new_page()
    for path in console_paths:
        await page.goto(path)
        await page.evaluate(axe)  # not by a tag, which the console's policy refuses
        if broken := await page.evaluate(RUN):
            found[path] = broken

    await page.goto("/")
    await page.evaluate(axe)
    await page.keyboard.press("Control+k")
    await page.get_by_role("dialog").wait_for()
    if broken := await page.evaluate(RUN):
        found["the palette"] = broken
    await window.close()

    assert found == {}


async def test_axe_finds_what_is_broken(axe, console_browser, console_url):
    page = await console_browser.new_page(base_url=console_url)
    await page.goto("/lambdas")
    await page.evaluate(axe)
    await page.evaluate("document.querySelector('main label').remove()")

    (broken,) = await page.evaluate(RUN)

    assert broken.startswith("critical label")
