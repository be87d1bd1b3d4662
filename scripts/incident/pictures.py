"""Takes pictures of the console while the walk goes on."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from scripts.incident.normalize import Normalizer

_WIDTH, _HEIGHT = 1280, 900
_SETTLES_MS = 1_000
_TEXTS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  window.duly_texts = [];
  while (walker.nextNode()) window.duly_texts.push(walker.currentNode);
  return window.duly_texts.map(node => node.data);
}"""
_FREEZE = """
  for (const name of ["duly:tick", "duly:slow-tick"])
    document.addEventListener(name, (event) => { if (window.duly_frozen) event.stopImmediatePropagation(); }, true);
"""
"""A page that refreshes itself between the replaced texts and the picture would show the old ones."""
_REPLACE = "texts => texts.forEach((text, place) => { window.duly_texts[place].data = text; })"
_MOVE_PLOTS = """
  const iso = Date.prototype.toISOString;
  Date.prototype.toISOString = function() { return iso.call(new Date(this.getTime() + %d)); };
"""
"""Plots are drawn, and have no texts: their axes write times in this way."""


class Camera:
    """Opens pages in a headless Chromium; the overview stays open, so that its plots go on."""

    def __init__(self, browser: Browser, url: str, normalized: Normalizer) -> None:
        """Make one; `normalized` is applied to each text of a page before its picture is taken."""
        self._context = browser.new_context(
            viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light", reduced_motion="reduce"
        )
        self._context.add_init_script(_MOVE_PLOTS % (normalized.distance.total_seconds() * 1000))
        self._context.add_init_script(_FREEZE)
        self._url = url
        self._normalized = normalized
        self._overview = self._context.new_page()
        self._overview.goto(url)
        self.pictures: dict[str, bytes] = {}

    def take(self, name: str, path: str, heading: str) -> None:
        """Take a picture of a page, from its top or from a heading."""
        if path == "/":
            self._keep(name, self._overview, heading)
            return
        page = self._context.new_page()
        page.add_init_script("window.duly_frozen = true")
        page.goto(self._url + path)
        self._keep(name, page, heading)
        page.close()

    def _keep(self, name: str, page: Page, heading: str) -> None:
        page.evaluate("window.duly_frozen = true")
        page.wait_for_timeout(_SETTLES_MS)
        page.evaluate(_REPLACE, [self._normalized(text) for text in page.evaluate(_TEXTS)])
        if heading:
            page.get_by_role("heading", name=heading, exact=True).last.evaluate(
                "node => node.scrollIntoView()"
            )
        self.pictures[name] = page.screenshot(full_page=not heading and _is_short(page))
        page.evaluate("window.duly_frozen = false")


def _is_short(page: Page) -> bool:
    """Return whether a page is little higher than the window: then all of it is shown."""
    return bool(page.evaluate("document.documentElement.scrollHeight") <= 2 * _HEIGHT)


@contextmanager
def camera(url: str, normalized: Normalizer) -> Iterator[Camera]:
    """Open a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield Camera(browser, url, normalized)
        browser.close()


def save(pictures: dict[str, bytes], folder: Path) -> None:
    """Write pictures with a small palette."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
        image.save(folder / f"{name}.png", optimize=True)
