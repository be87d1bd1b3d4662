"""Takes what came of an asyncio task that nobody may wait for any longer."""

import asyncio
from typing import Any


def take_outcome(task: asyncio.Task[Any]) -> None:
    """Take the failure of a task, if it has one: asyncio would log that nobody did. A done callback."""
    if not task.cancelled():
        task.exception()
