"""Reads what a task waits for: its session, its graph, and resources."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duly_core.explain.reads import MOST_COUNTED
from duly_core.explain.statements import EXPLAIN
from duly_core.limits.store import quotas_of
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow, select_text

MOST_SHOWN = 20
_MOST_HELD = 100_000

WaitRow = Mapping[str, Any]

_SESSION = EXPLAIN["session_of_task"].sql

_NODES = EXPLAIN["nodes_before"].sql

_RESOURCES = EXPLAIN["resources_of_task"].sql

_PARKED_BEFORE = EXPLAIN["parked_before"].sql

_HOLDERS = EXPLAIN["resource_holders"].sql


async def read_session(store: Store, row: TaskRow) -> WaitRow | None:
    """Return the session that a task waits in, and how many wait before it; None: it is gone.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {
        "session": row["session"],
        "rank": row["session_rank"],
        "seq": row["session_seq"],
        "most": MOST_COUNTED,
    }
    rows = await select_text(store, _SESSION, asked)
    return rows[0] if rows else None


async def read_nodes(store: Store, row: TaskRow) -> Sequence[WaitRow]:
    """Return the nodes that a task waits for in its graph, by label; at most 1,000.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return await select_text(store, _NODES, {"task_id": row["task_id"], "most": 1000})


async def read_resources(store: Store, row: TaskRow) -> Sequence[WaitRow]:
    """Return the declared resources that a task needs, with what is taken of them.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {"needs": json.dumps(row["needs"] or []), "quotas": [*quotas_of(row["lambda"])]}
    return await select_text(store, _RESOURCES, asked)


async def count_parked_before(store: Store, row: TaskRow) -> int:
    """Return how many tasks of its lambda and priority are parked before a task; 10,000 at most.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {
        "name": row["parked_on"],
        "key": row["parked_key"],
        "lambda": row["lambda"],
        "priority": row["priority"],
        "due_at": row["due_at"],
        "most": MOST_COUNTED,
    }
    (found,) = await select_text(store, _PARKED_BEFORE, asked)
    return int(found["count"])


async def read_holders(store: Store, name: str, key: str) -> Sequence[WaitRow]:
    """Return tasks that hold units of a resource; at most 20.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    asked = {"name": name, "key": key, "most": MOST_SHOWN, "most_held": _MOST_HELD}
    return await select_text(store, _HOLDERS, asked)
