"""Make the pictures in docs/images/console: python -m scripts.console_screenshots [FOLDER].

Starts `duly up` with an application, fills it, and opens each page in a headless Chromium (/usr/bin/chromium).
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import io
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import duly
from scripts.console_screenshots.fill import Filled, fill, plotted_tasks
from scripts.traffic import traffic

_ROOT = Path(__file__).parents[2]
_WIDTHS = {375: 812, 768: 1024, 1280: 900}
"""And the height of each window."""
_READY = re.compile(r"clients connect to (\S+)")
_CONSOLE = re.compile(r"console at (\S+)")
_PATIENCE = 120.0
_DARK = ("overview", "task-failed", "graph")
_TRAFFIC_GAP = 0.4
"""Seconds between two calls that schedule, while pictures are taken."""
_PLOTTED_MS = 25_000
"""How long the plots of the overview run before their picture is taken."""


def pages(filled: Filled) -> dict[str, str]:
    """Return the pages' addresses by the names of their pictures."""
    return {
        "overview": "/",
        "tasks": "/tasks",
        "task-failed": f"/tasks/{filled.dead}",
        "task-running": f"/tasks/{filled.running}",
        "dead-letters": "/dead-letters?lambda=mail.send",
        "lambdas": "/lambdas",
        "lambda": "/lambdas/mail.send",
        "sessions": "/sessions",
        "session": f"/sessions/session?key={filled.session}",
        "graphs": "/graphs",
        "graph": f"/graphs/{filled.graph}",
        "graph-summary": f"/graphs/{filled.large_graph}",
        "queues": "/queues",
        "hosts": "/hosts",
        "gates": "/gates",
        "time-tables": "/time-tables",
        "time-table": "/time-tables/report.nightly",
        "resources": "/resources",
        "settings": "/settings",
        "audit": "/audit",
        "sign-in": "/sign-in",
    }


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str, str]:
    log = folder / "up.log"
    shutil.copy(Path(__file__).parent / "application.py", folder / "shop.py")  # tracebacks show its path
    command = [sys.executable, "-m", "duly_cli", "up", "shop:app"]
    command += ["--free-ports", "--data", str(folder / "data"), "--slots", "4"]
    process = subprocess.Popen(command, cwd=folder, stdout=log.open("wb"), stderr=subprocess.STDOUT)
    ends_at = time.monotonic() + _PATIENCE
    while time.monotonic() < ends_at and process.poll() is None:
        said = log.read_text(errors="replace")
        ready, console = _READY.search(said), _CONSOLE.search(said)
        if ready and console:
            return process, ready[1], console[1]
        time.sleep(0.2)
    process.terminate()
    raise SystemExit(f"duly up is not ready:\n{log.read_text(errors='replace')}")


def _take(browser: Browser, url: str, filled: Filled, folder: Path) -> None:
    for width, height in _WIDTHS.items():
        for theme in ("light", "dark"):
            names = [name for name in pages(filled) if theme == "light" or (name in _DARK and width == 1280)]
            if not names:
                continue
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
            )
            page = context.new_page()
            for name in names:
                page.goto(url + pages(filled)[name])
                page.wait_for_timeout(_PLOTTED_MS if name == "overview" and width == 1280 else 600)
                overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                if overflow > 0:
                    sys.exit(f"{name} at {width}: {overflow} px too wide")
                if name == "task-failed":
                    page.get_by_role("button", name="Show them").click()
                    page.get_by_text("The audit log has recorded this read").wait_for()
                suffix = "-dark" if theme == "dark" else ""
                _save(page.screenshot(), folder / f"{name}-{width}{suffix}.png")
            context.close()


def _save(picture: bytes, path: Path) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(prog="python -m scripts.console_screenshots", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=_ROOT / "docs" / "images" / "console")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        process, frontend, url = _start(Path(data))
        try:
            with duly.Client(frontend) as client:
                filled = fill(client)
            with traffic(frontend, _TRAFFIC_GAP, plotted_tasks), sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
                )
                _take(browser, url, filled, folder)
                browser.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


if __name__ == "__main__":
    main()
