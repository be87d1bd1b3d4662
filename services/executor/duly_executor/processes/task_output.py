"""Sends what callbacks printed and logged to a Frontend: in the background, in order, with a bound on what waits.

What a process tells is hostile input: a callback can write to its link.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import timedelta

import grpc

from duly_core.process.loop import backoff
from duly_core.rpc.retry import describe_status
from duly_core.rpc.stubs import output_stub
from duly_executor.claims.ledger import HeldClaims
from duly_executor.events import log
from duly_executor.processes.frontend_channel import FrontendChannel
from duly_executor.processes.process import CallbackProcess
from duly_wire.output_rules import MOST_CALL_BYTES, MOST_CONTENT, MOST_ITEMS
from duly_wire.retry_info import pause_of
from duly_wire.v1 import callback_pb2, output_pb2

_MOST_WAITING = 8 * 1024 * 1024
"""Bytes of all tasks that wait to be sent; beyond it the oldest are left out."""
_ITEM_COSTS = 256
"""How many bytes more an item counts for than its content has."""
_CALL_TIMEOUT_S = 10.0
_LAST_CALLS_S = 2.0
_TOLD_EVERY_S = 60.0
_MAY_PASS = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
)


class OutputSender:
    """One call is under way at a time: what came up meanwhile goes with the next. Nothing waits for it but the end of the Executor."""

    def __init__(self, held_claims: HeldClaims, frontend: FrontendChannel) -> None:
        self._held_claims = held_claims
        self._frontend = frontend
        self._waiting: deque[output_pb2.AppendOutputItem] = deque()
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._failures = 0
        self._told_at = float("-inf")

    def take(self, process: CallbackProcess, output: Iterable[callback_pb2.CallbackOutput]) -> None:
        """Send these chunks of a process, soon."""
        for each in output:
            held = self._held_claims.get(each.task_id)
            if (
                held is None
                or each.task_id not in process.tasks
                or not self._held_claims.is_with(each.task_id, process.number)
                or each.chunk.ByteSize() > MOST_CONTENT + _ITEM_COSTS
            ):
                continue  # of another task, or nonsense
            item = output_pb2.AppendOutputItem(task_id=each.task_id, claim_token=held.token, chunk=each.chunk)
            item.chunk.fence = held.task.fence
            self._waiting.append(item)
            self._bytes += _weight(item)
        self._bound()
        if self._waiting and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())
            self._sending.add_done_callback(self._sent)

    async def close(self) -> None:
        """Send what waits, for a moment."""
        if self._sending is None:
            return
        await asyncio.wait([self._sending], timeout=_LAST_CALLS_S)
        if self._sending is not None:
            self._sending.cancel()

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._drop("an error of the Executor", repr(error))

    async def _send(self) -> None:
        while batch := self._next():
            stub_channel = self._frontend.channel()
            if stub_channel is None:
                self._drop("this worker's Controller tells no Frontend", "update it")
                return
            request = output_pb2.AppendOutputRequest(items=batch)
            try:
                await output_stub(stub_channel).AppendOutput(request, timeout=_CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _MAY_PASS:
                    self._drop("the Frontend refuses it", describe_status(error))
                    return
                self._failures += 1
                self._give_back(batch)
                pause = max(backoff(self._failures), timedelta(seconds=pause_of(error) or 0))
                await asyncio.sleep(pause.total_seconds())
            else:
                self._failures = 0

    def _next(self) -> list[output_pb2.AppendOutputItem]:
        batch: list[output_pb2.AppendOutputItem] = []
        size = 0
        while self._waiting and len(batch) < MOST_ITEMS and size < MOST_CALL_BYTES:
            item = self._waiting.popleft()
            batch.append(item)
            size += _weight(item)
        self._bytes -= size
        return batch

    def _give_back(self, batch: list[output_pb2.AppendOutputItem]) -> None:
        self._waiting.extendleft(reversed(batch))
        self._bytes += sum(map(_weight, batch))
        self._bound()

    def _bound(self) -> None:
        while self._bytes > _MOST_WAITING:
            self._bytes -= _weight(self._waiting.popleft())

    def _drop(self, why: str, reason: str) -> None:
        """Forget what waits, and say so, seldom: the tasks go on."""
        count = len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        now = asyncio.get_running_loop().time()
        if now - self._told_at > _TOLD_EVERY_S:
            self._told_at = now
            log.warning("output of tasks is not kept", why=why, reason=reason[:500], chunks=count)


def _weight(item: output_pb2.AppendOutputItem) -> int:
    return item.ByteSize() + _ITEM_COSTS
