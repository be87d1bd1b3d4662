"""Reads what explains why a task does not run: its rows, what is before it, and how fast its lambda's tasks are claimed."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly_core.postgres.pool import Store
from duly_core.tasks.store import SUMMARY, TaskRow, select_text
from duly_core.upkeep.partitions import first_id
from duly_wire.ids import TaskId

MOST_COUNTED = 10_000
"""Rows before a task; more are estimated."""
_MOST_HELD = 100_000
_MOST_CLAIMS = 500
_LATELY = timedelta(minutes=10)
"""Claims before this say nothing about the rate."""
_FEWEST_CLAIMS = 5
_LONGEST_AGO = timedelta(days=2)
"""Tasks that are older are not looked at for their claims."""

_TASK = f"""
select {SUMMARY}, duly_now() as now, task_assoc.due_at, task_assoc.start_at, task_assoc.doom, task_assoc.open_edges,
    task_assoc.any_of, task_assoc.enqueued_at as sent_at, task_assoc.claimed_at, task_assoc.session_rank::text as session_rank,
    task_assoc.session_seq, task_assoc.passed_gates, coalesce(task_assoc.resources, task.resources) as needs,
    task.events, task_assoc.events as live_events, task.holder as run_holder, task.claimed_at as run_claimed_at,
    task.enqueued_at as run_enqueued_at, task.started_at as run_started_at,
    lambda.name is not null as is_registered, lambda.max_attempts, lambda.max_crashes, gone.deleted_at, gone.deleted_by,
    exists (
        select from lambda_declaration as declared
        where declared.name = split_part(task.lambda, '@', 1) and declared.version = split_part(task.lambda, '@', 2)
    ) as version_is_declared,
    store_epoch.changed_at as store_changed_at
from task
left join task_assoc on task_assoc.task_id = task.task_id
left join lambda on lambda.name = task.lambda
left join deleted_lambda as gone on gone.name in (task.lambda, split_part(task.lambda, '@', 1))
left join store_epoch on true
where task.task_id = %(task_id)s
order by gone.deleted_at
limit 1
"""  # noqa: S608 (the columns are our own)

_QUEUE = """assoc.lambda = %(lambda)s and assoc.priority = {priority}
    and assoc.status in ('new', 'retriable_failure')"""
_AHEAD = f"""
from task_assoc as assoc
where {_QUEUE.format(priority="%(priority)s")} and assoc.next_trigger_at < %(before)s
"""
_COUNTS = f"""
select (select count(*) from (select {_AHEAD} limit %(most)s + 1) as first) as ahead,
    (
        select coalesce(sum(one.count), 0)::int8
        from generate_series(1, %(priority)s - 1) as higher (priority) cross join lateral (
            select count(*) as count
            from (
                select from task_assoc as assoc
                where {_QUEUE.format(priority="higher.priority")} and assoc.next_trigger_at <= %(now)s
                limit %(most)s
            ) as first
        ) as one
    ) as higher,
    (select assoc.task_id {_AHEAD} order by assoc.next_trigger_at limit 1) as head,
    (select assoc.next_trigger_at {_AHEAD} order by assoc.next_trigger_at limit 1) as head_due_at
"""  # noqa: S608 (as above)

_HELD = """
select count(*) filter (where held.status <> 'enqueued') as running,
    count(*) filter (where held.status = 'enqueued' and held.priority = %(priority)s and held.enqueued_at < %(sent_at)s) as sent,
    (array_agg(held.claimed_at order by held.claimed_at desc) filter (
        where held.status <> 'enqueued' and held.priority = %(priority)s and held.claimed_at is not null
    ))[1 : %(most)s] as claims
from (
    select assoc.status, assoc.priority, assoc.claimed_at, assoc.enqueued_at, assoc.lambda
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    limit %(most_held)s
) as held
where held.lambda = %(lambda)s
"""

# those that were due just before the first one that still waits are those that were claimed last
_CLAIMS = """
select recent.claimed_at
from (
    select task.claimed_at, task.priority
    from task
    where task.lambda = %(lambda)s and task.task_id < %(head)s and task.task_id > %(oldest)s
    order by task.task_id desc
    limit %(most)s
) as recent
where recent.priority = %(priority)s and recent.claimed_at > %(since)s
"""

_RELATED = """
select task.task_id, task.lambda, task.scheduled_by, coalesce(assoc.status, task.status)::text as status
from task left join task_assoc as assoc on assoc.task_id = task.task_id
where task.task_id = any(%(task_ids)s::uuid[])
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What is before a task that is due."""

    ahead: int
    """Due tasks of its lambda and priority, before it; with SQS those in the queue, too."""
    is_estimated: bool
    higher: int
    """Due tasks of its lambda with higher priorities; of each at most 10,000."""
    running: int
    """Tasks of its lambda that hosts hold."""
    first_due_at: datetime
    """Since when the first that waits does, this one among them."""
    last_claim_at: datetime | None
    """The newest claim of its lambda and priority that is known."""
    claims_per_second: float | None
    """None: too few claims were found to tell."""

    @property
    def wait(self) -> timedelta | None:
        """How long it waits if tasks go on to be claimed at this rate."""
        return (self.claims_per_second and timedelta(seconds=self.ahead / self.claims_per_second)) or None


async def read_explained(store: Store, task_id: TaskId) -> TaskRow | None:
    """Return all that its rows say of a task, and of its lambda; None: there is no such task.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await select_text(store, _TASK, {"task_id": UUID(bytes=task_id)})
    return rows[0] if rows else None


async def read_load(store: Store, row: TaskRow) -> Load:
    """Return what is before a task that is due or enqueued.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    now: datetime = row["now"]
    is_sent = row["status"] == "enqueued"
    # what is enqueued is before all that is not
    due_at = row["due_at"] if is_sent else row["next_trigger_at"]
    asked = {
        "lambda": row["lambda"],
        "priority": row["priority"],
        "before": min(due_at, now),
        "now": now,
        "most": MOST_COUNTED,
        "most_held": _MOST_HELD,
        "sent_at": row["sent_at"] or now,
    }
    (counts,) = await select_text(store, _COUNTS, asked)
    (held,) = await select_text(store, _HELD, asked | {"most": _MOST_CLAIMS})
    sample = {
        "head": counts["head"] or row["task_id"],
        "oldest": first_id(now - _LONGEST_AGO),
        "since": now - _LATELY,
        "most": _MOST_CLAIMS,
    }
    ended = await select_text(store, _CLAIMS, asked | sample)
    claims = [each["claimed_at"] for each in ended] + list(held["claims"] or ())
    ahead = held["sent"] if is_sent else counts["ahead"]
    estimated = ahead > MOST_COUNTED
    if estimated and not is_sent:
        ahead = max(MOST_COUNTED, await _estimate(store, asked))
    return Load(
        ahead=ahead,
        is_estimated=estimated,
        higher=counts["higher"],
        running=held["running"],
        first_due_at=counts["head_due_at"] or due_at,
        last_claim_at=max(claims, default=None),
        claims_per_second=_rate(claims, now),
    )


def _rate(claims: Collection[datetime], now: datetime) -> float | None:
    newest = sorted(each for each in claims if each > now - _LATELY)[-_MOST_CLAIMS:]
    if len(newest) < _FEWEST_CLAIMS:
        return None
    return len(newest) / max((now - newest[0]).total_seconds(), 0.001)


async def _estimate(store: Store, asked: Mapping[str, Any]) -> int:
    """Return how many tasks Postgres's planner expects to be before it."""
    (row,) = await select_text(store, f"explain (format json) select {_AHEAD}", asked)
    plan = row["QUERY PLAN"]
    (found,) = json.loads(plan) if isinstance(plan, str) else plan
    return int(found["Plan"]["Plan Rows"])


async def read_related(store: Store, task_ids: Collection[UUID]) -> dict[UUID, TaskRow]:
    """Return lambda, status and scheduled_by of other tasks by id; those that were removed are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not task_ids:
        return {}
    rows = await select_text(store, _RELATED, {"task_ids": list(task_ids)})
    return {row["task_id"]: row for row in rows}
