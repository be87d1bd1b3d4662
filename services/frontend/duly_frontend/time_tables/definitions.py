"""Holds the definition of a time table against the rules; what passes is a TimeTable that the store will take."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from duly_core.config.settings import format_duration
from duly_core.lambdas.names import namespace_of
from duly_core.rpc.requests.attributes import checked_attributes
from duly_core.rpc.requests.checks import check_text, read_duration
from duly_core.rpc.requests.field_masks import merged, named_fields
from duly_core.rpc.requests.names import check_lambda_name, check_name, check_name_in_namespace
from duly_core.rpc.requests.new_tasks import (
    LONGEST_FAIR_KEY,
    payload_too_large,
    read_encoding,
    read_priority,
    read_session,
)
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import resource_needs
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT
from duly_core.time_tables.time_table import MOST_TICKS, ClosedRule, Rhythm, TickPolicy, TimeTable
from duly_wire.enums import CatchUp, OnClosed, Overlap
from duly_wire.v1 import task_pb2, time_tables_pb2

_LONGEST_CRON = 256
_SHORTEST = timedelta(seconds=1)
_LONGEST = timedelta(days=366)
_LONGEST_JITTER = timedelta(days=1)
_DEFAULT_WINDOW = timedelta(days=1)
_DAY = timedelta(days=1)
_MOST_WORKING_DAYS = 31
_NO_ZONE = "UTC"
"""Of a cron expression whose zone nobody named."""


TABLE_FIELDS = (
    "lambda",
    "payload",
    "payload_encoding",
    "priority",
    "collection",
    "cron",
    "every",
    "offset",
    "zone",
    "catch_up",
    "catch_up_window",
    "overlap",
    "jitter",
    "resources",
    "session.key",
    "session.order",
    "session.on_failure",
    "calendar",
    "on_closed",
    "business_hours",
    "working_day",
    "fair_key",
    "attributes",
)
"""What a mask may name of a time table."""
_PAYLOAD = frozenset({"payload", "payload_encoding"})


def read_named(asked: time_tables_pb2.NewTimeTable) -> frozenset[str]:
    """Return which fields of a time table a request sets.

    Raises:
        Problem: its mask is invalid.
    """
    mask = asked.update_mask if asked.HasField("update_mask") else None
    named = named_fields("update_mask", mask, asked.table, TABLE_FIELDS)
    return named | _PAYLOAD if "payload" in named else named


def changed_table(
    current: time_tables_pb2.TimeTable | None, asked: time_tables_pb2.TimeTable, named: frozenset[str]
) -> time_tables_pb2.TimeTable:
    """Return the definition to be: the current one (None: there is none), with the named fields as the request has them.

    Raises:
        Problem: it names the encoding of the current payload.
    """
    if current is None:
        return merged(time_tables_pb2.TimeTable(name=asked.name), asked, named)
    if "payload_encoding" in named and "payload" not in named:
        raise Problem("payload_encoding", "belongs to a payload: name payload, too")
    if current.zone == _NO_ZONE:
        current.ClearField("zone")
    return merged(current, asked, named)


def time_table(asked: time_tables_pb2.TimeTable, kinds: Mapping[str, bool] | None) -> TimeTable:
    """Check a definition; whether its lambda takes the payload is for the store to tell. To be called in a thread.

    `kinds` says which resources are declared, and which of these have keys. None: that was checked before, or is checked later.

    Raises:
        Problem: names the field and the fix.
    """
    check_name("name", asked.name)
    lambda_name: str = getattr(asked, "lambda")
    check_lambda_name("lambda", lambda_name)
    if asked.collection:
        check_name("collection", asked.collection)
    if asked.fair_key:
        check_text("fair_key", asked.fair_key, LONGEST_FAIR_KEY)
    if len(asked.payload) > HARD_PAYLOAD_LIMIT:
        raise payload_too_large(len(asked.payload), HARD_PAYLOAD_LIMIT, lambda_name)
    rhythm = replace(_rhythm(asked), rule=_rule(asked, lambda_name))
    return TimeTable(
        name=asked.name,
        lambda_name=lambda_name,
        rhythm=rhythm,
        payload=asked.payload,
        encoding=read_encoding(asked.payload_encoding, asked.payload),
        priority=read_priority(asked.priority),
        collection=asked.collection,
        policy=_policy(asked, rhythm),
        resources=tuple(sorted(resource_needs(asked.resources, kinds, lambda_name))),
        # one of which every field was removed is none
        session=read_session(asked.session) if asked.session.ByteSize() else None,
        fair_key=asked.fair_key or None,
        attributes=checked_attributes(asked.attributes),
    )


def _rhythm(asked: time_tables_pb2.TimeTable) -> Rhythm:
    said = asked.WhichOneof("rhythm")
    if said is None:
        raise Problem("cron", "say when it fires: a cron expression, such as '0 2 * * *', or `every`")
    if said == "every":
        every = read_duration("every", asked.every, _LONGEST, least=_SHORTEST)
        if asked.zone and not asked.calendar:
            raise Problem(
                "zone",
                "belongs to a cron expression or a calendar, and an interval is the same in every zone: leave it out, or "
                "remove it (name it in update_mask, unset)",
            )
        offset = read_duration("offset", asked.offset, _LONGEST)
        if offset >= every:
            raise Problem("offset", f"must be from 0 to less than `every`, {format_duration(every)}")
        return Rhythm(every=every, offset=offset, zone=_zone(asked.zone))
    if asked.HasField("offset"):
        raise Problem(
            "offset",
            "belongs to `every`: name the minute and the hour in the cron expression, and leave the offset out, or remove it "
            "(name it in update_mask, unset)",
        )
    return Rhythm(cron=_cron(asked.cron), zone=_zone(asked.zone))


def _rule(asked: time_tables_pb2.TimeTable, lambda_name: str) -> ClosedRule | None:
    if not asked.calendar:
        for field in ("on_closed", "business_hours", "working_day"):
            if getattr(asked, field):
                raise Problem(
                    field,
                    "belongs to a calendar: name one, or leave it out, or remove it (name it in update_mask, unset)",
                )
        return None
    check_name_in_namespace("calendar", asked.calendar)
    namespace = namespace_of(asked.calendar)
    if namespace and namespace != namespace_of(lambda_name):
        raise unknown_calendar(asked.calendar, "calendar")
    try:
        on_closed = OnClosed(asked.on_closed or OnClosed.SKIP)
    except ValueError:
        raise Problem("on_closed", f"{asked.on_closed} is no policy: use SKIP, NEXT or PREVIOUS") from None
    moves_by_days = on_closed is not OnClosed.SKIP and not asked.business_hours
    if moves_by_days and asked.HasField("every") and asked.every.ToTimedelta() < _DAY:
        raise Problem(
            "on_closed",
            "an interval below a day has ticks on the next working day anyway: use SKIP, or business_hours, which moves to the "
            "next opening",
        )
    if abs(asked.working_day) > _MOST_WORKING_DAYS:
        raise Problem("working_day", "must be 1 to 31, or -1 to -31 from the end of the month")
    return ClosedRule(asked.calendar, on_closed, asked.business_hours, asked.working_day)


def unknown_calendar(name: str, field: str) -> Problem:
    """Return what to say about a calendar that does not exist, or not for a lambda."""
    return Problem(
        field,
        f"there is no calendar {name[:200]!r} for it: `duly calendars` lists those that there are, `duly calendars set` makes "
        "one; one with a namespace, such as shop/office, is for lambdas of this namespace only",
        task_pb2.ERROR_CODE_UNKNOWN_CALENDAR,
    )


def _cron(text: str) -> str:
    from cronsim import CronSimError

    from duly_core.time_tables import rhythm as ticks

    cron = " ".join(text.split())
    if len(cron) > _LONGEST_CRON:
        raise Problem("cron", f"must be at most {_LONGEST_CRON} characters: make several time tables of it")
    never = Problem("cron", f"{cron!r} never fires: the months that it names have no such day")
    try:
        ticks.parse(cron)
    except CronSimError as error:
        fields = cron.split()
        if len(fields) == 5 and all(_is_cron(fields, any_of=place) for place in (2, 3)):
            raise never from error
        reason = str(error)
        raise Problem(
            "cron",
            f"{cron!r} is no cron expression ({reason[:1].lower()}{reason[1:]}): write five fields, minute hour "
            "day-of-month month day-of-week, such as '30 2 * * 1-5', or one of " + ", ".join(ticks.ALIASES),
        ) from error
    if ticks.next_after(Rhythm(cron=cron), datetime.now(UTC)) is None:
        raise never
    return cron


def _is_cron(fields: list[str], any_of: int) -> bool:
    """Tell whether these fields, with `*` in one place, are an expression."""
    from cronsim import CronSimError

    from duly_core.time_tables import rhythm as ticks

    try:
        ticks.parse(" ".join([*fields[:any_of], "*", *fields[any_of + 1 :]]))
    except CronSimError:
        return False
    return True


def _zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    if not name:
        return _NO_ZONE
    try:
        known = len(name) <= 64 and name not in {"localtime", "Factory"} and ZoneInfo(name).key == name
    except (KeyError, ValueError, OSError):
        known = False
    if not known:
        from difflib import get_close_matches

        near = get_close_matches(name[:64], _zones(), 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "use an IANA name such as Europe/Berlin"
        raise Problem("zone", f"{name[:64]!r} is no time zone: {hint}")
    return name


@cache
def _zones() -> list[str]:
    """Return the names of all zones. Reads hundreds of files the first time."""
    from zoneinfo import available_timezones

    return sorted(available_timezones())


def _policy(asked: time_tables_pb2.TimeTable, rhythm: Rhythm) -> TickPolicy:
    from duly_core.time_tables import rhythm as ticks

    try:
        catch_up = CatchUp(asked.catch_up or CatchUp.ONE)
    except ValueError:
        raise Problem("catch_up", f"{asked.catch_up} is no policy: use SKIP, ONE or ALL") from None
    try:
        overlap = Overlap(asked.overlap or Overlap.ALLOW)
    except ValueError:
        raise Problem(
            "overlap", f"{asked.overlap} is no policy: use ALLOW, SKIP, BUFFER_ONE or CANCEL_RUNNING"
        ) from None
    window = _DEFAULT_WINDOW
    if asked.HasField("catch_up_window"):
        window = read_duration("catch_up_window", asked.catch_up_window, _LONGEST, least=timedelta.resolution)
        if catch_up is not CatchUp.ALL:
            raise Problem(
                "catch_up_window",
                "belongs to catch_up ALL: choose ALL, or leave it out, or remove it (name it in update_mask, unset)",
            )
    if catch_up is CatchUp.ALL and (most := ticks.most_within(rhythm, window)) > MOST_TICKS:
        raise Problem(
            "catch_up_window",
            f"{most:,} ticks may lie in {format_duration(window)}, and at most {MOST_TICKS:,} are caught up with: "
            "shorten it, or let it fire less often",
        )
    jitter = read_duration("jitter", asked.jitter, _LONGEST_JITTER)
    if rhythm.every is not None and jitter >= rhythm.every:
        raise Problem("jitter", "must be shorter than `every`")
    return TickPolicy(catch_up, window, overlap, jitter)
