"""What `duly migrate` would do to a store: which steps, with which locks, for how long. Nothing is changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.admin_connection import admin_connection
from duly_core.postgres.dsn import describe
from duly_core.postgres.schema.comparison import cannot_compare, differences, stamp_of
from duly_core.postgres.schema.migrate import version_of
from duly_core.postgres.schema.processes import older_processes
from duly_core.postgres.schema.steps import FIRST, STEPS, Kind, Lock, Step, needed, newest

ROWS_A_SECOND = {Kind.EXPAND: 100_000, Kind.INDEX: 100_000, Kind.BACKFILL: 5_000, Kind.CONTRACT: 100_000}
"""How many rows a step of a kind reads or changes: `benchmarks/migration.py` on two busy cores, rounded down."""

_SHORT = timedelta(milliseconds=500)
"""What a step takes that reads no table, with the comparison afterwards."""


class State(StrEnum):
    """How a store's schema compares with what this release needs."""

    USABLE = "usable"
    MISSING = "missing"
    OLDER = "older"
    NEWER = "newer"
    """A newer release's, on which this release works."""
    CONTRACTED = "contracted"
    """A newer release's, which has taken away what this release uses."""
    OTHER = "other"
    """It has a version of this release, and differs."""
    TOO_OLD = "too old"
    """From before the base release: there is no way on."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that would run."""

    version: str
    title: str
    kind: Kind
    locks: tuple[Lock, ...]
    rows: int
    """Of the tables that it reads in whole, as Postgres estimates."""
    estimated_time: timedelta
    """Without the time in which it waits for others' locks."""
    rewrites_a_table: bool
    older_release_works: bool
    waits_for: tuple[str, ...]
    """Processes of older releases, in words: a contract step does not run while they are alive."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is there, and what would run."""

    state: State
    version: str | None
    needed: str
    newest: str
    differences: tuple[str, ...]
    """In words, from what its version should be."""
    steps: tuple[PlannedStep, ...]


def plan(dsn: str, *, steps: Sequence[Step] = STEPS) -> Plan:
    """Return what `duly migrate` would do.

    Raises:
        StoreUnavailableError: Postgres cannot be reached.
        SettingsError: the user may not make a schema (it is rolled back) to compare with.
    """
    where = describe(dsn)
    try:
        with admin_connection(dsn) as connection:
            made = _plan(connection, tuple(steps))
            connection.rollback()
            return made
    except psycopg.OperationalError as error:
        reason = str(error).strip().partition("\n")[0]
        raise StoreUnavailableError(f"the store at {where} cannot be reached: {reason}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise cannot_compare(dsn, error) from error


def _plan(connection: psycopg.Connection[TupleRow], steps: tuple[Step, ...]) -> Plan:
    version = version_of(connection)
    found: list[str] = []
    missing = [step for step in steps if version is not None and step.version > version]
    if version is None:
        state = State.MISSING
    elif version < FIRST:
        state, missing = State.TOO_OLD, []
    elif version > newest(steps):
        stamp = stamp_of(connection)
        is_gone = stamp is not None and stamp.contracted > newest(steps)
        state = State.CONTRACTED if is_gone else State.NEWER
    else:
        found = differences(connection, version, steps)
        is_there = version >= needed(steps)
        state = State.OTHER if found else State.USABLE if is_there else State.OLDER
    return Plan(
        state,
        version,
        needed(steps),
        newest(steps),
        tuple(found),
        tuple(_planned(connection, step) for step in missing),
    )


def _planned(connection: psycopg.Connection[TupleRow], step: Step) -> PlannedStep:
    rows = sum(_rows(connection, table) for table in step.reads)
    is_contract = step.kind is Kind.CONTRACT
    return PlannedStep(
        version=step.version,
        title=step.title,
        kind=step.kind,
        locks=step.locks,
        rows=rows,
        estimated_time=_SHORT + timedelta(seconds=rows / ROWS_A_SECOND[step.kind]),
        rewrites_a_table=False,  # a test refuses steps that do
        older_release_works=not is_contract,
        waits_for=tuple(older_processes(connection, step.version)) if is_contract else (),
    )


def _rows(connection: psycopg.Connection[TupleRow], table: str) -> int:
    """Return how many rows Postgres expects in a table, which it does not read for this; 0: no such table yet."""
    if connection.execute("select to_regclass(%s)", [table]).fetchone() == (None,):
        return 0
    ((explained,),) = connection.execute(
        sql.SQL("explain (format json) select from {}").format(sql.Identifier(table))
    ).fetchall()
    top: dict[str, Any] = explained[0]["Plan"]
    return int(top["Plan Rows"])


def usable(state: State) -> bool:
    """Return whether services of this release may run on the store."""
    return state in (State.USABLE, State.NEWER)


def can_migrate(state: State) -> bool:
    """Return whether `duly migrate` makes the store usable."""
    return state in (State.MISSING, State.OLDER)
