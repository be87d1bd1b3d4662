"""Cancels and purges by filter: pages of calls."""

from __future__ import annotations

from duly.errors import DulyError, InvalidTaskError
from duly.transport.caller import Caller
from duly_wire.v1 import frontend_pb2

_PAGE = 1000
"""As many as one call takes."""


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
    if request.attributes:  # a Frontend that does not know them refuses it, in place of changing all tasks
        request.after = "attributes:"
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
        if not response.more or (limit is not None and count >= limit):
            return min(count, limit) if limit is not None else count
        request.as_of.CopyFrom(response.as_of)
        request.after = response.next_after
