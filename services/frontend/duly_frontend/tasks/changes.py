"""The part of FrontendService that changes tasks which nobody runs: edits, cancels and purges of many."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.checks import check_count, limit
from duly_core.rpc.stubs import Context
from duly_core.tasks import bulk as store_bulk
from duly_core.tasks import updates as store_changes
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import TaskChange
from duly_core.tasks.updates import Changed, ChangeVerdict
from duly_frontend import events
from duly_frontend.access.reach import reachable, scope_of
from duly_frontend.lists import filters
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks import bulk as bulk_pages
from duly_frontend.tasks import updates as task_updates
from duly_frontend.tasks.wire import NO_SUCH_TASK
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc

_MOST_UPDATES = 1_000


class TaskChanges(frontend_pb2_grpc.FrontendServiceServicer):
    """Each RPC takes many and answers each for itself."""

    def __init__(
        self, stores: FrontendStores, live: Callable[[], LiveFrontendSettings], notifier: Notifier
    ) -> None:
        self._stores = stores
        self._live = live
        self._notifier = notifier

    async def UpdateTask(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.UpdateTaskRequest, _context: Context
    ) -> frontend_pb2.UpdateTaskResponse:
        check_count("updates", len(request.updates), _MOST_UPDATES)
        asked = task_updates.read(request.updates, self._live().horizon)
        ids = [each.task_id if isinstance(each, TaskChange) else each for each in asked]
        within = await reachable(self._stores.reads, Action.CHANGE, ids)
        changes = [
            each
            for each, task_id in zip(asked, within, strict=True)
            if isinstance(each, TaskChange) and task_id is not NO_SUCH_TASK
        ]
        done = (
            await store_changes.update_pending(self._stores.writes, changes)
            if changes
            else store_changes.NONE
        )
        self._tell_due(done.answers.values(), done.released)
        return frontend_pb2.UpdateTaskResponse(results=task_updates.results(asked, done.answers))

    async def CancelTasks(  # noqa: N802
        self, request: frontend_pb2.CancelTasksRequest, _context: Context
    ) -> frontend_pb2.CancelTasksResponse:
        scope = scope_of(Action.CHANGE, getattr(request, "lambda"))
        wanted = replace(filters.of_cancel(request), scope=scope)
        place, most = bulk_pages.place(request), limit(request.limit)
        with self._stores.listing("CancelTasks") as lists:
            if request.dry_run:
                page = await store_bulk.count_where(lists, wanted, place)
            else:
                page = await store_bulk.cancel_where(lists, wanted, place, most)
                if page.released:
                    self._notifier.due_in(min(page.released.values()), page.released.keys())
        return bulk_pages.to_wire(page, frontend_pb2.CancelTasksResponse())

    async def PurgeTasks(  # noqa: N802
        self, request: frontend_pb2.PurgeTasksRequest, _context: Context
    ) -> frontend_pb2.PurgeTasksResponse:
        scope = scope_of(Action.REDRIVE, getattr(request, "lambda"))
        wanted = replace(filters.of_purge(request), scope=scope)
        place, most = bulk_pages.place(request), limit(request.limit)
        with self._stores.listing("PurgeTasks") as lists:
            if request.dry_run:
                page = await store_bulk.count_where(lists, wanted, place)
            else:
                page = await store_bulk.purge_where(lists, wanted, place, most)
                if page.count:
                    events.purged.inc(page.count)
                    events.log.info("tasks purged", count=page.count)
        return bulk_pages.to_wire(page, frontend_pb2.PurgeTasksResponse())

    def _tell_due(self, answers: Collection[Changed], released: Collection[str]) -> None:
        """Who looks for due tasks may have to look sooner than it meant to."""
        changed = [each for each in answers if each.verdict is ChangeVerdict.CHANGED]
        if changed:
            due = [each for each in changed if each.status is not Status.WAITING]
            if due:
                ahead = min(each.due_in or timedelta() for each in due)
                self._notifier.due_in(ahead, {each.lambda_name for each in due}, len(due))
            events.updated.inc(len(changed))
        if released:
            self._notifier.due_in(timedelta(), released, len(released))
