"""Sends new tasks: single ones coalesced, many of them in a few large calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from duly import error_mapping
from duly.caller import Caller, seconds
from duly.coalesce import Coalescer
from duly.errors import DulyError, ScheduleManyError
from duly.new_task import NewTask, ScheduledTask
from duly.v1 import frontend_pb2

# One call of schedule_many. The server takes 10,000 and 4 MiB; smaller calls overlap better.
_MOST_TASKS = 1000
_MOST_BYTES = 1024 * 1024
_CALLS_IN_FLIGHT = 4

Written: TypeAlias = ScheduledTask | DulyError


class _Submission(NamedTuple):
    task: frontend_pb2.NewTask
    # When its caller stops waiting, on the loop's clock.
    deadline: float


class Scheduler:
    """Writes tasks through one Frontend."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._coalescer: Coalescer[_Submission, frontend_pb2.ScheduleResult] = Coalescer(
            self._send_submissions, lambda submission: submission.task.ByteSize()
        )

    async def schedule(self, new: NewTask, timeout: timedelta) -> ScheduledTask:
        """Write one task, together with what else is being scheduled at the moment."""
        task = new.to_proto()
        deadline = asyncio.get_running_loop().time() + seconds(timeout)
        try:
            async with asyncio.timeout_at(deadline):
                result = await self._coalescer.submit(_Submission(task, deadline))
        except TimeoutError:  # its batch has callers more patient than this one
            raise error_mapping.late(self._caller.address) from None
        written = _written(task, result)
        if isinstance(written, DulyError):
            raise written
        return written

    async def schedule_many(self, tasks: Iterable[NewTask], timeout: timedelta) -> list[ScheduledTask]:
        """Write many tasks; `timeout` is for each call. Raises ScheduleManyError once all were tried."""
        results: list[Written] = []
        flights: deque[asyncio.Task[list[Written]]] = deque()
        try:
            for batch in _batches(tasks):
                if len(flights) == _CALLS_IN_FLIGHT:
                    results += await flights.popleft()
                flights.append(asyncio.create_task(self._send_batch(batch, timeout)))
            while flights:
                results += await flights.popleft()
        finally:
            for flight in flights:
                flight.cancel()
        written = [result for result in results if isinstance(result, ScheduledTask)]
        if len(written) < len(results):
            raise ScheduleManyError(results)
        return written

    async def close(self) -> None:
        """Return once everything submitted is answered."""
        await self._coalescer.close()

    async def _send_submissions(self, batch: list[_Submission]) -> list[frontend_pb2.ScheduleResult]:
        # As long as the most patient caller waits; the others leave by their own timeouts.
        left = max(submission.deadline for submission in batch) - asyncio.get_running_loop().time()
        return await self._send([submission.task for submission in batch], timedelta(seconds=left))

    async def _send_batch(
        self, batch: list[frontend_pb2.NewTask | DulyError], timeout: timedelta
    ) -> list[Written]:
        tasks = [task for task in batch if isinstance(task, frontend_pb2.NewTask)]
        try:
            answers = iter(await self._send(tasks, timeout) if tasks else ())
        except DulyError as error:
            return [task if isinstance(task, DulyError) else error for task in batch]
        return [task if isinstance(task, DulyError) else _written(task, next(answers)) for task in batch]

    async def _send(
        self, tasks: list[frontend_pb2.NewTask], timeout: timedelta
    ) -> list[frontend_pb2.ScheduleResult]:
        request = frontend_pb2.ScheduleRequest(tasks=tasks)
        response = await self._caller.call(self._caller.frontend.Schedule, request, timeout)
        return list(response.results)


def _written(task: frontend_pb2.NewTask, result: frontend_pb2.ScheduleResult) -> Written:
    if result.HasField("error"):
        return error_mapping.from_item(result.error)
    # Without a key the id is this very call's own: if it was there before, one of our retries put it there.
    return ScheduledTask(result.task_id, created=result.created or not task.idempotency_key)


def _batches(tasks: Iterable[NewTask]) -> Iterator[list[frontend_pb2.NewTask | DulyError]]:
    """Yield what goes into each call, in order; a task that cannot be sent is its error."""
    batch: list[frontend_pb2.NewTask | DulyError] = []
    room = _MOST_BYTES
    for new in tasks:
        try:
            task: frontend_pb2.NewTask | DulyError = new.to_proto()
        except DulyError as error:
            task = error
        size = 0 if isinstance(task, DulyError) else task.ByteSize()
        if batch and (len(batch) == _MOST_TASKS or size > room):
            yield batch
            batch, room = [], _MOST_BYTES
        batch.append(task)
        room -= size
    if batch:
        yield batch
