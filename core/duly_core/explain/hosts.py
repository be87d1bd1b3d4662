"""Reads which hosts serve a lambda, by what they reported of themselves."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.explain.statements import EXPLAIN
from duly_core.postgres.pool import Store
from duly_core.tasks.store import select_text
from duly_wire.queue_names import QueueName

_QUERY = EXPLAIN["serving_hosts"].sql
_LABELS = EXPLAIN["labels_of_hosts"].sql
LATE_REPORT = timedelta(seconds=2)
"""A report takes so long at most; a host that is later is not known to be alive."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The hosts that serve a lambda."""

    alive: int
    """That take tasks, and have not missed a report."""
    free_slots: int
    """Of these, as they reported; some may be reserved for other lambdas."""
    any_alive: bool
    """Some host reports, whatever it serves. False: hosts are not known at all, or all are down."""
    last_name: str | None
    """The host that reported last that it serves the lambda; None: no host did within a day."""
    last_state: str | None
    last_reported_at: datetime | None
    interval: timedelta
    """Between two of its reports."""


async def read_host_labels(store: Store, queue: str) -> list[tuple[str, frozenset[str]]]:
    """Return the live hosts that serve a queue without labels, with what they say of themselves.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await select_text(store, _LABELS, {"lambda": queue})
    return [(row["name"], frozenset(row["labels"] or ())) for row in rows]


async def read_serving(store: Store, lambda_name: str) -> Serving:
    """Return which hosts serve a lambda, or a version of one (NAME@VERSION).

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    base, version, domain, labels = QueueName.parse(lambda_name)
    pinned = "" if domain or labels else version
    asked = {"lambda": lambda_name, "base": base, "version": pinned, "late": LATE_REPORT}
    (row,) = await select_text(store, _QUERY, asked)
    return Serving(
        row["alive"],
        row["free_slots"],
        row["any_alive"],
        row["name"],
        row["state"],
        row["reported_at"],
        row["report_interval"] or timedelta(),
    )


async def count_alive(store: Store, queue: str) -> int:
    """Return how many live hosts say that they serve just this queue.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {"lambda": queue, "base": queue, "version": "", "late": LATE_REPORT}
    (row,) = await select_text(store, _QUERY, asked)
    return int(row["alive"])
