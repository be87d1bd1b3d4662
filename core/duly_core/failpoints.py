"""Named points at which a test crashes, fails, delays or stops a process. For tests only: else nothing looks at them.

`DULY_FAILPOINTS_FOLDER` names a folder. A file in it that bears a failpoint's name says what happens there:

    crash               the process sends itself SIGKILL
    raise               what can be expected there is raised; `raise store`, `raise queue`, `raise unexpected`: this
    delay 500ms         it waits (s or ms)
    stop                it says so in `<name>.reached`, and goes on when that file is removed, or after 30 s
    drop_reply          the call is answered with UNAVAILABLE, though its work is done

`once` or a number at the end limits how often; whoever renames the file has the hit, so that of several processes
one takes it. `stop` is always once. Each hit is a line (process, action) in `<name>.hits`.
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


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One point: where it is, and what it means to die there."""

    name: str
    module: str
    meaning: str
    raises: str | None = "unexpected"
    """What `raise` raises; None: nothing can be raised there."""
    drops_reply: bool = False
    """Whether the work of a call is done there, and its reply can be lost."""

    @property
    def actions(self) -> tuple[str, ...]:
        """What a test may have happen there, `stop` aside."""
        return ("crash", "delay", *["raise"] * bool(self.raises), *["drop_reply"] * self.drops_reply)


def _of_statement(service: str, call: str, module: str, what: str) -> tuple[Failpoint, Failpoint]:
    """The two sides of a commit: nothing is written, or all is and nobody knows."""
    return (
        Failpoint(f"{service}.{call}.before_commit", module, f"{what}: nothing is written yet", "store"),
        Failpoint(f"{service}.{call}.after_commit", module, f"{what}: written, not answered", "store", True),
    )


FAILPOINTS = {
    point.name: point
    for point in (
        *_of_statement("frontend", "schedule", "duly_frontend.servicer", "new tasks"),
        *_of_statement("frontend", "cancel", "duly_frontend.servicer", "a cancel"),
        *_of_statement("hsc", "claim", "duly_hsc.servicer", "claims"),
        *_of_statement("hsc", "claim_work", "duly_hsc.work_matcher", "claims of what is due"),
        *_of_statement("hsc", "heartbeat", "duly_hsc.servicer", "heartbeats"),
        *_of_statement("hsc", "set_results", "duly_hsc.servicer", "results"),
        *_of_statement("hsc", "release", "duly_hsc.servicer", "releases"),
        Failpoint(
            "store_consumer.push.before",
            "duly_store_consumer.reference_sender",
            "the rows say enqueued, no message is sent",
            "queue",
        ),
        Failpoint(
            "store_consumer.push.after", "duly_store_consumer.reference_sender", "messages are sent, the round goes on", "queue"
        ),
        Failpoint(
            "store_consumer.put_back.before", "duly_store_consumer.reference_sender", "messages were refused, their rows wait", "store"
        ),
        Failpoint(
            "store_consumer.reclaim.before", "duly_store_consumer.timeouts", "somebody fell silent, nothing is done yet", "store"
        ),
        Failpoint(
            "store_consumer.reclaim.after", "duly_store_consumer.timeouts", "taken back, and no message is sent", "store"
        ),
        Failpoint("store_consumer.tick.before", "duly_store_consumer.time_table_loop", "ticks are due, nothing is written", "store"),
        Failpoint("store_consumer.tick.after", "duly_store_consumer.time_table_loop", "their tasks are written, the round goes on", "store"),
        Failpoint("controller.receive.after", "duly_controller.queue_poller", "messages are hidden from others", "queue"),
        Failpoint("controller.claim.before", "duly_controller.claimer", "references are picked, nothing is claimed"),
        Failpoint("controller.claim.after", "duly_controller.claimer", "claims are granted, nobody has them"),
        Failpoint("controller.delete.before", "duly_controller.message_acks", "a settled message is still there", "queue"),
        Failpoint(
            "controller.next_work.before_answer",
            "duly_controller.servicer",
            "claims are an Executor's, which does not have them",
            drops_reply=True,
        ),
        Failpoint("executor.take.before", "duly_executor.work_sources", "an answer with claims came, nothing is held yet"),
        Failpoint("executor.give.before", "duly_executor.callback_pool", "a claim is held, no callback process has the task"),
        Failpoint("executor.heartbeat.before_send", "duly_executor.heartbeat", "its time is taken, it is not sent"),
        Failpoint("executor.set_results.before_send", "duly_executor.result_reporter", "the callback is over, nobody knows"),
        Failpoint("executor.set_results.after_answer", "duly_executor.result_reporter", "the HSC knows, the claim is held"),
        Failpoint("executor.release.before_send", "duly_executor.result_reporter", "a task is to be handed back"),
        Failpoint(
            "callback.user_code.before", "duly_executor.callback.slots", "it counts as started, and is not", None
        ),
        Failpoint(
            "callback.user_code.after", "duly_executor.callback.slots", "it is over, the Executor does not know", None
        ),
    )
}  # fmt: skip
"""Every failpoint of the product, by name; each is in the code once, in the module that it names (a test knows)."""

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
    """Do what a test wants before a block (`<name>.before...`), and after it unless it raised (`<name>.after...`)."""
    return _around(name) if on else _NOTHING


@asynccontextmanager
async def _around(name: str) -> AsyncIterator[None]:
    before, after = (point for point in FAILPOINTS if point.startswith(f"{name}."))
    await hit(before)
    yield
    await hit(after)


async def hit(name: str) -> None:
    """Do here what a test wants."""
    if on:
        for seconds in _carry_out(FAILPOINTS[name]):
            await asyncio.sleep(seconds)


def hit_here(name: str) -> None:
    """The same, where nothing can be awaited: the thread waits."""
    if on:
        for seconds in _carry_out(FAILPOINTS[name]):
            time.sleep(seconds)


def _carry_out(point: Failpoint) -> Iterator[float]:
    """What is to be waited for, in seconds at a time."""
    order = _take(point.name)
    match order.action if order else "":
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
            yield _LONGEST_STOP  # the signal is on its way to this thread
        case "raise":
            kind = (order.argument if order else "") or point.raises or "unexpected"
            raise _KINDS[kind](f"failpoint {point.name}")
        case "drop_reply":
            raise StoreUnavailableError(f"failpoint {point.name}: done, and not answered")
        case "delay":
            text = order.argument if order else ""
            yield (
                float(text.removesuffix("ms")) / 1000
                if text.endswith("ms")
                else float(text.removesuffix("s"))
            )
        case "stop":
            end = time.monotonic() + _LONGEST_STOP
            while (folder / f"{point.name}.reached").exists() and time.monotonic() < end:
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
