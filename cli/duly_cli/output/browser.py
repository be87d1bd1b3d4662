"""Whether this machine has a browser that somebody sees."""

import os


def has_browser() -> bool:
    """Return whether somebody would see a browser: elsewhere a browser of the terminal would take its place."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
