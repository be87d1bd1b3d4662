"""The documentation site builds without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.long  # builds the site, in about 20 s of CPU
@pytest.mark.timeout(320)
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))

    found = [(page.name, tag) for page in pages for tag in LOADED.findall(page.read_text(encoding="utf-8"))]

    assert len(pages) > 30
    assert found == []


def test_no_page_names_what_is_not_in_the_repository() -> None:
    dangling = re.compile(r"architecture, rule|architecture: |reliability \d|house\.md|§")
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("proto/**/*.proto")]

    found = [
        (path.name, line)
        for path in documents
        for line in path.read_text().splitlines()
        if dangling.search(line)
    ]

    assert found == []
