"""Tokens and grants, as operators made them. Each change raises the version that servers compare (cache.py)."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import AsyncCursor
from psycopg.rows import TupleRow, dict_row

from duly_core.access.grants import MOST_GRANTS, Grant
from duly_core.access.roles import Role
from duly_core.access.statements import ACCESS
from duly_core.errors import DulyError
from duly_core.lambdas.names import namespace_of
from duly_core.postgres.pool import Store
from duly_core.process.newer_values import known

_CHANGED = b"update access_version set version = version + 1"
_ONE_AT_A_TIME = b"select from access_version for update"


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token, without its secret."""

    token_id: str
    principal: str
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


async def add_token(
    store: Store,
    digest: bytes,
    token_id: str,
    principal: str,
    *,
    note: str = "",
    lifetime: timedelta | None = None,
    created_by: str = "",
) -> None:
    """Store a token by its SHA-256; nobody can tell the token from that."""
    await _run(
        store,
        """
        insert into access_token (digest, token_id, principal, note, created_at, created_by, expires_at)
        values (%s, %s, %s, %s, duly_now(), %s, duly_now() + %s::interval)
        """,
        (digest, token_id, principal, note, created_by, lifetime),
    )


async def list_tokens(store: Store) -> list[TokenInfo]:
    """Every token that was made and is not forgotten, the newest first."""
    async with store.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select token_id, principal, note, created_at, created_by, expires_at, revoked_at"
            " from access_token order by created_at desc, token_id"
        )
        return [TokenInfo(**row) for row in await cursor.fetchall()]


async def revoke_tokens(store: Store, token_ids: Sequence[str]) -> list[str]:
    """Refuse tokens from now on; return the ids of those that were not revoked before."""
    async with (
        store.connection() as connection,
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        await cursor.execute(_CHANGED)
        await cursor.execute(
            "update access_token set revoked_at = duly_now() where token_id = any(%s) and revoked_at is null"
            " returning token_id",
            (list(token_ids),),
        )
        return sorted(token_id for (token_id,) in await cursor.fetchall())


class TooManyGrantsError(DulyError):
    """A principal would have more grants in one namespace than any may have; nothing was written."""

    def __init__(self, principal: str, namespace: str) -> None:
        super().__init__(principal, namespace)
        self.principal = principal
        self.namespace = namespace


async def add_grants(store: Store, grants: Sequence[Grant], granted_by: str = "") -> int:
    """Write grants, and return how many are new.

    Raises:
        TooManyGrantsError: one principal would have more than MOST_GRANTS in one namespace.
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    rows = sorted({(grant.principal, str(grant.role), grant.pattern) for grant in grants})
    asked = {(grant.principal, namespace_of(grant.pattern)) for grant in grants}
    async with store.connection() as connection, connection.transaction(), connection.cursor() as cursor:
        await cursor.execute(_ONE_AT_A_TIME)
        await cursor.execute(_ADD, (granted_by, *[[row[place] for row in rows] for place in range(3)]))
        added = cursor.rowcount
        await cursor.execute(
            "select principal, pattern from role_grant where principal = any(%s)",
            ([principal for principal, _ in asked],),
        )
        counts = Counter((principal, namespace_of(pattern)) for principal, pattern in await cursor.fetchall())
        for each in sorted(asked):
            if added and counts[each] > MOST_GRANTS:
                raise TooManyGrantsError(*each)
        if added:
            await cursor.execute(_CHANGED)
    return added


_ADD = ACCESS["add_grants"].sql


async def remove_grants(store: Store, grants: Sequence[Grant]) -> int:
    """Take grants away, and return how many there were."""
    rows = sorted({(grant.principal, str(grant.role), grant.pattern) for grant in grants})
    return await _run(
        store,
        """
        delete from role_grant
        using unnest(%s::text[], %s::text[], %s::text[]) as asked (principal, role, pattern)
        where role_grant.principal = asked.principal and role_grant.role = asked.role
            and role_grant.pattern = asked.pattern
        """,
        tuple([row[place] for row in rows] for place in range(3)),
    )


async def list_grants(store: Store, *principals: str) -> list[Grant]:
    """Every grant, or those of some principals."""
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(
            "select principal, role, pattern from role_grant"
            " where %(principals)s::text[] = '{}' or principal = any(%(principals)s) order by 1, 2, 3",
            {"principals": list(principals)},
        )
        return [
            Grant(name, role, pattern)
            for name, text, pattern in await cursor.fetchall()
            if (role := known(Role, text))
        ]


@asynccontextmanager
async def change_access(store: Store) -> AsyncIterator[AsyncCursor[TupleRow]]:
    """Change tokens or grants in one transaction, one change at a time; servers read them all again."""
    async with (
        store.connection() as connection,
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        await cursor.execute(_ONE_AT_A_TIME)
        yield cursor
        await cursor.execute(_CHANGED)


async def _run(store: Store, statement: str, parameters: tuple[object, ...]) -> int:
    async with (
        store.connection() as connection,
        connection.transaction(),
        connection.cursor() as cursor,
    ):
        await cursor.execute(_ONE_AT_A_TIME)
        await cursor.execute(statement.encode(), parameters)
        changed = cursor.rowcount
        if changed:  # each change has every server read all tokens and grants
            await cursor.execute(_CHANGED)
        return changed
