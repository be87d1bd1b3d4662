"""Waits for events of the walk, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

_PATIENCE = 240.0
_LOOK_AGAIN_AFTER = 0.2
_Answer = TypeVar("_Answer")


def wait_until(what: str, look: Callable[[], _Answer | None]) -> _Answer:
    """Return the first answer of `look` that is true.

    Raises:
        TimeoutError: there was none in time.
    """
    ends_at = time.monotonic() + _PATIENCE
    while not (answer := look()):
        if time.monotonic() > ends_at:
            raise TimeoutError(f"not within {_PATIENCE:g} s: {what}")
        time.sleep(_LOOK_AGAIN_AFTER)
    return answer
