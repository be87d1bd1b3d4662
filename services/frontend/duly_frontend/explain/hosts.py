"""Says whether hosts are known to serve a task's lambda."""

from datetime import timedelta

from duly_core.explain.hosts import Serving, read_serving
from duly_core.explain.reads import Load
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import ago, command, reason, span
from duly_wire.v1 import explain_pb2

_PATIENCE = timedelta(seconds=15)
"""The first task of a queue that waited so long, and nothing was claimed since: nobody takes them."""


async def host_reasons(store: Store, row: TaskRow, load: Load) -> list[explain_pb2.Reason]:
    """Say that no live host serves its lambda. Where no host reports, its claims tell.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    serving = await read_serving(store, row["lambda"])
    if serving.alive:
        return []
    if serving.last_name is not None or serving.any_alive:
        return [] if load.running else [_not_alive(row, serving)]
    waited = row["now"] - load.first_due_at
    if load.running or waited < _PATIENCE:
        return []
    if load.last_claim_at is not None and load.last_claim_at >= load.first_due_at:
        return []
    return [
        reason(
            explain_pb2.REASON_KIND_NO_HOST,
            f"no host reports itself, none has claimed a task of {row['lambda']} for {span(waited)}, and none holds one",
            f"start a worker that serves it; if one runs, check the HSC and the worker's log: {command('health')}",
            since_at=load.first_due_at,
        )
    ]


def _not_alive(row: TaskRow, serving: Serving) -> explain_pb2.Reason:
    if serving.last_name is None or serving.last_reported_at is None:
        return reason(explain_pb2.REASON_KIND_NO_HOST, f"no live host serves {row['lambda']}", _start())
    return reason(
        explain_pb2.REASON_KIND_NO_HOST,
        f"no live host serves {row['lambda']}: the last one, {serving.last_name}, is {serving.last_state}, "
        f"and reported {ago(row, serving.last_reported_at)}",
        _start(),
        since_at=serving.last_reported_at,
        holder=serving.last_name,
    )


def _start() -> str:
    return f"start a worker that serves it; those that report: {command('hosts')}"
