"""Keep definitions of graphs: named, and with versions that never change."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from duly_core.graphs.statements import GRAPHS
from duly_core.postgres.pool import Store
from duly_core.tasks.store import select_text


class Definition(NamedTuple):
    """A version of a definition."""

    name: str
    version: int
    created_at: datetime
    definition: bytes
    """As the Frontend wrote it; empty in lists, which may be read by many: a definition has megabytes."""
    lambdas: list[str]
    """Those of its nodes: they decide who may see it."""


_PUT = GRAPHS["put_definition"].sql

_GET = GRAPHS["get_definition"].sql

_LIST = GRAPHS["list_definitions"].sql

_TRIES = 5


async def put_definition(
    store: Store, name: str, definition: bytes, lambdas: Collection[str], replaces: int | None = None
) -> tuple[int, bool] | None:
    """Store a definition; return its version, and whether it is new; None: another version is the newest by now.

    `lambdas` are those of its nodes. `replaces` is the newest version (0: none) that the caller was found to have the right
    to replace. Without it any is replaced.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    for _ in range(_TRIES):  # somebody else may store a version of the same name at the same time
        rows = await _select(
            store,
            _PUT,
            {"name": name, "definition": definition, "lambdas": sorted(set(lambdas)), "replaces": replaces},
        )
        if rows:
            return rows[0]["version"], rows[0]["created"]
        if replaces is not None:
            return None
    message = f"versions of {name!r} are stored faster than this one could be"
    raise RuntimeError(message)


async def get_definition(store: Store, name: str, version: int) -> Definition | None:
    """Return a version of a definition, the newest for 0; None: there is none.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await _select(store, _GET, {"name": name, "version": version})
    return Definition(**rows[0]) if rows else None


async def list_definitions(store: Store, *, after: str, skipped: int = 0, limit: int) -> list[Definition]:
    """Return the newest versions by name, from `skipped` behind `after` on, without what they define.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return [
        Definition(**row)
        for row in await _select(store, _LIST, {"after": after, "skipped": skipped, "limit": limit})
    ]


async def _select(store: Store, query: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return await select_text(store, query, parameters)
