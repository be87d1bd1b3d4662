"""Sends new tasks: single ones committed together, many of them in a few large calls."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from duly.attachments.attachment import AttachmentsInsideError
from duly.attachments.sending import fields_of, whole_fields_of
from duly.callbacks import tracing
from duly.errors import (
    DulyError,
    InvalidTaskError,
    PayloadTooLargeError,
    ScheduleManyError,
    UnavailableError,
    UniqueKeyTakenError,
)
from duly.tasks.new_task import NewTask, ScheduledTask
from duly.transport import away_items, error_mapping
from duly.transport.caller import Caller, seconds
from duly.transport.lanes import Lanes
from duly_wire.enums import OnConflict
from duly_wire.ids import new_task_id_texts
from duly_wire.v1 import frontend_pb2, task_pb2

# One call of schedule_many. The server takes 10,000 and 4 MiB; smaller calls overlap better.
_MOST_TASKS = 1000
_MOST_BYTES = 1024 * 1024
_CALLS_IN_FLIGHT = 4
# What is no text and no payload: id, enums, times, and how long each field is.
_FIXED_BYTES = 128
# Lambda, payload, encoding, priority and id.
_FEWEST_FIELDS = 5

Written: TypeAlias = ScheduledTask | DulyError


class _Submission(NamedTuple):
    task: frontend_pb2.NewTask
    # When its caller stops waiting, on the loop's clock.
    deadline: float


class _Call(NamedTuple):
    request: frontend_pb2.ScheduleRequest
    # For each task in order: the id it was given, "" if it has a key instead, or why it cannot be sent.
    sent: list[str | DulyError]
    sessions: set[str]
    tasks: list[NewTask]


class _Flight(NamedTuple):
    results: asyncio.Task[list[Written]]
    sessions: set[str]


class Scheduler:
    """Writes tasks through one Frontend."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        # A namespace lives in one cell: while that is away, tasks of other namespaces do not wait for it.
        self._lanes: Lanes[_Submission, frontend_pb2.ScheduleResult] = Lanes(
            self._send_in_common,
            self._send_submissions,
            lambda submission: submission.task.ByteSize(),
            _namespace_of,
            _is_away,
        )

    async def schedule(self, new: NewTask, timeout: timedelta) -> ScheduledTask:
        """Write one task, together with what else is being scheduled at the moment."""
        fields = await fields_of(self._caller, new, timeout)
        try:
            return await self.send(frontend_pb2.NewTask(**fields), timeout)
        except PayloadTooLargeError as error:  # its lambda takes less
            if fields["payload_encoding"] == task_pb2.ENCODING_ATTACHMENT:
                raise
            fields = await whole_fields_of(self._caller, new, error, timeout)
            return await self.send(frontend_pb2.NewTask(**fields), timeout)

    async def send(self, task: frontend_pb2.NewTask, timeout: timedelta) -> ScheduledTask:
        """Write one task that may have been sent before; otherwise as `schedule`."""
        deadline = asyncio.get_running_loop().time() + seconds(timeout)
        began_ns = time.time_ns() if tracing.active is not None else 0
        try:
            result = await self._lanes.submit(_Submission(task, deadline), deadline)
            if _is_away(result):  # those of other cells were written
                result = await self._submit_again(task, deadline, result)
        except TimeoutError:  # its batch has callers more patient than this one
            raise _naming(task, await self._caller.late(timeout)) from None
        except UnavailableError as error:
            # one of its own: the other calls of its batch have this one, too
            raise _naming(task, UnavailableError(*error.args)) from None
        return receipt(task, result, began_ns)

    async def _submit_again(
        self, task: frontend_pb2.NewTask, deadline: float, before: frontend_pb2.ScheduleResult
    ) -> frontend_pb2.ScheduleResult:
        async def submit(
            some: Sequence[frontend_pb2.NewTask], _left: float
        ) -> Sequence[frontend_pb2.ScheduleResult]:
            return [await self._lanes.submit(_Submission(each, deadline), deadline) for each in some]

        left = deadline - asyncio.get_running_loop().time()
        result: frontend_pb2.ScheduleResult
        (result,) = await away_items.sent_again([before], submit, [task], left)
        return result

    async def schedule_many(self, tasks: Iterable[NewTask], timeout: timedelta) -> list[ScheduledTask]:
        """Write many tasks; `timeout` is for each call. Raises ScheduleManyError once all were tried."""
        results: list[Written] = []
        flights: deque[_Flight] = deque()
        try:
            async for call in _calls(tasks, self._caller, timeout):
                # tasks of a session are written in order: a call waits for those before it that have the same session
                while len(flights) == _CALLS_IN_FLIGHT or any(
                    call.sessions & each.sessions for each in flights
                ):
                    results += await flights.popleft().results
                flights.append(_Flight(asyncio.create_task(self._send_call(call, timeout)), call.sessions))
                await asyncio.sleep(0)  # it is on its way before the next one is written
            while flights:
                results += await flights.popleft().results
        finally:
            for flight in flights:
                flight.results.cancel()
        written = [result for result in results if isinstance(result, ScheduledTask)]
        if len(written) < len(results):
            raise ScheduleManyError(results)
        return written

    async def close(self) -> None:
        """Return once everything submitted is answered."""
        await self._lanes.close()

    async def _send_in_common(self, batch: list[_Submission]) -> Sequence[frontend_pb2.ScheduleResult]:
        return await self._send_submissions(batch, in_common=True)

    async def _send_submissions(
        self, batch: list[_Submission], *, in_common: bool = False
    ) -> Sequence[frontend_pb2.ScheduleResult]:
        # As long as the most patient caller waits; the others leave by their own timeouts.
        left = max(submission.deadline for submission in batch) - asyncio.get_running_loop().time()
        request = frontend_pb2.ScheduleRequest(tasks=[submission.task for submission in batch])
        response: frontend_pb2.ScheduleResponse = await self._caller.call(
            self._caller.schedule,
            request,
            timedelta(seconds=left),
            in_common=in_common,
            waits_as_told=self._lanes.wait_as_told,
        )
        return response.results

    async def _send_call(self, call: _Call, timeout: timedelta) -> list[Written]:
        try:
            answers = iter(await self._send_all(call.request, timeout) if call.request.tasks else ())
        except DulyError as error:
            return [sent if isinstance(sent, DulyError) else _of_one(sent, error) for sent in call.sent]
        written = [
            sent if isinstance(sent, DulyError) else _written(sent, next(answers)) for sent in call.sent
        ]
        for place, (new, sent, each) in enumerate(zip(call.tasks, call.sent, written, strict=True)):
            if isinstance(each, PayloadTooLargeError) and each is not sent:
                written[place] = await self._send_whole(new, each, timeout)
        return written

    async def _send_all(
        self, request: frontend_pb2.ScheduleRequest, timeout: timedelta
    ) -> Sequence[frontend_pb2.ScheduleResult]:
        async def send(
            some: Sequence[frontend_pb2.NewTask], left_s: float
        ) -> Sequence[frontend_pb2.ScheduleResult]:
            return await self._send(frontend_pb2.ScheduleRequest(tasks=some), timedelta(seconds=left_s))

        ends_at = asyncio.get_running_loop().time() + seconds(timeout)
        results = await self._send(request, timeout)
        left = ends_at - asyncio.get_running_loop().time()
        return await away_items.sent_again(results, send, request.tasks, left)

    async def _send_whole(self, new: NewTask, refusal: PayloadTooLargeError, timeout: timedelta) -> Written:
        """Send a task again whose lambda takes less, its payload as an attachment."""
        try:
            fields = await whole_fields_of(self._caller, new, refusal, timeout)
            request = frontend_pb2.ScheduleRequest(tasks=[frontend_pb2.NewTask(**fields)])
            (answer,) = await self._send(request, timeout)
        except DulyError as error:
            return error
        return _written(fields.get("task_id", ""), answer)

    async def _send(
        self, request: frontend_pb2.ScheduleRequest, timeout: timedelta
    ) -> Sequence[frontend_pb2.ScheduleResult]:
        call = self._caller.call(self._caller.schedule, request, timeout)
        response: frontend_pb2.ScheduleResponse = await call
        return response.results


def _namespace_of(submission: _Submission) -> str:
    namespace, mark, _ = getattr(submission.task, "lambda").partition("/")
    return namespace if mark else ""


def _is_away(result: frontend_pb2.ScheduleResult) -> bool:
    return not result.created and away_items.is_away(result)


def _of_one(task_id: str, error: DulyError) -> DulyError:
    """Return the error of a call for one of its tasks; of one that may have been written it has the id."""
    if not isinstance(error, UnavailableError):
        return error
    unknown = UnavailableError(*error.args)
    unknown.task_id = task_id
    return unknown


def _naming(task: frontend_pb2.NewTask, error: UnavailableError) -> UnavailableError:
    error.task_id = task.task_id
    return error


def receipt(
    task: frontend_pb2.NewTask, result: frontend_pb2.ScheduleResult, began_ns: int = 0
) -> ScheduledTask:
    """Return the receipt of one task; raise the SDK's error if it was refused. The call began at `began_ns`, if it is traced."""
    written = _written(task.task_id, result)
    if isinstance(written, DulyError):
        raise written
    if tracing.active is not None and began_ns:
        tracing.active.scheduled(getattr(task, "lambda"), written.task_id, began_ns)
    return written


def _written(own_id: str, result: frontend_pb2.ScheduleResult) -> Written:
    if not result.created:
        if result.HasField("error"):
            error = error_mapping.from_item(result.error)
            if isinstance(error, UniqueKeyTakenError):
                error.task_id = result.task_id
            return error
        if result.conflict:
            return ScheduledTask(result.task_id, False, OnConflict(result.conflict))
    if own_id:  # this very call's own: if it was there before, one of our retries put it there
        return ScheduledTask(own_id, True)  # by position: a keyword costs a third more
    return ScheduledTask(result.task_id, created=result.created)


async def _calls(tasks: Iterable[NewTask], caller: Caller, timeout: timedelta) -> AsyncIterator[_Call]:
    """Yield the calls, in order, each message made where it is sent from: made before, it would be copied."""
    call = _Call(frontend_pb2.ScheduleRequest(), [], set(), [])
    codec, new_ids = caller.codec, new_task_id_texts()
    room = _MOST_BYTES
    for new in tasks:
        size = 0
        try:
            try:
                fields = new.to_fields(codec, new_id=next(new_ids))
            except (AttachmentsInsideError, PayloadTooLargeError):
                fields = await fields_of(caller, new, timeout)
        except DulyError as error:
            sent: str | DulyError = error
        except OSError as error:  # a file that cannot be read
            sent = InvalidTaskError(f"payload: {error}", "payload")
        else:
            sent = fields.get("task_id", "")
            size = _size_of(fields)
        if call.sent and (len(call.sent) == _MOST_TASKS or size > room):
            yield call
            call, room = _Call(frontend_pb2.ScheduleRequest(), [], set(), []), _MOST_BYTES
            new_ids = new_task_id_texts()  # the others grow old where tasks come slowly
        if size:
            call.request.tasks.add(**fields)
            if session := fields.get("session"):
                call.sessions.add(session["key"])
        call.sent.append(sent)
        call.tasks.append(new)
        room -= size
    if call.sent:
        yield call


def _size_of(fields: dict[str, Any]) -> int:
    """How many bytes the task takes at most: a character may take four."""
    characters = len(fields["lambda"])
    size = len(fields["payload"]) + _FIXED_BYTES
    if len(fields) > _FEWEST_FIELDS or "task_id" not in fields:
        characters += len(fields.get("collection", "")) + len(fields.get("idempotency_key", ""))
        size += len(fields.get("attachments", b"")) + len(fields.get("unique", b""))
    return size + 4 * characters
