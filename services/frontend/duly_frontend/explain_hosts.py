"""Says whether hosts are known to serve a task's lambda."""

from datetime import timedelta

from duly.v1 import explain_pb2
from duly_core.store.explain_reads import Load
from duly_core.store.host_reads import count_hosts
from duly_core.store.pool import Store
from duly_core.store.queue_reads import hosts_by_lambda
from duly_core.store.tasks import TaskRow
from duly_frontend.explain_text import reason, span

_PATIENCE = timedelta(seconds=15)
"""The first task of a queue that waited so long, and nothing was claimed since: nobody takes them."""


async def host_reasons(store: Store, row: TaskRow, load: Load) -> list[explain_pb2.Reason]:
    """Say that no live host serves its lambda, or that nobody claims its tasks.

    Hosts of a release that does not report itself are judged by their claims alone.
    """
    name = row["lambda"]
    waited = row["now"] - load.first_due_at
    serving = (await hosts_by_lambda(store, [name], row["now"])).get(name, 0)
    if not (serving or load.running) and any((await count_hosts(store)).values()):
        return [
            reason(
                explain_pb2.REASON_KIND_NO_HOST,
                f"no live host serves {name}",
                "start a worker that serves it, or see which fell silent: duly hosts --state silent",
                since_at=load.first_due_at,
            )
        ]
    if load.running or waited < _PATIENCE:
        return []
    if load.last_claim_at is not None and load.last_claim_at >= load.first_due_at:
        return []
    return [
        reason(
            explain_pb2.REASON_KIND_NO_HOST,
            f"no host has claimed a task of {name} for {span(waited)}, and none holds one: "
            + (f"{serving} serve it" if serving else "probably no host serves it"),
            "see whether its slots are full, and read the worker's log: duly hosts"
            if serving
            else "start a worker that serves it; if one runs, check the HSC and the worker's log: duly health",
            since_at=load.first_due_at,
        )
    ]
