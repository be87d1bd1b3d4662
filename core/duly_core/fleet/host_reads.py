"""Reads the hosts that reported themselves, and counts them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from duly_core.access.grants import Scope
from duly_core.fleet.hosts import (
    ExecutorReport,
    HostReport,
    HostState,
    ServedLambda,
    StoredHost,
)
from duly_core.fleet.statements import FLEET
from duly_core.lambdas.patterns import to_regex
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import fragment
from duly_core.process.wall_clock import LARGEST_SKEW
from duly_core.tasks.store import select_text

STATE = fragment("host_state")

_SEEN = "served.lambda ~ %(scope_reads)s"
"""Whoever may see some tasks of a lambda sees who serves it."""

_COUNT = FLEET["count_hosts"]

_COUNT_SKEWED = FLEET["count_skewed"]

_CLOCK = FLEET["clock_of_holder"]

_MOST_LAMBDAS = 1_000
"""Of one host."""


async def list_hosts(
    store: Store,
    *,
    after: str = "",
    limit: int,
    lambda_name: str = "",
    states: Collection[HostState] = (),
    host_ids: Collection[str] = (),
    scope: Scope | None = None,
    include_lambdas: bool = False,
) -> list[StoredHost]:
    """Return up to `limit` hosts by id, from behind `after` on; with a scope only those that serve what is in it.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    seen = "true" if scope is None else _SEEN
    conditions = ["host.host_id > %(after)s"]
    if lambda_name:
        conditions.append(
            "exists (select from host_lambda as served where served.host_id = host.host_id"
            f" and served.lambda = %(lambda)s and {seen})"
        )
    elif scope is not None:
        conditions.append(
            f"exists (select from host_lambda as served where served.host_id = host.host_id and {seen})"
        )
    if host_ids:
        conditions.append("host.host_id = any(%(host_ids)s)")
    if states:
        conditions.append("state.text = any(%(states)s)")
    rows = await select_text(
        store,
        f"""
        select host.*, state.text as state,
            (
                select count(distinct served.lambda) from host_lambda as served
                where served.host_id = host.host_id and {seen}
            ) as lambda_count
        from host cross join lateral (select {STATE} as text) as state
        where {" and ".join(conditions)}
        order by host.host_id
        limit %(limit)s
        """,  # noqa: S608 (constants)
        {
            "after": after,
            "lambda": lambda_name,
            "states": [*states],
            "host_ids": [*host_ids],
            "limit": limit,
            **_scope(scope),
        },
    )
    lambdas = await _lambdas(store, [row["host_id"] for row in rows], scope) if include_lambdas else {}
    return [_stored(row, lambdas.get(row["host_id"], ())) for row in rows]


async def _lambdas(
    store: Store, host_ids: Sequence[str], scope: Scope | None
) -> dict[str, list[ServedLambda]]:
    seen = "true" if scope is None else _SEEN
    rows = await select_text(
        store,
        f"""
        select served.host_id, served.lambda, served.version, served.lambda_set
        from unnest(%(host_ids)s::text[]) as asked (host_id)
        cross join lateral (
            select * from host_lambda as served
            where served.host_id = asked.host_id and {seen}
            order by served.lambda, served.lambda_set
            limit {_MOST_LAMBDAS}
        ) as served
        """,  # noqa: S608 (constants)
        {"host_ids": [*host_ids], **_scope(scope)},
    )
    found: dict[str, list[ServedLambda]] = {}
    for row in rows:
        served = ServedLambda(row["lambda"], row["version"], row["lambda_set"])
        found.setdefault(row["host_id"], []).append(served)
    return found


async def count_hosts(store: Store) -> dict[HostState, int]:
    """Return how many hosts there are in each state, 0 for none.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    counts = {HostState(state): count for state, count in await store.run(_COUNT, {})}
    return {state: counts.get(state, 0) for state in HostState}


async def count_skewed(store: Store) -> dict[str, int]:
    """Return how many live hosts and services have clocks that differ from the store's, by kind: `host`, `service`.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return dict(await store.run(_COUNT_SKEWED, {"most": LARGEST_SKEW}))


@dataclass(frozen=True, slots=True)
class HostClock:
    """The wall clock of a host."""

    host_id: str
    name: str
    ahead: timedelta


async def clock_of(store: Store, holder: str) -> HostClock | None:
    """Return the clock of the host of an Executor; None: it is not known.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(_CLOCK, {"holder": holder})
    return HostClock(*rows[0]) if rows and rows[0][2] is not None else None


def _scope(scope: Scope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {"scope_reads": to_regex((*scope.all_tasks, *scope.own_tasks))}


def _stored(row: Mapping[str, Any], lambdas: Sequence[ServedLambda]) -> StoredHost:
    executors = [ExecutorReport(**each) for each in row["executors"]]
    started_at: datetime = row["started_at"]
    return StoredHost(
        HostReport(
            host_id=row["host_id"],
            name=row["name"],
            version=row["version"],
            queue_backend=row["queue_backend"],
            started_at=started_at,
            interval=row["report_interval"],
            draining=row["draining"],
            stopped=row["stopped"],
            executors=executors,
            lambdas_digest=row["lambdas_digest"],
            clock_ahead=row["clock_ahead"],
            pool=row["pool"],
        ),
        HostState(row["state"]),
        row["reported_at"],
        row["reported_by"],
        row["lambda_count"],
        lambdas,
    )
