"""Time tables as text and as JSON."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duly
from duly.callbacks.codec import EncryptedPayload
from duly_cli.output.json_text import as_object
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.output.task_text import attributes_text, moment_text

if TYPE_CHECKING:  # it loads gRPC
    from duly.time_tables.calls import TimeTable

_PAYLOAD = 200
"""Characters shown of a payload."""


def rhythm_of(table: "TimeTable") -> str:
    """Return when it fires, as it was said."""
    if table.cron:
        return f"{table.cron} {table.zone}"
    text = f"every {table.every}"
    return f"{text} + {table.offset}" if table.offset else text


def status_of(table: "TimeTable") -> str:
    """Return what an operator must know of it first."""
    if table.paused_at:
        return f"paused: {table.pause_note}" if table.pause_note else "paused"
    if table.problem:
        return f"problem: {table.problem}"
    if table.buffered_tick_at:
        return "waits for its last task"
    return "active" if table.next_tick_at else "never fires again"


def described(table: "TimeTable") -> Iterator[str]:
    """Yield a time table line by line, its next ticks last."""
    payload = repr(table.payload)
    facts = {
        "name": table.name,
        "lambda": table.lambda_name,
        "cell": table.cell,
        "fires": rhythm_of(table),
        "status": status_of(table),
        "overlap": table.overlap.name.lower().replace("_", "-"),
        "catch-up": table.catch_up.name.lower()
        + (f" within {table.catch_up_window}" if table.catch_up_window else ""),
        "calendar": table.calendar,
        "closed days": _rule_of(table),
        "jitter": str(table.jitter) if table.jitter else "",
        "priority": table.priority.name.lower(),
        "collection": table.collection,
        "resources": ", ".join(map(str, table.resources)),
        "session": _session(table.session) if table.session else "",
        "fair key": table.fair_key,
        "attributes": attributes_text(table.attributes),
        "payload": payload if len(payload) <= _PAYLOAD else f"{payload[:_PAYLOAD]}...",
        "declared": "by its application" if table.declared else "",
        "revision": str(table.revision),
        "paused at": moment_text(table.paused_at),
        "last tick": f"{moment_text(table.last_tick_at)}  {table.last_task_id}" if table.last_tick_at else "",
        "waits": moment_text(table.buffered_tick_at),
        "next fires": moment_text(table.next_fire_at) if not table.paused_at else "",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        if value:
            yield f"{name:<{width}}  {one_line(value)}"
    for place, tick in enumerate(table.next_ticks):
        yield f"{'next ticks' if place == 0 else '':<{width}}  {moment_text(tick)}{_local(tick, table.zone)}"


def _session(session: duly.Session) -> str:
    said = [session.key]
    if session.order is not duly.SessionOrder.SCHEDULED:
        said.append(f"order {session.order.name.lower()}")
    if session.on_failure is not duly.SessionPolicy.SKIP:
        said.append(f"on failure {session.on_failure.name.lower()}")
    return ", ".join(said)


def _rule_of(table: "TimeTable") -> str:
    """Return what becomes of ticks in closed time; empty without a calendar."""
    if not table.calendar or table.on_closed is None:
        return ""
    name = table.on_closed.name.lower()
    parts = ["ticks are left out" if name == "skip" else f"ticks move to the {name} working time"]
    if table.business_hours:
        parts.append("business hours count")
    if table.working_day:
        parts.append(f"only on working day {table.working_day} of a month")
    return ", ".join(parts)


def planned_text(table: "TimeTable") -> Iterator[str]:
    """Yield the planned ticks line by line, with what becomes of each."""
    rows = []
    for each in table.planned:
        fires = "left out" if each.tick_at is None else _wall(each.tick_at, table.zone)
        mark = "one task with the tick there; " if each.merged else ""
        rows.append((_wall(each.nominal_at, table.zone), fires, one_line(f"{mark}{each.reason}")))
    if not rows:
        return iter(["no tick from then on"])
    return columns(("TICK", "FIRES", "WHY"), rows)


def _wall(instant: datetime, zone: str) -> str:
    """Return what clocks in a zone show at an instant."""
    try:
        return instant.astimezone(ZoneInfo(zone or "UTC")).strftime("%a %Y-%m-%d %H:%M:%S %Z")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return moment_text(instant)


def _local(tick: datetime, zone: str) -> str:
    """Return what clocks in its zone show then; empty where they show UTC, or the zone is unknown here."""
    if zone in ("", "UTC"):
        return ""
    try:
        return f"  {tick.astimezone(ZoneInfo(zone)).strftime('%a %Y-%m-%d %H:%M:%S %Z')}"
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ""


def table_as_json(table: "TimeTable") -> dict[str, Any]:
    """Return all that is known of a time table."""
    lengths = {name: getattr(table, name) for name in ("every", "offset", "catch_up_window", "jitter")}
    seconds = {
        f"{name}_seconds": None if each is None else each.total_seconds() for name, each in lengths.items()
    }
    return as_object(
        table,
        left_out=[*lengths, "changed", "planned"],
        calendar=table.calendar or None,
        zone=table.zone or None,
        payload=_payload_as_json(table.payload),
        last_task_id=table.last_task_id or None,
        problem=table.problem or None,
        resources=[str(need) for need in table.resources],
        session=table.session
        and {
            "key": table.session.key,
            "order": table.session.order.name,
            "on_failure": table.session.on_failure.name,
        },
        **seconds,
    )


def _payload_as_json(payload: object) -> object:
    if isinstance(payload, EncryptedPayload):
        return str(payload)
    return payload.hex() if isinstance(payload, bytes) else payload
