"""Whether a service can work with the store as it is: the schema's version and digest, and the rights of its user."""

from enum import Enum

import psycopg

from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.dsn import describe
from duly_core.postgres.pool import connect_arguments_now
from duly_core.postgres.rights import missing_rights
from duly_core.postgres.schema.digest import Stamp, source_digest
from duly_core.postgres.schema.steps import NEEDED, NEWEST
from duly_core.postgres.settings import StoreSettings


class SchemaState(Enum):
    """How the schema compares with what this release needs."""

    MISSING = "missing"
    OLDER = "older"
    OTHER = "other"
    """It has the version of this release's, and another build made it, or it was never compared."""
    CONTRACTED = "contracted"
    """A newer release has taken away what this one uses."""
    USABLE = "usable"
    """It is this release's, or a newer one's: the older release works on what expand steps made."""


async def look_at_schema(settings: StoreSettings) -> SchemaState:
    """Return the state of the schema.

    Raises:
        StoreUnavailableError: Postgres cannot be reached.
        SettingsError: the user may not see the schema, or has another behind a pooler.
    """
    try:
        async with await _connect(settings) as connection:
            if settings.pooled and settings.schema_name:
                await _check_search_path(connection, settings)
            cursor = await connection.execute(
                "select version_num, obj_description('alembic_version'::regclass) from alembic_version"
            )
            row = await cursor.fetchone()
    except psycopg.errors.UndefinedTable:
        return SchemaState.MISSING
    except psycopg.errors.InsufficientPrivilege as error:
        user = error.diag.message_primary or "a right is missing"
        raise SettingsError(
            f"the user of store.dsn may not read the store at {describe(settings.dsn)}: {user}; "
            "run `duly migrate --roles`, and grant the service's role to the user (grant duly_frontend to ...)"
        ) from error
    except psycopg.OperationalError as error:
        raise _unreachable(settings, error) from error
    if row is None:
        return SchemaState.MISSING
    version, comment = row
    if version < NEEDED:
        return SchemaState.OLDER
    stamp = Stamp.read(comment)
    if version > NEWEST:
        is_gone = stamp is not None and stamp.contracted > NEWEST
        return SchemaState.CONTRACTED if is_gone else SchemaState.USABLE
    is_ours = stamp is not None and stamp.source == source_digest()
    return SchemaState.USABLE if is_ours else SchemaState.OTHER


async def _check_search_path(connection: psycopg.AsyncConnection, settings: StoreSettings) -> None:
    """Sessions of a pooler are set to nothing: the wrong search path would lead to another store.

    Raises:
        SettingsError: it is another schema's.
    """
    cursor = await connection.execute("select current_schema(), current_user::text, current_database()::text")
    rows = await cursor.fetchall()
    for schema, user, database in rows:
        if schema != settings.schema_name:
            raise SettingsError(
                f"store.schema_name is {settings.schema_name}, and behind the pooler the user {user} has the schema {schema}: set it "
                f'there: alter role "{user}" in database "{database}" set search_path = {settings.schema_name}'
            )


async def check_store(settings: StoreSettings, role: str | None) -> None:
    """Check that the schema is usable, and that the user has all rights of `role`.

    Raises:
        StoreUnavailableError: Postgres cannot be reached.
        SettingsError: the schema or a right is missing; says which command helps.
    """
    state = await look_at_schema(settings)
    where = describe(settings.dsn)
    if state is SchemaState.MISSING:
        raise SettingsError(
            f"the store at {where} has no schema of Duly: run `duly migrate`, or set store.migrate = true"
        )
    if state is SchemaState.OLDER:
        raise SettingsError(
            f"the schema of the store at {where} is older than this release, which needs {NEEDED}: "
            "run `duly migrate`, or set store.migrate = true"
        )
    if state is SchemaState.OTHER:
        raise SettingsError(
            f"the schema of the store at {where} says that it is {NEWEST}, but not this build made it: run `duly migrate`, "
            "which compares it, or set store.migrate = true"
        )
    if state is SchemaState.CONTRACTED:
        raise SettingsError(
            f"the schema of the store at {where} is a newer release's, which has taken away what this release uses: "
            "run the newer release here, too"
        )
    if role is None:
        return
    try:
        async with await _connect(settings) as connection:
            user, lacking = await missing_rights(connection, role)
    except psycopg.OperationalError as error:
        raise _unreachable(settings, error) from error
    if lacking:
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        raise SettingsError(
            f"the user {user} of the store at {where} lacks rights: {shown}; "
            f'run `duly migrate --roles`, and then in Postgres: grant {role} to "{user}"'
        )


async def _connect(settings: StoreSettings) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(**await connect_arguments_now(settings), autocommit=True)


def _unreachable(settings: StoreSettings, error: psycopg.Error) -> StoreUnavailableError:
    reason = str(error).strip().partition("\n")[0]
    return StoreUnavailableError(f"the store at {describe(settings.dsn)} cannot be reached: {reason}")
