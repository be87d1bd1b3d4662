"""Cancels and purges by filter: pages of calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from duly.caller import Caller
from duly.enums import Priority, TaskStatus, member
from duly.errors import DulyError, InvalidTaskError
from duly.new_task import aware
from duly.v1 import frontend_pb2, task_pb2

_PAGE = 1000
"""As many as one call takes."""


class CancelFilter(TypedDict, total=False):
    """Which live tasks; what is left out is not filtered by."""

    lambda_name: str
    collection: str
    # Left out: NEW, WAITING, ENQUEUED and RETRIABLE_FAILURE. With CLAIMED and PROCESSING, callbacks that run are asked to stop.
    statuses: Sequence[TaskStatus]
    priorities: Sequence[Priority]


class PurgeFilter(TypedDict, total=False):
    """Which finished tasks; what is left out is not filtered by."""

    lambda_name: str
    collection: str
    # Final ones.
    statuses: Sequence[TaskStatus]
    # Ended at this instant or later; ended before this instant. Both with a time zone.
    finished_after: datetime | None
    finished_before: datetime | None


def cancel_request(
    *,
    lambda_name: str = "",
    collection: str = "",
    statuses: Sequence[TaskStatus] = (),
    priorities: Sequence[Priority] = (),
) -> frontend_pb2.CancelTasksRequest:
    """Return the request for a cancel by filter. Raises InvalidTaskError."""
    request = frontend_pb2.CancelTasksRequest(collection=collection)
    request.statuses.extend(_status(each) for each in statuses)
    request.priorities.extend(_priority(each) for each in priorities)
    setattr(request, "lambda", lambda_name)
    return request


def purge_request(
    *,
    lambda_name: str = "",
    collection: str = "",
    statuses: Sequence[TaskStatus] = (),
    finished_after: datetime | None = None,
    finished_before: datetime | None = None,
) -> frontend_pb2.PurgeTasksRequest:
    """Return the request for a purge by filter. Raises InvalidTaskError."""
    request = frontend_pb2.PurgeTasksRequest(collection=collection)
    request.statuses.extend(_status(each) for each in statuses)
    setattr(request, "lambda", lambda_name)
    if finished_after is not None:
        request.finished_after.FromDatetime(aware("finished_after", finished_after))
    if finished_before is not None:
        request.finished_before.FromDatetime(aware("finished_before", finished_before))
    return request


def _status(status: TaskStatus) -> task_pb2.TaskStatus.ValueType:
    return task_pb2.TaskStatus.ValueType(member("statuses", status, TaskStatus))


def _priority(priority: Priority) -> task_pb2.Priority.ValueType:
    return task_pb2.Priority.ValueType(member("priorities", priority, Priority))


async def run_pages(
    caller: Caller,
    request: frontend_pb2.CancelTasksRequest | frontend_pb2.PurgeTasksRequest,
    limit: int | None,
    *,
    dry_run: bool,
) -> int:
    """Call until nothing matches any more, or `limit` tasks were taken; return how many were."""
    if limit is not None and limit < 1:
        raise InvalidTaskError("limit must be at least 1, or None for all", "limit")
    is_purge = isinstance(request, frontend_pb2.PurgeTasksRequest)
    method = caller.frontend.PurgeTasks if is_purge else caller.frontend.CancelTasks
    request.dry_run = dry_run
    count = 0
    while True:
        request.limit = min(_PAGE, limit - count) if limit is not None else _PAGE
        try:
            response: frontend_pb2.CancelTasksResponse | frontend_pb2.PurgeTasksResponse
            response = await caller.call(method, request)
        except DulyError as error:
            if count:
                error.add_note(f"{count:,} tasks were {'purged' if is_purge else 'cancelled'} before")
            raise
        count += response.count
        if not response.more or count == limit:
            return min(count, limit) if limit is not None else count
        request.as_of.CopyFrom(response.as_of)
        request.after = response.next_after
