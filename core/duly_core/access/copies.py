"""Tokens and grants as rows, to copy them from one store to another."""

from dataclasses import dataclass
from datetime import datetime

from duly_core.access.statements import ACCESS
from duly_core.access.store import change_access
from duly_core.postgres.pool import Store

_READ_TOKENS, _READ_GRANTS, _WRITE_TOKENS, _WRITE_GRANTS, _REMOVE_TOKENS, _REMOVE_GRANTS = (
    ACCESS[name].sql
    for name in (
        "token_rows",
        "grant_rows",
        "copy_tokens",
        "copy_grants",
        "remove_other_tokens",
        "remove_other_grants",
    )
)

TokenRow = tuple[bytes, str, str, str, datetime, str, datetime | None, datetime | None]
GrantRow = tuple[str, str, str, datetime, str]


@dataclass(frozen=True, slots=True)
class AccessRows:
    """All tokens, by their SHA-256 and without their secrets, and all grants."""

    tokens: list[TokenRow]
    grants: list[GrantRow]


async def read_access(store: Store) -> AccessRows:
    """Return the tokens and grants of a store.

    Raises:
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection, connection.transaction(), connection.cursor() as cursor:
        await cursor.execute("set transaction isolation level repeatable read read only")
        await cursor.execute(_READ_TOKENS)
        tokens: list[TokenRow] = [(bytes(digest), *rest) for digest, *rest in await cursor.fetchall()]
        await cursor.execute(_READ_GRANTS)
        grants: list[GrantRow] = [(*row,) for row in await cursor.fetchall()]
    return AccessRows(tokens, grants)


async def write_tokens(store: Store, rows: AccessRows) -> int:
    """Add the tokens that are missing, and revoke those that are revoked there; return how many were written.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with change_access(store) as cursor:
        await cursor.execute(_WRITE_TOKENS, _columns(rows.tokens, 8))
        return cursor.rowcount


async def write_access(store: Store, rows: AccessRows) -> tuple[int, int]:
    """Make the tokens and grants of a store what the rows say; return how many tokens and grants were written or removed.

    A token that is revoked there stays revoked.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    written = []
    async with change_access(store) as cursor:
        for remove, write, values, keys in (
            (_REMOVE_TOKENS, _WRITE_TOKENS, _columns(rows.tokens, 8), 1),
            (_REMOVE_GRANTS, _WRITE_GRANTS, _columns(rows.grants, 5), 3),
        ):
            await cursor.execute(remove, values[:keys])
            removed = cursor.rowcount
            await cursor.execute(write, values)
            written.append(removed + cursor.rowcount)
    tokens, grants = written
    return tokens, grants


def _columns(rows: list[TokenRow] | list[GrantRow], number: int) -> list[list[object]]:
    return [[row[place] for row in rows] for place in range(number)]
