"""The console's colours in light and dark: text has the contrast of WCAG 2, level AA."""

import re
from itertools import product
from pathlib import Path

import pytest

import duly_console

CSS = (Path(duly_console.__file__).parent / "static" / "console.css").read_text()
_BLOCK = re.compile(r"(:root[^{]*)\{([^}]*)\}")
_LEAST = 4.5
PAIRS = [
    *product(("text", "quiet", "link"), ("page", "panel")),
    ("on-accent", "accent"),
    *((name, f"{name}-back") for name in ("good", "bad", "warn", "info", "idle")),
]


def schemes() -> dict[str, dict[str, str]]:
    blocks = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", body)) for _, body in _BLOCK.findall(CSS)]
    light, by_preference, by_choice = [block for block in blocks if block]
    return {"light": light, "dark by preference": by_preference, "dark by choice": by_choice}


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", schemes())
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read_on_its_ground(scheme, text, ground):
    colours = schemes()[scheme]

    assert contrast(colours[text], colours[ground]) >= _LEAST


def test_dark_is_the_same_by_preference_and_by_choice():
    found = schemes()

    assert found["dark by preference"] == found["dark by choice"]
