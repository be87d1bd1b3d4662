"""Shows something again and again, in place, until Ctrl-C."""

import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from typing import Annotated

import typer

from duly_cli.startup.option_values import invalid, parse_duration

Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        "-w",
        metavar="[INTERVAL]",
        help="Show it again each INTERVAL, or each 2s, until Ctrl-C. A number alone has seconds.",
        show_default=False,
    ),
]

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,3})?", re.ASCII)
_SHORTEST = timedelta(milliseconds=200)
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def parse_interval(text: str, option: str) -> timedelta:
    """Return how long to wait between two times; a number alone has seconds, as that of `watch -n`."""
    interval = parse_duration(f"{text}s" if _NUMBER.fullmatch(text) else text, option)
    if interval < _SHORTEST:
        raise invalid(option, f"must be at least {_SHORTEST.total_seconds():g}s")
    return interval


def repeatedly(show: Callable[[], None], watch: str | None, *, as_json: bool = False) -> None:
    """Call `show` once, or, with `watch`, again and again.

    On a terminal each replaces the one before. Elsewhere, and as JSON, one follows the other.
    """
    if watch is None:
        show()
        return
    interval = parse_interval(watch, "--watch").total_seconds()
    while True:
        if sys.stdout.isatty() and not as_json:
            draw(_text_of(show))
        else:
            show()
            sys.stdout.flush()
        time.sleep(interval)


def draw(text: str) -> None:
    """Write text over what the terminal shows."""
    lines = text.rstrip("\n").split("\n")
    sys.stdout.write(_HOME + "\n".join(f"{line}{_CLEAR_LINE}" for line in lines) + f"\n{_CLEAR_BELOW}")
    sys.stdout.flush()


class _Terminal(StringIO):
    """Takes what is to be drawn; its writers see the terminal that it goes to."""

    def isatty(self) -> bool:
        """As of the real one: tables fit their lines to it."""
        return True


def _text_of(show: Callable[[], None]) -> str:
    taken = _Terminal()
    with redirect_stdout(taken):
        show()
    return taken.getvalue()


def age_text(age: timedelta) -> str:
    """Return a duration in at most two units.

    >>> age_text(timedelta(seconds=3725))
    '1h2m'
    """
    seconds = max(0, int(age.total_seconds()))
    units = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
    parts = []
    for length, unit in units:
        number, seconds = divmod(seconds, length)
        parts.append((number, unit))
    first = next((place for place, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return "".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number) or "0s"
