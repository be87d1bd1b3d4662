"""Makes the page of what the walk saw."""

import re
from collections.abc import Callable
from pathlib import Path

from scripts.incident.walk import Story

_TEMPLATE = Path(__file__).parent / "page.md"
_OUTPUT = re.compile(r"^<!-- output: ([\w-]+) -->$", re.MULTILINE)


def page(story: Story, normalized: Callable[[str], str]) -> str:
    """Return the template with the outputs that it names.

    Raises:
        KeyError: the walk has no output of this name.
    """
    template = _TEMPLATE.read_text(encoding="utf-8")
    return _OUTPUT.sub(lambda found: f"```\n{normalized(story.outputs[found[1]])}\n```", template)
