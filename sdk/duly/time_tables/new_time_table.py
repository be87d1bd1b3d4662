"""A time table to be, as a client or an application says it. Free of gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from duly.callbacks.codec import Codec, payload_of, protect, reveal
from duly.callbacks.payload import encode
from duly.errors import InvalidTaskError
from duly.limits.resource import ResourceNeed, needs_to_fields
from duly.sessions.session import Session, session_of
from duly.tasks.attributes import AttributeValue, wire_attributes
from duly.transport.enum_members import member
from duly_wire.enums import CatchUp, OnClosed, Overlap, Priority
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import task_pb2, time_tables_pb2


class TimeTableOptions(TypedDict, total=False):
    """What a time table may be told beside its name, its lambda and the payload; see AsyncClient.create_table."""

    cron: str | None
    every: timedelta | None
    offset: timedelta | None
    zone: str | None
    catch_up: CatchUp | None
    catch_up_window: timedelta | None
    overlap: Overlap | None
    jitter: timedelta | None
    priority: Priority | None
    collection: str | None
    resources: Iterable[ResourceNeed | str] | None
    session: Session | str | None
    calendar: str | None
    on_closed: OnClosed | None
    business_hours: bool | None
    working_day: int | None
    fair_key: str | None
    attributes: Mapping[str, AttributeValue] | None


def new_time_table(
    name: str,
    lambda_name: str,
    payload: object = None,
    codec: Codec | None = None,
    /,
    **options: Unpack[TimeTableOptions],
) -> time_tables_pb2.TimeTable:
    """Return the definition of a time table as it is sent; what it says is for the Frontend to check.

    Raises InvalidTaskError for what cannot be sent, EncodingError for a payload that JSON cannot carry.
    `codec` encrypts the payload.
    """
    if (options.get("cron") is None) is (options.get("every") is None):
        raise InvalidTaskError("say when it fires: either cron or every", "cron")
    table = time_tables_pb2.TimeTable(name=name)
    setattr(table, "lambda", lambda_name)
    write_payload(table, payload, codec)
    usual = {"catch_up": CatchUp.ONE, "overlap": Overlap.ALLOW, "priority": Priority.NORMAL}
    write_options(table, usual | dict(options))
    return table


def write_payload(table: time_tables_pb2.TimeTable, payload: object, codec: Codec | None = None) -> None:
    """Set what each task of a time table, which names its lambda, is given."""
    table.payload, table.payload_encoding = protect(
        codec, encode(payload), payload_of(getattr(table, "lambda")), f"time table {table.name}"
    )


def rebind_payload(
    before: time_tables_pb2.TimeTable, table: time_tables_pb2.TimeTable, codec: Codec | None
) -> bool:
    """Give the payload of a time table to another lambda: an encrypted payload is bound to the name. Raises DecryptionError.

    Returns whether `table`, which names the lambda, has the payload now; a plain one need not be sent again.
    """
    if before.payload_encoding != task_pb2.ENCODING_ENCRYPTED:
        return False
    data, encoding = reveal(
        codec, before.payload, before.payload_encoding, payload_of(getattr(before, "lambda"))
    )
    plain = data, task_pb2.Encoding.ValueType(encoding)
    table.payload, table.payload_encoding = protect(
        codec, plain, payload_of(getattr(table, "lambda")), f"time table {table.name}"
    )
    return True


def write_options(table: time_tables_pb2.TimeTable, options: TimeTableOptions | dict[str, Any]) -> None:
    """Set what is said of a definition, and leave the rest as it is; None clears a field.

    Raises InvalidTaskError, naming the option, for a value of another kind, TypeError for an unknown option.
    """
    for name, value in options.items():
        if name not in TimeTableOptions.__annotations__:
            raise TypeError(f"a time table has no option {name!r}")
        if value is None:
            table.ClearField(name)  # type: ignore[arg-type]  # options are fields
        elif name == "resources":
            table.ClearField("resources")
            table.resources.extend(task_pb2.ResourceNeed(**need) for need in needs_to_fields(value))
        elif name == "attributes":
            table.ClearField("attributes")
            table.attributes.extend(wire_attributes(value))
        elif name == "session":
            session = session_of(value)  # type: ignore[arg-type]  # it raises for another type
            table.session.CopyFrom(task_pb2.Session(**session.to_fields()))
        elif name in _KINDS:
            setattr(table, name, member(name, value, _KINDS[name]))
        elif name in _PLAIN:
            if type(value) is not _PLAIN[name]:
                raise InvalidTaskError(
                    f"{name} must be {_PLAIN[name].__name__}, not {type(value).__name__}", name
                )
            setattr(table, name, value)
        elif name in _DURATIONS:
            if not isinstance(value, timedelta):
                raise InvalidTaskError(f"{name} must be a timedelta, not {type(value).__name__}", name)
            getattr(table, name).CopyFrom(to_duration(value))
        elif isinstance(value, str):
            setattr(table, name, value)
        else:
            raise InvalidTaskError(f"{name} must be a str, not {type(value).__name__}", name)


_KINDS: dict[str, type[CatchUp | OnClosed | Overlap | Priority]] = {
    "catch_up": CatchUp,
    "on_closed": OnClosed,
    "overlap": Overlap,
    "priority": Priority,
}
_PLAIN: dict[str, type[bool | int]] = {"business_hours": bool, "working_day": int}
_DURATIONS = frozenset(("every", "offset", "catch_up_window", "jitter"))
