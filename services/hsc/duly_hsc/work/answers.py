"""Gives callers of ClaimWork the tasks that were claimed for them, and hands back what nobody gets."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from duly_core.errors import DulyError
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, ClaimedTask
from duly_hsc.events import log
from duly_hsc.lease_timeouts import LeaseTimeouts
from duly_hsc.work.caller_groups import Claimed, WaitingCall

_FRAMING_BYTES = 256
"""What a task costs in an answer beyond its payload."""
_USE_BYTES = 450
"""What the use of an attachment costs at most: its name and its media type have 382 of these."""

HandBack = Callable[[Sequence[ClaimedTask]], Awaitable[object]]


class WorkAnswers:
    """Hands back in the background: no caller waits for it."""

    def __init__(
        self, most_bytes: int, hand_back: HandBack, handed_back: Callable[[Sequence[ClaimedTask]], None]
    ) -> None:
        """Make one; `handed_back` is told of the tasks that are due again."""
        self._most_bytes = most_bytes
        self._hand_back = hand_back
        self._handed_back = handed_back
        self._running: set[asyncio.Task[None]] = set()

    def answer(
        self,
        waiters: Sequence[WaitingCall],
        tasks: Sequence[ClaimedTask],
        began_at: float,
        timeouts: LeaseTimeouts | None = None,
    ) -> list[WaitingCall]:
        """Give each caller the tasks with its token prefix, as far as they fit; return who was answered.

        Args:
            waiters: for whom the tasks were claimed.
            tasks: what was claimed.
            began_at: when the claiming statement began, on the loop's clock.
            timeouts: of the claims.
        """
        by_prefix: dict[bytes, list[ClaimedTask]] = {}
        for task in tasks:
            by_prefix.setdefault(task.token[:TOKEN_PREFIX_BYTES], []).append(task)
        answered = []
        for waiter in waiters:
            claimed = by_prefix.get(waiter.caller.token_prefix)
            if not claimed:
                continue
            if waiter.answer.done():  # its caller hung up meanwhile
                self.give_up(claimed)
                continue
            number = fitting(claimed, self._most_bytes)
            self.give_up(claimed[number:])
            waited = timedelta(seconds=began_at - waiter.arrived_at)
            waiter.answer.set_result(Claimed(claimed[:number], waited, timeouts))
            answered.append(waiter)
        return answered

    def take_back(self, waiter: WaitingCall) -> None:
        """Hand back the answer of a caller that hung up just then."""
        if waiter.answer.done() and not waiter.answer.cancelled() and waiter.answer.exception() is None:
            self.give_up(waiter.answer.result().tasks)

    async def finish(self) -> None:
        """Wait until everything is handed back."""
        while self._running:
            await asyncio.wait(set(self._running))

    def give_up(self, tasks: Sequence[ClaimedTask]) -> None:
        """Hand these back in the background."""
        if tasks:
            task = asyncio.get_running_loop().create_task(self._hand_back_all(tasks))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _hand_back_all(self, tasks: Sequence[ClaimedTask]) -> None:
        try:
            await self._hand_back(tasks)
        except DulyError as error:  # the claims run out, or their caller asks again
            log.warning("claims of absent callers not released", tasks=len(tasks), reason=str(error))
        else:
            self._handed_back(tasks)


def fitting(tasks: Sequence[ClaimedTask], most_bytes: int) -> int:
    """Return how many of these fit into an answer, one at least; what nodes know of their graphs is not counted."""
    size = 0
    for number, task in enumerate(tasks):
        size += size_of(task)
        if size > most_bytes and number:
            return number
    return len(tasks)


def size_of(task: ClaimedTask) -> int:
    """Return what a task takes of an answer, about, without what it knows of its graph."""
    size = len(task.payload) + len(task.checkpoint or b"") + _FRAMING_BYTES
    if task.received is not None:
        size += sum(len(each.get("value", "")) + _USE_BYTES for each in task.received)
    return size + _USE_BYTES * len(task.attachments) if task.attachments else size
