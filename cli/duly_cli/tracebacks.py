"""The tracebacks of a task's attempts, for a terminal."""

from collections.abc import Iterable

import duly


def traceback_lines(attempts: Iterable[duly.Attempt]) -> list[str]:
    """The newest traceback, indented; none: no lines. `--json` has those of the last three attempts."""
    told = [attempt for attempt in attempts if attempt.traceback]
    if not told:
        return []
    newest = told[-1]
    older = f"; --json has {len(told) - 1} more" if len(told) > 1 else ""
    head = f"traceback of attempt {newest.attempt} (fence {newest.fence}){older}:"
    return ["", head, *(f"  {_printable(line)}" for line in newest.traceback.split("\n"))]


def _printable(line: str) -> str:
    """The line with control characters escaped: text from a callback must not steer the terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    )
