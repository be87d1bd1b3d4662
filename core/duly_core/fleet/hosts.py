"""Keeps what Controllers report of their hosts: Executors, slots and lambdas."""

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from duly_core.fleet.statements import FLEET
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Store, fetch

MISSED_REPORTS = 3
"""A host that has not reported for so many of its intervals is silent."""


class HostState(enum.StrEnum):
    """What the last report of a host, and its age, say."""

    ALIVE = "alive"
    DRAINING = "draining"
    """It takes no more tasks, and lets those that run end."""
    STOPPED = "stopped"
    """It said that it ended."""
    SILENT = "silent"
    """It did not say so, and has not reported for three of its intervals."""


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """An Executor process."""

    executor_id: str
    pid: int
    version: str
    processes: int
    slots: int
    """Of each callback process."""
    busy_slots: int | None
    """None: unknown."""
    started_at: str
    """ISO 8601; empty: unknown."""
    lambda_set: int
    labels: Sequence[str] = ()
    """What it says of its host."""
    zone: str = ""
    """Where its host is; empty: it has no zone."""

    def as_json(self) -> dict[str, Any]:
        """What is stored; a release that knows no zones reads it, too, unless there is one."""
        stored = asdict(self)
        if not self.zone:
            del stored["zone"]
        return stored


@dataclass(frozen=True, slots=True)
class ServedLambda:
    """A lambda that Executors of a host serve."""

    name: str
    version: str
    lambda_set: int


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a Controller says of its host."""

    host_id: str
    name: str
    version: str
    queue_backend: str
    started_at: datetime
    interval: timedelta
    draining: bool
    stopped: bool
    executors: Sequence[ExecutorReport]
    lambdas_digest: bytes
    settings_age: timedelta | None = None
    """How long ago the live settings that it has were read from the store; None: it has none."""
    clock_ahead: timedelta | None = None
    """By how much its wall clock is ahead of the store's, as it measured; negative: behind. None: unknown."""
    pool: str = ""
    """Whose worker it says it is; empty: of no pool."""


@dataclass(frozen=True, slots=True)
class StoredHost:
    """A host as it was reported last."""

    report: HostReport
    state: HostState
    reported_at: datetime
    reported_by: str
    lambda_count: int
    """Of those that the caller may see."""
    lambdas: Sequence[ServedLambda] = field(default=())


class Verdict(enum.Enum):
    """What became of a report."""

    WRITTEN = "written"
    LAMBDAS_WANTED = "lambdas wanted"
    """Written, but the store has not the lambdas that it means."""
    NOT_YOURS = "not yours"
    """Another principal reports this host."""


class Reported(NamedTuple):
    """A report that was taken, or refused."""

    verdict: Verdict
    at: datetime | None
    """The store's clock then; None: it was refused."""
    is_to_drain: bool = False
    """The host is to take no more tasks and end."""


_REPORT = FLEET["report_host"]

_REPORT_LAMBDAS = FLEET["report_host_lambdas"]


async def report_host(
    store: Store, report: HostReport, lambdas: Sequence[ServedLambda] | None, reported_by: str
) -> Reported:
    """Write a host as it is now, with its lambdas if they are given.

    Raises:
        StoreUnavailableError: the outcome is unknown; report again.
    """
    parameters: dict[str, Any] = {
        "host_id": report.host_id,
        "name": report.name,
        "version": report.version,
        "queue_backend": report.queue_backend,
        "started_at": report.started_at,
        "interval": report.interval,
        "draining": report.draining,
        "stopped": report.stopped,
        "reported_by": reported_by,
        "executors": Jsonb([each.as_json() for each in report.executors]),
        "digest": report.lambdas_digest,
        "settings_age": report.settings_age,
        "clock_ahead": report.clock_ahead,
        "pool": report.pool,
    }
    if lambdas is None:
        rows = await store.run(_REPORT, parameters)
        return _reported(rows)
    async with store.connection() as connection, connection.transaction():
        rows = await fetch(connection, _REPORT, parameters)
        if not rows:
            return Reported(Verdict.NOT_YOURS, None)
        cursor = connection.cursor(binary=True)
        await cursor.execute(
            _REPORT_LAMBDAS.sql,
            {
                "host_id": report.host_id,
                "lambdas": texts([each.name for each in lambdas]),
                "sets": int2s([each.lambda_set for each in lambdas]),
                "versions": texts([each.version for each in lambdas]),
                "digest": report.lambdas_digest,
            },
        )
    return Reported(Verdict.WRITTEN, rows[0][0], rows[0][2])


def _reported(rows: Sequence[Any]) -> Reported:
    if not rows:
        return Reported(Verdict.NOT_YOURS, None)
    ((at, has_lambdas, is_to_drain),) = rows
    return Reported(Verdict.WRITTEN if has_lambdas else Verdict.LAMBDAS_WANTED, at, is_to_drain)
