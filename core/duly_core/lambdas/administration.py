"""What people do to a registered lambda: look at it, give it to another owner, go back to a version, delete it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from duly_core.errors import DulyError
from duly_core.lambdas.declarations import pinned_name
from duly_core.lambdas.live_tasks import count_live
from duly_core.lambdas.ramps import Ramp
from duly_core.lambdas.store import POLICY, SELECT, RegisteredLambda, follow, lock_registry, registered
from duly_core.postgres.channels import NEW_LAMBDA_CHANNEL
from duly_core.postgres.pool import Connection, Store

_QUEUES = "(name = %(name)s or starts_with(name, %(name)s || '@'))"
"""The lambda, and the queues of its versions."""

_GET = f"{SELECT} where {_QUEUES} order by name"
_VERSIONS = """
select version, registered_at, updated_at, registered_by, was_in_force
from lambda_declaration where name = %(name)s order by updated_at desc, version
"""
_GONE = (
    "select name, owner, version, revision, deleted_at, deleted_by from deleted_lambda where name = %(name)s"
)
_TRANSFER = f"update lambda set owner = %(owner)s, revision = revision + 1 where {_QUEUES}"  # noqa: S608 (as above)
_ROLL_BACK = f"""
update lambda
set {", ".join(f"{name} = noted.{name}" for name in POLICY if name not in ("name", "owner"))},
    updated_at = duly_now(), revision = lambda.revision + 1
from lambda_declaration as noted
where lambda.name = %(name)s and noted.name = %(name)s and noted.version = %(version)s
returning lambda.name
"""  # noqa: S608 (as above)
_IN_FORCE = (
    "update lambda_declaration set was_in_force = true where name = %(name)s and version = %(version)s"
)
_HAS_QUEUE = "select name from lambda where name = %(queue)s"
_PUT_RAMP = """
insert into lambda_ramp (lambda, to_version, permille, changed_at)
values (%(name)s, %(version)s, %(permille)s, duly_now())
on conflict (lambda) do update
set to_version = excluded.to_version, permille = excluded.permille, changed_at = excluded.changed_at
"""
_END_RAMP = "delete from lambda_ramp where lambda = %(name)s"
_RAMP_TO = "select lambda as name from lambda_ramp where lambda || '@' || to_version = %(name)s"
_CHANGED = "update lambda set revision = revision + 1 where name = %(name)s"
_NAMES = f"select name from lambda where {_QUEUES} union select name from deleted_lambda where {_QUEUES} order by name"  # noqa: S608 (as above)
_TABLES = "select count(*) as tables from time_table where lambda = %(name)s or starts_with(lambda, %(name)s || '@')"
_DELETE_TABLES = "delete from time_table where lambda = %(name)s or starts_with(lambda, %(name)s || '@')"
_DELETE = f"""
with gone as (delete from lambda where {_QUEUES} returning name, owner, version, revision)
insert into deleted_lambda (name, owner, version, revision, deleted_at, deleted_by)
select name, owner, version, revision, duly_now(), %(by)s from gone
on conflict (name) do update
set owner = excluded.owner, version = excluded.version, revision = excluded.revision,
    deleted_at = excluded.deleted_at, deleted_by = excluded.deleted_by
"""  # noqa: S608 (as above)
# Queues of labels come back with their lambda, for which they must be known.
_RESTORE = f"delete from deleted_lambda where {_QUEUES} and (name = %(name)s or strpos(name, ':') = 0) returning name"  # noqa: S608 (as above)


class UnknownLambdaError(DulyError):
    """No such lambda is registered."""


class RevisionError(DulyError):
    """The lambda was changed since it was read; `revision` is the one now."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"its revision is {revision} now")
        self.revision = revision


class UnknownVersionError(DulyError):
    """No host declared this version of the lambda, or so long ago that it was forgotten."""


class UnknownQueueError(DulyError):
    """No host declared that it serves tasks that are pinned to this version of the lambda."""


class RampedError(DulyError):
    """The ramp of a lambda sends tasks to this version of it."""


@dataclass(frozen=True, slots=True)
class DeclaredVersion:
    """A version of a lambda that hosts declared."""

    version: str
    first_declared_at: datetime
    declared_at: datetime
    """The last time, to a minute."""
    declared_by: str
    was_in_force: bool


@dataclass(frozen=True, slots=True)
class DeletedLambda:
    """A lambda that was deleted."""

    name: str
    owner: str
    version: str
    revision: int
    deleted_at: datetime
    deleted_by: str


@dataclass(frozen=True, slots=True)
class LambdaDetail:
    """All that is known about a lambda."""

    in_force: RegisteredLambda | None
    versions: Sequence[DeclaredVersion]
    """Those that were declared last before the others."""
    pinned: Sequence[str]
    """The names of the queues of its versions."""
    deleted: DeletedLambda | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a lambda has, or had when it was deleted."""

    pending: int
    running: int
    counts_are_complete: bool
    """False: there may be more live tasks."""
    time_tables: int
    queues: Sequence[str]
    """The lambda, if it was there, and the queues of its versions."""
    deleted: bool


async def get_lambda(store: Store, name: str) -> LambdaDetail | None:
    """Return all that is known about a lambda; None: it never existed.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    async with store.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_GET.encode(), {"name": name})
        found = {row["name"]: registered(row) for row in await cursor.fetchall()}
        await cursor.execute(_VERSIONS, {"name": name})
        versions = [
            DeclaredVersion(
                row["version"],
                row["registered_at"],
                row["updated_at"],
                row["registered_by"],
                row["was_in_force"],
            )
            for row in await cursor.fetchall()
        ]
        await cursor.execute(_GONE, {"name": name})
        row = await cursor.fetchone()
    deleted = DeletedLambda(**row) if row else None
    if name not in found and deleted is None:
        return None
    return LambdaDetail(found.pop(name, None), versions, list(found), deleted)


async def transfer(store: Store, name: str, owner: str, expected_revision: int | None) -> None:
    """Give a lambda to another owner.

    Raises:
        UnknownLambdaError, RevisionError: nothing was changed.
        StoreUnavailableError: the outcome is unknown.
    """
    async with store.connection() as connection, connection.transaction():
        await _locked(connection, name, expected_revision)
        await connection.execute(_TRANSFER.encode(), {"name": name, "owner": owner})
        await _tell(connection)


async def roll_back(store: Store, name: str, version: str, expected_revision: int | None) -> None:
    """Put a version in force that hosts declared, as they declared it last. Versions that were in force stay out.

    Raises:
        UnknownLambdaError, UnknownVersionError, RevisionError: nothing was changed.
        StoreUnavailableError: the outcome is unknown.
    """
    wanted = {"name": name, "version": version}
    async with store.connection() as connection, connection.transaction():
        await _locked(connection, name, expected_revision)
        cursor = await connection.execute(_ROLL_BACK.encode(), wanted)
        if await cursor.fetchone() is None:
            raise UnknownVersionError(version)
        await connection.execute(_IN_FORCE, wanted)
        await follow(connection, [name])
        await _tell(connection)


async def put_ramp(store: Store, name: str, ramp: Ramp | None, expected_revision: int | None) -> None:
    """Send a part of the new tasks of a lambda to one of its versions. None: it has no ramp any more.

    Raises:
        UnknownLambdaError, UnknownQueueError, RevisionError: nothing was changed.
        StoreUnavailableError: the outcome is unknown.
    """
    async with store.connection() as connection, connection.transaction():
        await _locked(connection, name, expected_revision)
        if ramp is None:
            await connection.execute(_END_RAMP, {"name": name})
        elif await _one(connection, _HAS_QUEUE, {"queue": pinned_name(name, ramp.version)}) is None:
            raise UnknownQueueError(ramp.version)
        else:
            await connection.execute(_PUT_RAMP, {"name": name} | ramp._asdict())
        await connection.execute(_CHANGED, {"name": name})
        await _tell(connection)


async def delete(
    store: Store,
    name: str,
    deleted_by: str,
    *,
    despite_tasks: bool,
    dry_run: bool,
    expected_revision: int | None,
) -> Deletion:
    """Delete a lambda, the queues of its versions and its time tables, unless it has live tasks; count these.

    One whose tasks could not all be counted has some. One that is deleted already is only counted. A call to schedule that is under way may still write tasks: they stay until
    they are cancelled.

    Raises:
        UnknownLambdaError, RevisionError, RampedError: nothing was changed.
        StoreUnavailableError: the outcome is unknown.
    """
    async with store.connection() as connection, connection.transaction():
        is_there = True
        try:
            await _locked(connection, name, expected_revision)
        except UnknownLambdaError:
            is_there = False
            if await _one(connection, _GONE, {"name": name}) is None:
                raise
        live = await count_live(connection, name)
        running = sum(live.by_status.get(status, 0) for status in ("claimed", "processing"))
        pending = sum(live.by_status.values()) - running
        tables = await _one(connection, _TABLES, {"name": name}) or {}
        cursor = await connection.execute(_NAMES.encode(), {"name": name})
        queues = [row[0] for row in await cursor.fetchall()]
        has_tasks = bool(pending or running or not live.is_complete)
        deletes = is_there and not dry_run and (despite_tasks or not has_tasks)
        if deletes:
            if await _one(connection, _RAMP_TO, {"name": name}) is not None:
                raise RampedError(name)
            await connection.execute(_END_RAMP, {"name": name})
            await connection.execute(_DELETE.encode(), {"name": name, "by": deleted_by})
            await connection.execute(_DELETE_TABLES, {"name": name})
            await _tell(connection)
    is_deleted = deletes or not is_there
    return Deletion(pending, running, live.is_complete, tables["tables"], queues, is_deleted)


async def restore(store: Store, name: str) -> bool:
    """Let hosts register a deleted lambda again, whatever version they have; return whether it was deleted.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await lock_registry(connection)
        cursor = await connection.execute(_RESTORE.encode(), {"name": name})
        return await cursor.fetchone() is not None


async def _locked(connection: Connection, name: str, expected_revision: int | None) -> None:
    await lock_registry(connection)
    row = await _one(connection, "select revision from lambda where name = %(name)s", {"name": name})
    if row is None:
        raise UnknownLambdaError(name)
    if expected_revision is not None and row["revision"] != expected_revision:
        raise RevisionError(row["revision"])


async def _one(connection: Connection, query: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query.encode(), parameters)
        return await cursor.fetchone()


async def _tell(connection: Connection) -> None:
    await connection.execute("select pg_notify(duly_channel(%s), '')", (NEW_LAMBDA_CHANNEL,))
