"""Reads which hosts serve a lambda, by what they reported of themselves."""

from dataclasses import dataclass
from datetime import datetime

from duly_core.fleet.host_reads import STATE
from duly_core.postgres.pool import Store
from duly_core.tasks.store import select_text

# a pinned application serves one version of its lambdas
_SERVING = f"""
select exists (select from host where {STATE} in ('alive', 'draining')) as any_alive,
    (select count(*) from serving where serving.state = 'alive') as alive,
    last.name, last.state, last.reported_at
from (select 1) as once
left join lateral (
    select serving.name, serving.state, serving.reported_at from serving order by serving.reported_at desc limit 1
) as last on true
"""  # noqa: S608 (constants)
_QUERY = f"""
with serving as materialized (
    select distinct host.host_id, host.name, host.reported_at, {STATE} as state
    from host_lambda as served join host on host.host_id = served.host_id
    where served.lambda = %(lambda)s
        or (served.lambda = %(base)s and served.version = %(version)s and %(version)s <> '')
)
{_SERVING}
"""  # noqa: S608 (constants)


@dataclass(frozen=True, slots=True)
class Serving:
    """The hosts that serve a lambda."""

    alive: int
    """That report, and take tasks."""
    any_alive: bool
    """Some host reports, whatever it serves. False: hosts are not known at all, or all are down."""
    last_name: str | None
    """The host that reported last that it serves the lambda; None: no host did within a day."""
    last_state: str | None
    last_reported_at: datetime | None


async def read_serving(store: Store, lambda_name: str) -> Serving:
    """Return which hosts serve a lambda, or a version of one (NAME@VERSION).

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    base, _, version = lambda_name.partition("@")
    asked = {"lambda": lambda_name, "base": base, "version": version}
    (row,) = await select_text(store, _QUERY, asked)
    return Serving(row["alive"], row["any_alive"], row["name"], row["state"], row["reported_at"])
