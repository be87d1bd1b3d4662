"""How long a call waits for what the store says of its caller, if it may be answered without."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from duly_core.access.methods import ANSWERED_WITHOUT_ROLES
from duly_core.errors import StoreUnavailableError
from duly_core.process.outcomes import take_outcome

_PATIENCE = timedelta(seconds=2)
"""With a store that stands still, for a caller that is to hear of it before its own time is over."""
_Read = TypeVar("_Read")


async def read_soon(path: str, reading: Coroutine[Any, Any, _Read]) -> _Read:
    """Return what was read. A method that says that the store does not answer waits less long than others for it.

    Raises:
        StoreUnavailableError: there is nothing yet.
    """
    if path not in ANSWERED_WITHOUT_ROLES:
        return await reading
    task = asyncio.create_task(reading)
    task.add_done_callback(take_outcome)  # it goes on: other calls wait for what it reads
    done, _ = await asyncio.wait({task}, timeout=_PATIENCE.total_seconds())
    if not done:
        raise StoreUnavailableError(f"no answer within {_PATIENCE.total_seconds():g} s")
    return task.result()
