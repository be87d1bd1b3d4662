"""Colours of lines, on a terminal only; NO_COLOR turns them off. Nothing is said by colour alone."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import typer

from duly_cli.output.safe_text import printable

_CODES = {"good": "32", "bad": "31", "warn": "33", "busy": "36", "head": "1"}
_RESET = "\x1b[0m"
_OF_STATUS = {
    "success": "good",
    "succeeded": "good",
    "alive": "good",
    "fatal_failure": "bad",
    "failed": "bad",
    "silent": "bad",
    "retriable_failure": "warn",
    "draining": "warn",
    "claimed": "busy",
    "processing": "busy",
    "enqueued": "busy",
    "running": "busy",
    "closed": "good",
    "open": "bad",
    "half open": "warn",
    "blocked": "bad",
    "failing": "warn",
    "paused": "warn",
    "valid": "good",
    "revoked": "bad",
    "expired": "warn",
}


class Span(NamedTuple):
    """A part of a line that has a colour."""

    start: int
    end: int
    style: str


class Line(str):
    """A line with the parts of it that have a colour; elsewhere it is text like any other."""

    __slots__ = ("spans",)
    spans: Sequence[Span]

    @classmethod
    def of(cls, text: str, spans: Iterable[Span]) -> Self:
        """Return a line with these spans, the first of the line first."""
        line = cls(text)
        line.spans = [each for each in spans if each.style]
        return line


def status_style(cell: str) -> str:
    """Return the style of a status or a state; empty: none."""
    return _OF_STATUS.get(cell.strip(), "")


def is_coloured() -> bool:
    """Whether lines go to a terminal that shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(lines: Iterable[str]) -> str:
    """Return lines as a text for stdout; nothing in them but their spans is obeyed by a terminal."""
    if not is_coloured():
        return "\n".join(map(printable, lines))
    return "\n".join(_painted(line) for line in lines)


def say_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, coloured where they and the terminal are."""
    typer.echo(painted(lines))


def _painted(line: str) -> str:
    parts, place = [], 0
    for start, end, style in getattr(line, "spans", ()):
        parts.append(printable(line[place:start]))
        parts.append(f"\x1b[{_CODES[style]}m{printable(line[start:end])}{_RESET}")
        place = end
    return "".join([*parts, printable(line[place:])])
