"""After a restore: raise fences above all that were handed out before it, and void the claims that came back.

A restored store forgot the claims made since its backup, and would give out their fences a second time.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from duly_core.errors import DulyError, SettingsError, StoreUnavailableError
from duly_core.postgres.dsn import describe
from duly_core.postgres.pool import application_name, connect_arguments
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import TRANSITIONS, load

_MOST = 2**31 - 1_000_000
"""A fence is an int4, and each run after a raise takes one more."""

_REASON = "the store was restored from a backup"

# Seconds since 2026 are above each fence that was handed out, whichever backup was restored, and however often, unless a
# task was claimed more than once a second ever since.
_LOOK = """
select
    greatest(
        extract(epoch from duly_now() - timestamptz '2026-01-01 00:00+00')::int8,
        (select coalesce(max(fence), 0) + 1 from task_assoc),
        (select coalesce(max(task.fence), 0) + 1 from dead_letter join task using (task_id)),
        %(above)s::int8 + 1
    ) as floor,
    (select count(*) from task_assoc) as live,
    (select count(*) from dead_letter) as dead,
    (select count(*) from task_assoc where status in ('claimed', 'processing')) as held,
    (select count(*) from task_assoc where status in ('claimed', 'processing') and next_trigger_at > duly_now()) as leased,
    (
        select count(*) from pg_stat_activity
        where datname = current_database() and application_name = %(application)s and pid <> pg_backend_pid()
    ) as connected
"""

_FENCES = load("upkeep/fences.sql")
_VOID = _FENCES["void_tokens"].sql

# Whole tables are read, however long it takes: the settings of a session of the store are for other statements.
_WHOLE_TABLES = "set local enable_seqscan = on; set local enable_hashjoin = on"

_RAISE = (
    "update task_assoc set fence = %(floor)s",
    "update task set fence = %(floor)s from dead_letter where dead_letter.task_id = task.task_id and task.fence is not null",
    # etags of the lost time must not fit what is written from now on
    "update time_table set revision = greatest(revision + 1, %(floor)s)",
    # servers that kept running read grants and gates again
    "update access_version set version = greatest(version + 1, (extract(epoch from duly_now()) * 1000)::int8)",
    "update gate_version set version = greatest(version + 1, (extract(epoch from duly_now()) * 1000)::int8)",
)

_LIFT = """
create or replace function duly_lift_fence() returns trigger language plpgsql as '
begin
    new.fence := tg_argv[0]::int4;
    return new;
end'
"""

# A task that the restore lost may be scheduled again under its old id, and was claimed before. Ids begin with their time.
_LIFT_OLD_IDS = """
create or replace trigger task_is_from_before_a_restore before insert on task_assoc
    for each row when (new.fence < {floor} and new.task_id < {first_id}) execute function duly_lift_fence({floor})
"""


class InUseError(DulyError):
    """Services use the store, or did until a moment ago."""


@dataclass(frozen=True, slots=True)
class FenceRaise:
    """What a raise of the fences changes, or would change."""

    floor: int
    """The fence of all tasks afterwards; the next run of each has one more."""
    live: int
    """Tasks that did not end."""
    dead: int
    """Dead letters."""
    held: int
    """Claims that become void."""
    leased: int
    """Of the claims, those whose lease is not over: their holders may run them now."""
    connected: int
    """Connections of services."""


def raise_fences(
    settings: StoreSettings, *, above: int = 0, dry_run: bool = False, force: bool = False
) -> FenceRaise:
    """Raise all fences in one transaction, and release all claims uncharged; no former holder is listened to any more.

    Args:
        settings: where the store is; its user must own the tables.
        above: the highest fence that somebody else saw, if it is known to be higher than usual.
        dry_run: change nothing.
        force: do it while services use the store.

    Raises:
        InUseError: services are connected, or claims have leases that are not over.
        StoreUnavailableError: Postgres cannot be reached, or somebody holds the tables; nothing was changed.
        SettingsError: the user may not, there is no schema of Duly, or fences cannot be raised so far.
    """
    where = describe(settings.dsn)
    try:
        arguments = connect_arguments(settings) | {"application_name": "duly raise-fences"}
        with psycopg.connect(**arguments) as connection:
            connection.execute("set local statement_timeout = 0; set local lock_timeout = '10s'")
            connection.execute("set local idle_in_transaction_session_timeout = 0")
            found = _look(connection, above, application_name(settings))
            if dry_run:
                return found
            if not force:
                _refuse_if_in_use(found)
            _release_all(connection)
            _raise(connection, found.floor)
            return found
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"cannot raise fences at {where}: {_line(error)}; connect as the user who migrates"
        ) from error
    except psycopg.errors.UndefinedTable as error:
        raise SettingsError(
            f"cannot raise fences at {where}: {_line(error)}; restore the backup first"
        ) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {where} cannot be changed now: {_line(error)}") from error


def _look(connection: psycopg.Connection, above: int, application: str) -> FenceRaise:
    ((*values,),) = connection.execute(_LOOK, {"above": above, "application": application})
    found = FenceRaise(*values)
    if found.floor > _MOST:
        raise SettingsError(f"fences cannot be raised to {found.floor}: the highest possible is {_MOST}")
    return found


def _refuse_if_in_use(found: FenceRaise) -> None:
    """Raise InUseError if a service works on the store."""
    if found.connected:
        raise InUseError(
            f"services are connected ({found.connected} connections): stop all servers and workers first, or use --force"
        )
    if found.leased:
        raise InUseError(
            f"hosts may still run tasks: the leases of {found.leased} claims are not over; stop all workers, "
            "then wait for the leases' end or use --force"
        )


def _release_all(connection: psycopg.Connection) -> None:
    """Hand back what was held at the time of the backup, uncharged, under tokens that nobody knows."""
    held: list[tuple[UUID, UUID, datetime | None]] = connection.execute(_VOID).fetchall()
    if not held:
        return
    held.sort()
    task_ids, tokens, started_at = (list(column) for column in zip(*held, strict=True))
    parameters: dict[str, Any] = {
        "task_ids": task_ids,
        "tokens": tokens,
        "started_at": started_at,
        "reasons": [_REASON] * len(held),
    }
    connection.execute(TRANSITIONS["release"].sql.encode(), parameters)
    # a cancel that was asked for while it ran need not wait for another run
    asked = {"task_ids": task_ids, "only_if_requested": True, "by": None}
    connection.execute(TRANSITIONS["cancel"].sql.encode(), asked)


def _raise(connection: psycopg.Connection, floor: int) -> None:
    connection.execute(_WHOLE_TABLES)
    for statement in _RAISE:
        connection.execute(statement, {"floor": floor} if "floor" in statement else None)
    ((first_id,),) = connection.execute("select duly_first_id(duly_now())")
    connection.execute(_LIFT)
    connection.execute(
        sql.SQL(_LIFT_OLD_IDS).format(floor=sql.Literal(floor), first_id=sql.Literal(str(first_id)))
    )


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
