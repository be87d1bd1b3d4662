"""ExplainService: says why a task does not run, and what happened to it."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.errors import StoreUnavailableError
from duly_core.explain.reads import read_explained, read_related
from duly_core.gates.breaker_history import read_moves
from duly_core.lambdas.names import base_name
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.tasks.completions import PARKED_ON
from duly_core.tasks.history import read_runs
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.store import TaskRow
from duly_frontend.access.reach import readable
from duly_frontend.explain.breaker_history import with_breaker
from duly_frontend.explain.clocks import skew_of_client, skew_of_holder
from duly_frontend.explain.held import ended_reasons, held_reasons
from duly_frontend.explain.history import history_of, named_tasks
from duly_frontend.explain.pending import enqueued_reasons, expiry_reasons, pending_reasons
from duly_frontend.explain.pools import add_pools
from duly_frontend.explain.text import may_be_named
from duly_frontend.explain.waiting import waiting_reasons
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.wire import NO_SUCH_TASK, STATUS_TO_WIRE
from duly_wire.v1 import explain_pb2, explain_pb2_grpc


class ExplainServicer(explain_pb2_grpc.ExplainServiceServicer):
    """Changes nothing. What it reads in several statements may change between them."""

    def __init__(
        self,
        stores: FrontendStores,
        heartbeat_timeout: Callable[[], timedelta],
        plans_at: Callable[[Store], Store | None] = lambda own: own,
    ) -> None:
        """Make one.

        Args:
            stores: of the tasks.
            heartbeat_timeout: tells how long leases are: the age of a heartbeat is told by it.
            plans_at: returns the store that has the autoscaler's plans, of that of the tasks; None: it does not answer.
        """
        self._stores = stores
        self._heartbeat_timeout = heartbeat_timeout
        self._plans_at = plans_at

    async def ExplainTask(  # noqa: N802 (the wire's name)
        self, request: explain_pb2.ExplainTaskRequest, _context: Context
    ) -> explain_pb2.ExplainTaskResponse:
        try:
            task_id = parse_task_id(request.task_id, "task_id")
            reach = await readable(self._stores.reads, [task_id])
            (found,) = reach.ids
            if isinstance(found, Problem):
                raise found
            async with self._stores.listing("ExplainTask") as store:
                row = await read_explained(store, task_id)
                if row is None:
                    raise NO_SUCH_TASK
                response = await self._explained(store, row, withheld=bool(reach.withheld))
                if not request.without_history:
                    runs = await read_runs(store, task_id)
                    hidden = await _hidden(store, named_tasks(row))
                    history = history_of(row, runs, withheld=bool(reach.withheld), hidden=hidden)
                    moves = await read_moves(
                        store, base_name(row["lambda"]), row["finished_at"] or row["now"]
                    )
                    response.history.extend(with_breaker(history, moves))
        except Problem as problem:
            return explain_pb2.ExplainTaskResponse(error=problem.to_wire())
        return response

    async def _explained(
        self, store: Store, row: TaskRow, *, withheld: bool
    ) -> explain_pb2.ExplainTaskResponse:
        response = explain_pb2.ExplainTaskResponse(
            task_id=str(row["task_id"]),
            priority=row["priority"],
            status=STATUS_TO_WIRE[Status(row["status"])],
            reasons=await self._reasons(store, row, withheld=withheld),
            payload_withheld=withheld,
        )
        setattr(response, "lambda", row["lambda"])
        response.explained_at.FromDatetime(row["now"])
        return response

    async def _reasons(self, store: Store, row: TaskRow, *, withheld: bool) -> list[explain_pb2.Reason]:
        status = Status(row["status"])
        if status in FINAL:
            skew = await skew_of_holder(store, row["run_holder"])
            return [*ended_reasons(row, withheld=withheld), *skew]
        if status in HELD:
            skew = await skew_of_holder(store, row["holder"])
            return [*held_reasons(row, self._heartbeat_timeout(), withheld=withheld), *skew]
        scope = restriction(Action.READ)
        # an attempt that was handed over goes on
        expiry = [] if row["parked_on"] == PARKED_ON else expiry_reasons(row)
        if status is Status.WAITING:
            found = await waiting_reasons(store, row, scope)
        elif status is Status.ENQUEUED:
            found = await enqueued_reasons(store, row, scope)
        else:
            found = await pending_reasons(store, row, scope, withheld=withheld)
        if scope is None:  # pools are shown to those who may read all
            await self._add_pools(store, row, found)
        is_over = bool(expiry) and row["expires_at"] <= row["now"]
        skew = skew_of_client(row, [*found, *expiry])
        return [*expiry, *found, *skew] if is_over else [*found, *skew, *expiry]

    async def _add_pools(self, store: Store, row: TaskRow, found: Sequence[explain_pb2.Reason]) -> None:
        nobody = next((each for each in found if each.kind == explain_pb2.REASON_KIND_NO_HOST), None)
        plans = self._plans_at(store) if nobody is not None else None
        if nobody is None or plans is None:
            return
        try:
            await add_pools(plans, row, nobody)
        except StoreUnavailableError:
            if plans is store:
                raise  # else another cell has the plans: the task's own reasons are told without


async def _hidden(store: Store, task_ids: set[UUID]) -> set[UUID]:
    """Return those of these tasks that the caller may not read."""
    scope = restriction(Action.READ)
    if scope is None or not task_ids:
        return set()
    known = await read_related(store, task_ids)
    return task_ids - {task_id for task_id, row in known.items() if may_be_named(row, scope)}
