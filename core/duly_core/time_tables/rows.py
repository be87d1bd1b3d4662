"""Rows of time tables: as the store has them, and as definitions are written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from duly_core.tasks import attribute_rules
from duly_core.tasks.attribute_rules import Value
from duly_core.tasks.schedule import written_needs
from duly_core.tasks.task import Encoding, Needs, ResourceNeed, Session
from duly_core.time_tables.calendar import Calendar
from duly_core.time_tables.rhythm import next_after
from duly_core.time_tables.tick_plan import TableState, fire_at
from duly_core.time_tables.time_table import ClosedRule, Rhythm, TickPolicy, TimeTable
from duly_wire.enums import CatchUp, OnClosed, Overlap, Priority, SessionOrder, SessionPolicy
from duly_wire.ids import TaskId


class TableRow(NamedTuple):
    """A time table as the store has it, without its payload."""

    name: str
    lambda_name: str
    collection: str
    priority: int
    payload_encoding: int
    cron: str | None
    every: timedelta | None
    every_offset: timedelta
    zone: str
    catch_up: int
    catch_up_window: timedelta
    overlap: int
    jitter: timedelta
    declared: bool
    revision: int
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None
    pause_note: str | None
    resources: list[dict[str, Any]] | None
    session_key: str | None
    session_order: int | None
    session_policy: int | None
    next_tick_at: datetime | None
    next_fire_at: datetime | None
    buffered_tick_at: datetime | None
    last_tick_at: datetime | None
    last_task_id: TaskId | None
    problem: str | None
    calendar: str | None
    on_closed: int | None
    business_hours: bool | None
    working_day: int | None
    fair_key: str | None
    attributes: dict[str, Value] | None
    payload_bytes: int
    read_at: datetime
    """By the store's clock."""
    payload: bytes
    """Empty where it was not asked for."""

    @property
    def rhythm(self) -> Rhythm:
        rule = self.calendar and ClosedRule(
            self.calendar,
            OnClosed(self.on_closed or OnClosed.SKIP),
            bool(self.business_hours),
            self.working_day or 0,
        )
        return Rhythm(self.cron, self.every, self.every_offset, self.zone, rule or None)

    @property
    def policy(self) -> TickPolicy:
        return TickPolicy(CatchUp(self.catch_up), self.catch_up_window, Overlap(self.overlap), self.jitter)

    @property
    def definition(self) -> TimeTable:
        return TimeTable(
            self.name,
            self.lambda_name,
            self.rhythm,
            self.payload,
            Encoding(self.payload_encoding),
            Priority(self.priority),
            self.collection,
            self.policy,
            self.needs,
            self.session,
            self.fair_key,
            attribute_rules.read(self.attributes),
        )

    @property
    def needs(self) -> Needs:
        """What each of its tasks needs of resources."""
        return tuple([ResourceNeed(**need) for need in self.resources or ()])

    @property
    def session(self) -> Session | None:
        """The session of its tasks."""
        if self.session_key is None:
            return None
        return Session(
            self.session_key,
            SessionOrder(self.session_order or SessionOrder.SCHEDULED),
            SessionPolicy(self.session_policy or SessionPolicy.SKIP),
        )

    def state(self, calendars: Mapping[str, Calendar]) -> TableState:
        """Return what decides about its ticks."""
        rhythm = with_calendar(self.rhythm, calendars)
        return TableState(self.name, rhythm, self.policy, self.next_tick_at, self.buffered_tick_at)


def with_calendar(rhythm: Rhythm, calendars: Mapping[str, Calendar]) -> Rhythm:
    """Return a rhythm whose ticks can be computed: with what its calendar says. If it is not there, the first tick says so."""
    return replace(rhythm, calendar=calendars.get(rhythm.rule.calendar)) if rhythm.rule else rhythm


def definition_columns(table: TimeTable) -> dict[str, Any]:
    """Return the parameters that write a definition."""
    rhythm, policy, session = table.rhythm, table.policy, table.session
    rule = rhythm.rule
    return {
        "name": table.name,
        "lambda": table.lambda_name,
        "collection": table.collection,
        "priority": int(table.priority),
        "payload_encoding": int(table.encoding),
        "payload": table.payload,
        "cron": rhythm.cron,
        "every": rhythm.every,
        "every_offset": rhythm.offset,
        "zone": rhythm.zone,
        "catch_up": int(policy.catch_up),
        "catch_up_window": policy.catch_up_window,
        "overlap": int(policy.overlap),
        "jitter": policy.jitter,
        "resources": written_needs(table.resources),
        "session": session and session.key,
        "session_order": session and int(session.order),
        "session_policy": session and int(session.policy),
        "calendar": rule and rule.calendar,
        "on_closed": rule and int(rule.on_closed),
        "business_hours": rule and rule.business_hours,
        "working_day": rule and rule.working_day,
        "fair_key": table.fair_key,
        "attributes": attribute_rules.written(table.attributes),
    }


def trigger_columns(name: str, rhythm: Rhythm, jitter: timedelta, after: datetime) -> dict[str, Any]:
    """Return the parameters that set the next tick: the first after an instant."""
    next_tick_at = next_after(rhythm, after)
    return {
        "next_tick_at": next_tick_at,
        "next_fire_at": next_tick_at and fire_at(name, next_tick_at, jitter),
    }
