"""Says on stderr which cells an answer lacks. A command ends as without: what it shows is right."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duly_cli.output.safe_text import say

_KIND = "PartialAnswerWarning"
"""By its name: the SDK is loaded by commands that need it."""


def say_what_is_missing() -> None:
    """Write one line for each set of cells, however often a command that watches asks."""
    usual: Any = warnings.showwarning
    said: set[str] = set()

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if category.__name__ != _KIND:
            usual(message, category, *place, **more)
        elif str(message) not in said:
            said.add(str(message))
            say(f"duly: {message}", err=True)

    warnings.filterwarnings("always", message="not (shown|written yet): cell")
    warnings.showwarning = show


@contextmanager
def not_shown() -> Iterator[None]:
    """Say nothing of cells that an answer lacks which nobody is shown: that a change reaches them later is said."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="not shown: cell")
        yield
