"""The store's clock, standing still: `duly_now()` of one database is an instant in a table, which `move_to` sets."""

from datetime import UTC, datetime
from typing import NamedTuple

from duly_core.postgres.pool import Store

INSTALL = """
create schema if not exists duly_stepped;
create table if not exists duly_stepped.clock (at timestamptz not null);
insert into duly_stepped.clock select now() where not exists (select from duly_stepped.clock);
create or replace function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select at from duly_stepped.clock';

-- While the clock stands still many tasks are due at the same instant. Then they go in the order in which they were made.
do $$ declare name text; definition text; begin
    for name, definition in
        select indexrelid::regclass, pg_get_indexdef(indexrelid) from pg_index
        where indrelid = 'task_assoc'::regclass and not indisunique and indexprs is null
    loop
        execute format('drop index %s', name);
        execute regexp_replace(definition, '\\(([^()]*)\\)', '(\\1, task_id)');
    end loop;
end $$;
"""
"""Replaces the clock of a database that is used for nothing else. Its services are told to run by the code that moves the clock."""

_BEGIN = "update duly_stepped.clock set at = %s"

_LOOK = """
with clock as materialized (
    update duly_stepped.clock set at = coalesce(%s, at) returning at as now
)
select clock.now,
    (
        select count(*) from (
            select from task_assoc
            where status in ('new', 'retriable_failure') and next_trigger_at <= clock.now
            limit 2
        ) as due
    ) as tasks,
    exists (
        select from task_assoc
        where next_trigger_at <= clock.now and status not in ('new', 'retriable_failure')
            or expires_at <= clock.now
    ) or exists (select from resource_use where skipped_at is not null) as timeouts,
    exists (
        select from time_table
        where paused_at is null and (next_fire_at <= clock.now or buffered_tick_at is not null)
    ) as ticks,
    exists (select from gate) or exists (select from breaker) as gates,
    (
        select min(next_trigger_at) from task_assoc
        where next_trigger_at > clock.now and next_trigger_at < 'infinity'
    ) as next_of_tasks,
    (select min(next_fire_at) from time_table where next_fire_at > clock.now and paused_at is null) as next_tick,
    least(
        (select min(expires_at) from task_assoc where expires_at > clock.now),
        (select min(least(expires_at, probes_until)) from gate where least(expires_at, probes_until) > clock.now),
        (select min(state_since + pause) from breaker where state = 'open' and state_since + pause > clock.now)
    ) as next_of_others
from clock
"""
"""What there is to do, of whatever the store has. The store of a test is small: it is read as a whole."""


class Look(NamedTuple):
    """What there is to do now, and when there is more."""

    now: datetime
    tasks: int
    """Tasks that are due: 0, 1, or 2 for more. Some of them may not start."""
    timeouts: bool
    ticks: bool
    gates: bool
    """There are gates or breakers."""
    next_of_tasks: datetime | None
    """When the next task is due, or its claim runs out."""
    next_tick: datetime | None
    next_of_others: datetime | None
    """When the next task expires, or the next gate or breaker lets tasks go."""

    @property
    def next(self) -> datetime | None:
        """When the next thing happens by itself; None: nothing will."""
        return _first(self.next_of_tasks, self.next_tick, self.next_of_others)

    @property
    def waits_until(self) -> datetime | None:
        """Until when tasks wait that are there now; None: for nothing that comes with time."""
        return _first(self.next_of_tasks, self.next_of_others if self.tasks else None)


def _first(*instants: datetime | None) -> datetime | None:
    return min(filter(None, instants), default=None)


class SteppedClock:
    """Moves the clock of a store. Nothing else may."""

    def __init__(self, store: Store) -> None:
        """Make one that begins with `begin_at`."""
        self._store = store
        self._now = datetime.fromtimestamp(0, UTC)

    @property
    def now(self) -> datetime:
        """The instant at which the clock stands."""
        return self._now

    def seconds(self) -> float:
        """Return the same as seconds, for what measures durations."""
        return self._now.timestamp()

    def nanoseconds(self) -> int:
        """Return the same as nanoseconds, for what measures durations."""
        return int(self._now.timestamp()) * 1_000_000_000 + self._now.microsecond * 1_000

    async def begin_at(self, instant: datetime) -> None:
        """Set the clock, forwards or backwards: for a store in which nothing has happened yet."""
        async with self._store.connection() as connection:
            await connection.execute(_BEGIN, (instant,))
        self._now = instant

    async def look(self, move_to: datetime | None = None) -> Look:
        """Step forwards, and look what there is to do then.

        Raises:
            ValueError: the instant lies behind.
        """
        if move_to is not None and move_to < self._now:
            raise ValueError(
                f"the clock stands at {self._now.isoformat()}; {move_to.isoformat()} is behind it"
            )
        async with self._store.connection() as connection:
            row = await (await connection.execute(_LOOK, (move_to,))).fetchone()
        if row is None:
            message = "the store has no stepped clock"
            raise RuntimeError(message)
        look = Look(*row)
        self._now = look.now.astimezone(UTC)
        return look
