"""Reads what a task waits for: its session, its graph, and resources."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duly_core.explain.reads import MOST_COUNTED
from duly_core.limits.store import quotas_of
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow, select_text

MOST_SHOWN = 20
_MOST_HELD = 100_000

WaitRow = Mapping[str, Any]

_SESSION = """
select session.head, session.blocked_by, session.blocked_at, session.doomed, session.length,
    (
        select count(*)
        from (
            select from task_assoc as assoc
            where assoc.session = %(session)s and assoc.status = 'waiting' and assoc.doom is null
                and (assoc.session_rank, assoc.session_seq) < (%(rank)s::timestamptz, %(seq)s)
            limit %(most)s
        ) as first
    ) as before
from session
where session.key = %(session)s
"""

_NODES = """
select source.task_id, source.label, source.lambda, task.scheduled_by, coalesce(assoc.status, task.status)::text as status,
    assoc.task_id is not null and assoc.doom is null as is_open
from (
    select node.graph_id, node.waits_for from graph_node as node where node.task_id = %(task_id)s limit 1
) as own
cross join lateral unnest(own.waits_for[1 : %(most)s]) as edge (from_task)
cross join lateral (
    select node.task_id, node.label, node.lambda from graph_node as node where node.task_id = edge.from_task limit 1
) as source
left join task_assoc as assoc on assoc.task_id = source.task_id
left join lateral (
    select task.status, task.scheduled_by from task where task.task_id = source.task_id limit 1
) as task on true
order by source.label
"""

# what the task names, and the quotas of its lambda and namespace
_RESOURCES = """
select need.name, need.key, least(need.weight, resource.capacity) as weight, resource.capacity, resource.rate,
    resource.period, resource.note, coalesce(use.used, 0) as used
from (
    select named.name, named.key, named.weight
    from jsonb_to_recordset(%(needs)s::jsonb) as named (name text, key text, weight int4)
    union
    select quota.name, '', 1 from unnest(%(quotas)s::text[]) as quota (name)
) as need
join resource on resource.name = need.name
left join resource_use as use on use.resource = need.name and use.key = need.key
order by need.name, need.key
"""

_PARKED_BEFORE = """
select count(*) as count
from (
    select from task_assoc as assoc
    where assoc.parked_on = %(name)s and assoc.parked_key = %(key)s and assoc.lambda = %(lambda)s
        and assoc.priority = %(priority)s and assoc.due_at < %(due_at)s and assoc.status = 'waiting'
    limit %(most)s
) as first
"""

_HOLDERS = """
select held.task_id, held.lambda, held.status::text as status, task.scheduled_by
from (
    select assoc.task_id, assoc.lambda, assoc.status, assoc.taken
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    limit %(most_held)s
) as held
left join lateral (select task.scheduled_by from task where task.task_id = held.task_id limit 1) as task on true
where held.taken @> jsonb_build_array(jsonb_build_object('name', %(name)s::text, 'key', %(key)s::text))
limit %(most)s
"""


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
