"""Reads tasks for GetTask and WaitTask, and keeps an answer within what a message may have."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from duly_core.access.current import current_caller, restriction
from duly_core.access.roles import Action
from duly_core.errors import TooMuchError
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks import store as store_tasks
from duly_core.traffic.concurrency_limits import Admission
from duly_core.traffic.turns import Turns
from duly_frontend.access.reach import Readable
from duly_frontend.tasks.wire import NO_SUCH_TASK, attempt_to_wire, may_have_attempts, task_to_wire
from duly_wire.ids import TaskId
from duly_wire.v1 import frontend_pb2

_AT_A_TIME = 100
"""Tasks that one statement reads: of each there may be a hundred attempts, too."""
FEW = 20
"""Tasks of a call that takes no turn."""
_TRACEBACKS = 3
"""Of each task's newest attempts; each may have 8 KiB."""
_MOST_READS = 400
"""Calls that read by id, or wait to; a call that finds more is refused."""
_MOST_BYTES_AT_A_TIME = 64 * 1024 * 1024
"""Of answers with payloads, if all are as large as they may be."""
_FULL_READS = 8
"""Answers with payloads that are read at a time, where answers have no limit."""
_OVERHEAD = 256
"""Bytes that a result has beside its task, or that an error has."""


class TaskReader:
    """Answers for each id of a request, in its order; a task that is asked for twice is read once."""

    def __init__(self, store: Store, most_bytes: int, turns: Turns) -> None:
        """Make one; `most_bytes` is how large an answer may be, negative: as large as it gets.

        `turns` are those of callers that read many.
        """
        self._store = store
        self._turns = turns
        self._most_bytes = most_bytes if most_bytes >= 0 else store_tasks.UNLIMITED
        full_reads = max(1, _MOST_BYTES_AT_A_TIME // most_bytes) if most_bytes > 0 else _FULL_READS
        self._full_reads = asyncio.Semaphore(full_reads)
        self._admission = Admission(_MOST_READS, "calls that read tasks")

    async def read(
        self, readable: Readable, *, bodies: bool, history: bool
    ) -> list[frontend_pb2.GetTaskResult]:
        """Read tasks, with payloads and results if `bodies`, with attempts if `history`.

        Raises:
            TooMuchError: the answer would exceed the limit; no payloads of that size were read.
            OverloadedError: too many calls read already.
            StoreUnavailableError: the store does not answer.
        """
        if len(readable.ids) > FEW:
            async with self._turns.turn(current_caller()):
                return await self._read_admitted(readable, bodies=bodies, history=history)
        return await self._read_admitted(readable, bodies=bodies, history=history)

    async def _read_admitted(
        self, readable: Readable, *, bodies: bool, history: bool
    ) -> list[frontend_pb2.GetTaskResult]:
        with self._admission.admitted():
            if not bodies:
                return await self._read(readable, bodies=False, history=history)
            async with self._full_reads:
                return await self._read(readable, bodies=True, history=history)

    async def _read(
        self, readable: Readable, *, bodies: bool, history: bool
    ) -> list[frontend_pb2.GetTaskResult]:
        ids = readable.ids
        times = Counter(task_id for task_id in ids if not isinstance(task_id, Problem))
        found: dict[TaskId, frontend_pb2.GetTaskResult] = {}
        left = self._most_bytes - _OVERHEAD * len(ids)
        for some, shown in _portions(list(times), readable.withheld):
            full = bodies and shown
            rows = await store_tasks.get_tasks(self._store, some, most_bytes=max(left, 0) if full else None)
            if full and sum(row["body_bytes"] * times[task_id] for task_id, row in rows.items()) > left:
                raise self._too_large(bodies=bodies)
            for task_id, result in (await self._results(rows, history=history, tracebacks=full)).items():
                left -= result.ByteSize() * times[task_id]
                found[task_id] = result
            if left < 0:
                raise self._too_large(bodies=bodies)
        return [
            frontend_pb2.GetTaskResult(error=task_id.to_wire())
            if isinstance(task_id, Problem)
            else found.get(task_id) or frontend_pb2.GetTaskResult(error=NO_SUCH_TASK.to_wire())
            for task_id in ids
        ]

    async def _results(
        self, rows: dict[TaskId, store_tasks.TaskRow], *, history: bool, tracebacks: bool
    ) -> dict[TaskId, frontend_pb2.GetTaskResult]:
        tried = [task_id for task_id, row in rows.items() if may_have_attempts(row)] if history else []
        attempts = {}
        if tried:
            count = _TRACEBACKS if tracebacks else 0
            attempts = await store_tasks.get_attempts(self._store, tried, tracebacks=count)
        payloads = restriction(Action.READ_PAYLOAD)
        results = {}
        for task_id, row in rows.items():
            task = task_to_wire(row, payloads)
            withheld = task.payload_withheld
            task.attempts.extend(
                attempt_to_wire(each, withheld=withheld) for each in attempts.get(task_id, ())
            )
            results[task_id] = frontend_pb2.GetTaskResult(task=task)
        return results

    def _too_large(self, *, bodies: bool) -> TooMuchError:
        basic = ", or with view TASK_VIEW_BASIC, without payloads and results" if bodies else ""
        return TooMuchError(
            f"task_ids: the answer would have more than {self._most_bytes:,} bytes (rpc.max_message_bytes): "
            f"ask for fewer tasks in one call{basic}"
        )


def _portions(
    wanted: Sequence[TaskId], withheld: Collection[TaskId]
) -> Iterator[tuple[Sequence[TaskId], bool]]:
    """Yield what each statement reads, and whether the caller may see the payloads of that."""
    shown = [task_id for task_id in wanted if task_id not in withheld]
    for part, is_shown in ((shown, True), (list(withheld), False)):
        for start in range(0, len(part), _AT_A_TIME):
            yield part[start : start + _AT_A_TIME], is_shown
