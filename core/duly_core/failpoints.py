"""Named points at which a test crashes, fails, delays or stops a process. For tests only: else nothing looks at them.

`DULY_FAILPOINTS_FOLDER` names a folder. A file in it that bears a failpoint's name says what happens there:

    crash               the process sends itself SIGKILL
    raise store         an error of the store is raised; also `raise queue`, `raise unexpected`
    delay 500ms         it waits (s or ms)
    stop                it says so in `<name>.reached`, and goes on when that file is removed, or after 30 s
    drop_reply          the call is answered with UNAVAILABLE, though its work is done

`once` or a number at the end limits how often; whoever renames the file has the hit, so that of several processes
one takes it. `stop` is always once. Each hit is a line (process, action) in `<name>.hits`. The tests have a table of
all failpoints (`tests/fixtures/failpoint_table.py`), and hold it against the code.
"""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from duly_core.errors import QueueUnavailableError, StoreUnavailableError

folder = Path(os.environ.get("DULY_FAILPOINTS_FOLDER", ""))
on = folder != Path()
"""Whether there is any."""

_NOTHING: AbstractAsyncContextManager[None, None] = nullcontext()
_LONGEST_STOP = 30.0
_LOOK_EVERY = 0.01


class UnexpectedError(Exception):
    """What nobody foresaw."""


_KINDS: dict[str, type[Exception]] = {
    "store": StoreUnavailableError,
    "queue": QueueUnavailableError,
    "unexpected": UnexpectedError,
}


_ORDER = re.compile(
    r"(crash|raise|delay(?= \d)|stop|drop_reply)"
    r"(?: (store|queue|unexpected|\d+(?:\.\d+)?m?s))?(?: (once|\d+))?"
)


@dataclass(frozen=True, slots=True)
class _Order:
    action: str
    argument: str
    left: int | None
    """How often yet; None: always."""


def _read(text: str) -> _Order:
    match = _ORDER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a failpoint is told what it does not understand: {text!r}")
    action, argument, left = match.groups()
    return _Order(action, argument or "", {"once": 1, None: None}.get(left) or (int(left) if left else None))


def around(name: str) -> AbstractAsyncContextManager[None, bool | None]:
    """Do what a test wants before a block (`<name>.before`), and after it unless it raised (`<name>.after`)."""
    return _around(name) if on else _NOTHING


@asynccontextmanager
async def _around(name: str) -> AsyncIterator[None]:
    await hit(f"{name}.before")
    yield
    await hit(f"{name}.after")


async def hit(name: str) -> None:
    """Do here what a test wants."""
    if on:
        for seconds in _carry_out(name):
            await asyncio.sleep(seconds)


def hit_here(name: str) -> None:
    """The same, where nothing can be awaited: the thread waits."""
    if on:
        for seconds in _carry_out(name):
            time.sleep(seconds)


def _carry_out(name: str) -> Iterator[float]:
    """What is to be waited for, in seconds at a time."""
    order = _take(name)
    match order.action if order else "":
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
            yield _LONGEST_STOP  # the signal is on its way to this thread
        case "raise":
            raise _KINDS[(order.argument if order else "") or "unexpected"](f"failpoint {name}")
        case "drop_reply":
            raise StoreUnavailableError(f"failpoint {name}: done, and not answered")
        case "delay":
            text = order.argument if order else ""
            yield (
                float(text.removesuffix("ms")) / 1000
                if text.endswith("ms")
                else float(text.removesuffix("s"))
            )
        case "stop":
            end = time.monotonic() + _LONGEST_STOP
            while (folder / f"{name}.reached").exists() and time.monotonic() < end:
                yield _LOOK_EVERY


def _take(name: str) -> _Order | None:
    """What the file says, if this process has the hit."""
    file = folder / name
    with suppress(FileNotFoundError):
        order = _read(file.read_text(encoding="utf-8"))
        if order.left is not None or order.action == "stop":
            order = _take_once(file)
        with (folder / f"{name}.hits").open("a", encoding="utf-8") as hits:
            hits.write(f"{os.getpid()} {order.action}\n")
        return order
    return None


def _take_once(file: Path) -> _Order:
    """Take the file away from all others; raises FileNotFoundError if another was quicker."""
    mine = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    file.rename(mine)
    order = _read(mine.read_text(encoding="utf-8"))
    if order.action == "stop":
        mine.rename(file.with_name(f"{file.name}.reached"))
        return order
    mine.unlink()
    if order.left is not None and order.left > 1:
        # a new file: others may be reading the old one
        mine.write_text(f"{order.action} {order.argument}".strip() + f" {order.left - 1}", encoding="utf-8")
        with suppress(FileExistsError):  # somebody has given another order meanwhile
            os.link(mine, file)
        mine.unlink()
    return order
