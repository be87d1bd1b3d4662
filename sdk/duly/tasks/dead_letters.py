"""Dead letters, the tasks that ended as FATAL_FAILURE: find them, and let them run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.errors import DulyError, InvalidTaskError, NotADeadLetterError, UnavailableError
from duly.tasks.reads import in_chunks
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT, Caller
from duly.transport.message_fields import wire_member
from duly_wire.enums import TaskStatus
from duly_wire.time_conversion import to_datetime, to_timedelta
from duly_wire.v1 import frontend_pb2, task_pb2

_PAGE = 1000
"""As many as one call redrives."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """What a redrive by filter did."""

    # How many run again; with `dry_run` how many would.
    count: int
    # When it began, by Duly's clock; how long after that the last of them is due.
    as_of: datetime
    spread: timedelta


async def redrive_tasks(caller: Caller, ids: Sequence[str]) -> list[TaskStatus | DulyError]:
    """Redrive dead letters by their ids; return for each, in order, its status now, or why not."""
    results: list[TaskStatus | DulyError] = []
    for some in in_chunks(ids):
        request = frontend_pb2.RedriveTaskRequest(task_ids=some)
        tries: list[int] = []
        response = await caller.call(caller.frontend.RedriveTask, request, tried=tries.append)
        results += [_redriven(result, repeated=len(tries) > 1) for result in response.results]
    return results


def _redriven(result: frontend_pb2.RedriveTaskResult, *, repeated: bool) -> TaskStatus | DulyError:
    """Read one answer. After a repeated try a task that waits to run was redriven by the first, whose reply was lost."""
    if not result.HasField("error"):
        return wire_member(TaskStatus, result.status)
    error = error_mapping.from_item(result.error)
    waits = result.status in (task_pb2.TASK_STATUS_NEW, task_pb2.TASK_STATUS_ENQUEUED)
    if repeated and waits and isinstance(error, NotADeadLetterError):
        return wire_member(TaskStatus, result.status)
    return error


async def redrive_where(
    caller: Caller,
    request: frontend_pb2.RedriveTasksRequest,
    rate: float | None,
    limit: int | None,
    *,
    dry_run: bool,
) -> Redrive:
    """Redrive what the request's filter and cause find, page by page, at most `limit`, at `rate` tasks a second."""
    if rate is not None and not rate > 0:
        raise InvalidTaskError("rate must be more than 0 tasks a second, or None for all at once", "rate")
    if limit is not None and limit < 1:
        raise InvalidTaskError("limit must be at least 1, or None for all", "limit")
    if request.cause and not dry_run:
        request.dry_run = True
        _check_cause(request, await caller.call(caller.frontend.RedriveTasks, request))
    request.rate = rate or 0
    request.dry_run = dry_run
    count = 0
    while True:
        request.limit = min(_PAGE, limit - count) if limit is not None else _PAGE
        try:
            # sent again after a lost reply it would redrive the next ones, beyond the limit and faster than the rate
            response = await caller.call(
                caller.frontend.RedriveTasks, request, one_try=DEFAULT_TIMEOUT, again=dry_run
            )
        except DulyError as error:
            if isinstance(error, UnavailableError) and not dry_run:
                error.add_note(
                    f"{count:,} dead letters are known to be redriven, up to {request.limit:,} more may be: list what "
                    "is left, and run it again; what was redriven is no longer a dead letter"
                )
            elif count:
                error.add_note(f"{count:,} dead letters were redriven before")
            raise
        _check_cause(request, response)
        count += response.count
        if not response.more or (limit is not None and count >= limit):
            break
        request.as_of.CopyFrom(response.as_of)
        request.offset.CopyFrom(response.next_offset)
        request.after = response.next_after
    if dry_run and limit is not None:
        count = min(count, limit)
    return Redrive(count, to_datetime(response.as_of), _spread(count, rate, response, dry_run=dry_run))


def _check_cause(
    request: frontend_pb2.RedriveTasksRequest, response: frontend_pb2.RedriveTasksResponse
) -> None:
    """Refuse the answer of a Frontend that does not know causes, and so meant dead letters of any."""
    if response.cause != request.cause:
        raise DulyError(
            "the Frontend is of an older release, which cannot redrive by cause: upgrade it first"
        )


def _spread(
    count: int, rate: float | None, response: frontend_pb2.RedriveTasksResponse, *, dry_run: bool
) -> timedelta:
    """How long after as_of the last one is due; next_offset is one interval further."""
    if not (count and rate):
        return timedelta(0)
    if dry_run:
        return timedelta(seconds=(count - 1) / rate)
    return to_timedelta(response.next_offset) - timedelta(seconds=1 / rate)
