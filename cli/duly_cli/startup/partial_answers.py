"""Says on stderr which cells an answer lacks. A command ends as without: what it shows is right."""

import warnings
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
