"""When a host says that it is ready, and that it stops waiting for that when it is told to stop."""

import asyncio
from typing import Any

import pytest

from duly_controller.__main__ import _serve_when_attached


class Health:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.serving = False

    async def set_serving(self, *, serving: bool) -> None:
        self.serving = serving


@pytest.mark.timeout(20)  # without the look at `stop` the loop would never get its turn again
@pytest.mark.parametrize(("stopped", "attached"), [(True, []), (False, ["an Executor"])])
async def test_a_host_is_ready_with_its_first_executor_and_never_if_it_stops_before(
    attached: Any, *, stopped: bool
) -> None:
    stop, health = asyncio.Event(), Health()
    if stopped:
        stop.set()

    await _serve_when_attached(health, attached, 1, stop)  # type: ignore[arg-type]

    assert health.serving is not stopped
