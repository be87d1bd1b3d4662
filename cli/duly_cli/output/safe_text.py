"""Text of others on a terminal: what would move the cursor, or hide text, is shown and not obeyed."""

import re
from collections.abc import Iterable

import typer

# The control characters of both sets but the line feed; marks that turn the direction of text; separators of lines
# that some terminals obey; halves of characters.
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return text with what is unsafe on a terminal written as in a string literal; line feeds stay.

    >>> printable("red \x1b[31m")
    'red \\x1b[31m'
    """
    return UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return `printable` text without line feeds."""
    return printable(text).replace("\n", "\\n")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    >>> counted(1, "task"), counted(10400, "task")
    ('1 task', '10,400 tasks')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def say_changed(fields: Iterable[str] | None) -> None:
    """Print which fields a change set to another value; nothing if what was set is new (None)."""
    if fields is not None:
        say(f"changed: {', '.join(fields) or 'nothing'}")


def say(text: str, *, err: bool = False) -> None:
    """Print text on stdout, or on stderr."""
    typer.echo(printable(text), err=err)


def say_part(text: str) -> None:
    """Print text on stdout at once, and end no line. Tabs stay, and a line feed of two characters is one."""
    lines = text.replace("\r\n", "\n").split("\t")
    typer.echo("\t".join(map(printable, lines)), nl=False)
