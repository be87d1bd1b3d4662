"""Named points at which a test crashes, fails, delays or stops a process. For tests only: else nothing looks at them.

`DULY_FAILPOINTS` names a Python file, which is loaded. Its function `carry_out` gets the name of each failpoint that is
hit; it does what the test wants, and yields the seconds to wait. The tests have that file, and a table of all
failpoints, which they hold against the code (`tests/fixtures/failpoint_engine.py`, `failpoint_table.py`).
"""

import asyncio
import os
import runpy
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

_NOTHING: AbstractAsyncContextManager[None, None] = nullcontext()

carry_out: Callable[[str], Iterator[float]] | None = None
"""None: failpoints are off."""


def set_up() -> None:
    """Load the file that the environment names."""
    global carry_out
    file = os.environ.get("DULY_FAILPOINTS")
    carry_out = runpy.run_path(file)["carry_out"] if file else None


set_up()


def around(name: str) -> AbstractAsyncContextManager[None, bool | None]:
    """Do what a test wants before a block (`<name>.before`), and after it unless it raised (`<name>.after`)."""
    return _around(name) if carry_out else _NOTHING


@asynccontextmanager
async def _around(name: str) -> AsyncIterator[None]:
    await hit(f"{name}.before")
    yield
    await hit(f"{name}.after")


async def hit(name: str) -> None:
    """Do here what a test wants."""
    if carry_out:
        for seconds in carry_out(name):
            await asyncio.sleep(seconds)


def hit_here(name: str) -> None:
    """The same, where nothing can be awaited: the thread waits."""
    if carry_out:
        for seconds in carry_out(name):
            time.sleep(seconds)
