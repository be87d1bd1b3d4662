"""What is read when a run is over: the journal, the audit, the tables."""

import asyncio
from dataclasses import dataclass

from tests.chaos import audit
from tests.chaos.history import (
    SECOND,
    EdgeRow,
    EventRow,
    Execution,
    FileRead,
    FileSent,
    FinalRow,
    GraphRow,
    Limits,
    NodeRow,
    PassedOver,
    SessionRow,
    StaleWrite,
    TickRow,
    TimeTableRow,
    Transition,
    UseRow,
)
from tests.chaos.journal_reader import read_journal
from tests.chaos.plan import Plan
from tests.chaos.scarce import CAPACITIES, RATES
from tests.chaos.stack import System
from tests.chaos.topology import ENQUEUE_TIMEOUT, FILE_GRACE, SHORT_LEASE

_LIVENESS_S = 40
"""Leases, an enqueue timeout, a connection that is half open (25 s until it is noticed), backoffs of at most 2 s."""
_LEASES = 2
"""So many of them are in it: none is reclaimed for one lease after Postgres became another server."""
_START_S = 6
"""The poll interval, which finds what no notification told of, and room for callback processes that are just replaced."""
_FEWEST_TASKS = 0.95
"""Of those that were to be sent."""
_FEWEST_GRAPHS, _FEWEST_TICKS, _FEWEST_CHANGES, _FEWEST_FILES = 0.2, 0.5, 0.1, 0.1
"""A second."""
_FEWEST_FAULTS = 0.5
"""Of the planned ones: some find nothing to break."""


_SECONDS_A_SAMPLE = 10
"""One in two is tried; Postgres is away for a part of the time."""
_CONNECTIONS = 10
"""To Postgres for each pair that talks: a pool, and what a cut connection leaves for a while."""
_PROCESSES = 6
"""For each part: those that linger or are just being replaced, and isolated ones for suspects and lambdas kept apart."""


@dataclass(frozen=True, slots=True)
class Collected:
    """All of it."""

    executions: tuple[Execution, ...]
    unreadable: tuple[str, ...]
    transitions: tuple[Transition, ...]
    final: tuple[FinalRow, ...]
    sessions: tuple[SessionRow, ...]
    graphs: tuple[GraphRow, ...]
    nodes: tuple[NodeRow, ...]
    edges: tuple[EdgeRow, ...]
    time_tables: tuple[TimeTableRow, ...]
    ticks: tuple[TickRow, ...]
    uses: tuple[UseRow, ...]
    passed_over: tuple[PassedOver, ...]
    stale_writes: tuple[StaleWrite, ...]
    file_reads: tuple[FileRead, ...]
    files_sent: tuple[FileSent, ...]
    events: tuple[EventRow, ...]


async def collect(system: System) -> Collected:
    """Read it all, from the Postgres that still runs."""
    dsn = system.postgres.dsn
    journal = await asyncio.to_thread(read_journal, system.journal)
    return Collected(
        journal.executions,
        journal.unreadable,
        await asyncio.to_thread(audit.read_transitions, dsn, audit.boot_minus_wall_ns()),
        await asyncio.to_thread(audit.read_final_rows, dsn),
        await asyncio.to_thread(audit.read_sessions, dsn),
        *await asyncio.to_thread(audit.read_graphs, dsn),
        *await asyncio.to_thread(audit.read_ticks, dsn),
        await asyncio.to_thread(audit.read_uses, dsn),
        await asyncio.to_thread(audit.read_passed_over, dsn),
        await asyncio.to_thread(audit.read_stale_writes, dsn, audit.boot_minus_wall_ns()),
        journal.reads,
        journal.sent,
        await asyncio.to_thread(audit.read_events, dsn),
    )


def limits_of(plan: Plan, rate: float) -> Limits:
    """What this plan promises."""
    lease_ns, short_ns = (int(lease.total_seconds() * SECOND) for lease in (plan.lease, SHORT_LEASE))
    jumps = [fault.amount for fault in plan.faults if fault.kind == "clock_jump"]
    ahead_s = max([*jumps, 0])
    topology = plan.topology
    clients = len(topology.links()) + 1  # and the HSC of stale callers
    workers = topology.hosts * topology.executors * (2 + topology.processes)
    return Limits(
        claim_timeout_ns=lease_ns,
        heartbeat_timeout_ns=lease_ns,
        enqueue_timeout_ns=int(ENQUEUE_TIMEOUT.total_seconds() * SECOND),
        # What was written while the clock was ahead is looked at so much later once it is back.
        liveness_ns=int((_LIVENESS_S + ahead_s) * SECOND) + _LEASES * (lease_ns - short_ns),
        least_tasks=int(plan.seconds * rate * _FEWEST_TASKS),
        least_faults={"": int(len(plan.faults) * _FEWEST_FAULTS)},
        least_graphs=int(plan.seconds * _FEWEST_GRAPHS),
        least_ticks=int(plan.seconds * _FEWEST_TICKS),
        least_changes=int(plan.seconds * _FEWEST_CHANGES),
        least_samples=int(plan.seconds / _SECONDS_A_SAMPLE),
        least_seen=(plan.topology.hosts - plan.topology.joining)
        * plan.topology.executors
        * plan.topology.processes,
        start_ns=int(_START_S * SECOND) if plan.punctual else 0,
        most_connections=_CONNECTIONS * clients,
        most_processes=_PROCESSES * (clients + workers) + _CONNECTIONS * clients,
        file_grace_ns=int(FILE_GRACE.total_seconds() * SECOND),
        least_files=int(plan.seconds * _FEWEST_FILES),
        capacities=CAPACITIES,
        paces={
            name: (int(SECOND * rate.period.total_seconds() / rate.units), rate.burst)
            for name, rate in RATES.items()
        },
        longest_wait_ns=int((20 + max(map(abs, jumps), default=0)) * SECOND),
    )
