"""The part of AsyncClient that changes tasks which nobody runs yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Unpack

from duly.errors import DulyError, NotPendingError
from duly.keep import KEEP
from duly.tasks.bulk import run_pages
from duly.tasks.filters import CancelFilter, PurgeFilter, filtered
from duly.tasks.reads import TaskRef, get_tasks, ids_of, in_chunks
from duly.tasks.task import Task
from duly.tasks.update import TaskUpdate
from duly.transport import error_mapping
from duly.transport.caller import Caller
from duly.transport.client_part import ClientPart, only
from duly.transport.message_fields import wire_member
from duly_wire.enums import Priority, TaskStatus
from duly_wire.v1 import frontend_pb2


class ChangeCalls(ClientPart):
    """Changes tasks by their ids, or by a filter."""

    async def update(
        self,
        task: TaskRef,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        priority: Priority | None = None,
        payload: Any = KEEP,
    ) -> TaskStatus:
        """Change a task that nobody runs yet, and return its status: NEW or WAITING.

            await client.update(task, delay=timedelta(hours=2), priority=Priority.LOW)

        - `at` or `delay`: run it then instead; `delay` counts from now, on Duly's clock.
        - `payload`: takes the place of the whole payload.

        What is left out stays as it is. Raises NotPendingError (it runs, has ended, is parked, or is about to end without a run:
        see `status`), TaskNotFoundError, PayloadTooLargeError, InvalidTaskError.
        """
        return only(await self.update_many([TaskUpdate(task, at, delay, priority, payload)]))

    async def update_many(self, updates: Iterable[TaskUpdate]) -> list[TaskStatus | DulyError]:
        """Change tasks; return for each, in order, its status now, or why it was not changed."""
        return await _update_tasks(self._caller, [*updates])

    async def cancel_where(
        self, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[CancelFilter]
    ) -> int:
        """Cancel the live tasks that the filters find, oldest first, and return how many were cancelled.

            await client.cancel_where(lambda_name="mail.send", collection="spring")

        Those that run are left alone, unless `statuses` names CLAIMED and PROCESSING: then their callbacks are asked to
        stop. What is scheduled meanwhile is not cancelled. `limit`: at most so many. `dry_run`: only count. Raises
        InvalidTaskError, UnavailableError (it is safe to call again).
        """
        request = filtered(frontend_pb2.CancelTasksRequest(), which, CancelFilter)
        return await run_pages(self._caller, request, limit, dry_run=dry_run)

    async def purge(
        self, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[PurgeFilter]
    ) -> int:
        """Delete the finished tasks that the filters find, oldest first, and return how many were deleted.

            await client.purge(lambda_name="mail.send", finished_before=datetime.now(UTC) - timedelta(days=1))

        Their results, histories and idempotency keys go with them. Live tasks are left alone, and so are
        tasks of graphs that run. `limit`: at most so many. `dry_run`: only count. Raises InvalidTaskError, UnavailableError (it is safe to call again).
        """
        request = filtered(frontend_pb2.PurgeTasksRequest(), which, PurgeFilter)
        return await run_pages(self._caller, request, limit, dry_run=dry_run)


async def _update_tasks(caller: Caller, updates: Sequence[TaskUpdate]) -> list[TaskStatus | DulyError]:
    """Change tasks; return for each, in order, its status now, or why it was not changed."""
    results: list[TaskStatus | DulyError] = []
    ids = await ids_of(caller, [update.task for update in updates])
    known = [(each, update) for each, update in zip(ids, updates, strict=True) if isinstance(each, str)]
    names = await _lambda_names(caller, known)
    protos = [
        replace(update, task=task_id).to_proto(caller.codec, names.get(task_id, ""))
        for task_id, update in known
    ]
    for some in in_chunks(protos):
        request = frontend_pb2.UpdateTaskRequest(updates=some)
        tries: list[int] = []
        response = await caller.call(caller.frontend.UpdateTask, request, tried=tries.append)
        results += [_updated(result, repeated=len(tries) > 1) for result in response.results]
    answers = iter(results)
    return [each if isinstance(each, DulyError) else next(answers) for each in ids]


async def _lambda_names(caller: Caller, updates: Sequence[tuple[str, TaskUpdate]]) -> dict[str, str]:
    """Return the lambdas of tasks whose payload is to be encrypted: it is bound to the lambda's name."""
    if caller.codec is None:
        return {}
    changed = [(task_id, update.task) for task_id, update in updates if update.payload is not KEEP]
    names = {task_id: task.lambda_name for task_id, task in changed if isinstance(task, Task)}
    unknown = [task_id for task_id, _ in changed if task_id not in names]
    found = await get_tasks(caller, unknown) if unknown else []
    return names | {
        task_id: task.lambda_name for task_id, task in zip(unknown, found, strict=True) if task is not None
    }


def _updated(result: frontend_pb2.UpdateTaskResult, *, repeated: bool) -> TaskStatus | DulyError:
    if not result.HasField("error"):
        return wire_member(TaskStatus, result.status)
    error = error_mapping.from_item(result.error)
    if isinstance(error, NotPendingError):
        error.status = wire_member(TaskStatus, result.status)
        if repeated:
            error.add_note("an earlier try, whose answer was lost, may have changed it before it ran")
    return error
