"""Says whether hosts are known to serve a task's lambda."""

from datetime import timedelta

from duly.v1 import explain_pb2
from duly_core.store.explain_reads import Load
from duly_core.store.pool import Store
from duly_core.store.tasks import TaskRow
from duly_frontend.explain_text import reason, span

_PATIENCE = timedelta(seconds=15)
"""The first task of a queue that waited so long, and nothing was claimed since: nobody takes them."""


async def host_reasons(_store: Store, row: TaskRow, load: Load) -> list[explain_pb2.Reason]:
    """Say that nobody claims its lambda's tasks. Hosts are judged by their claims: nothing else is known of them."""
    waited = row["now"] - load.first_due_at
    if load.running or waited < _PATIENCE:
        return []
    if load.last_claim_at is not None and load.last_claim_at >= load.first_due_at:
        return []
    return [
        reason(
            explain_pb2.REASON_KIND_NO_HOST,
            f"no host has claimed a task of {row['lambda']} for {span(waited)}, and none holds one: "
            "probably no host serves it",
            "start a worker that serves it; if one runs, check the HSC and the worker's log: duly health",
            since_at=load.first_due_at,
        )
    ]
