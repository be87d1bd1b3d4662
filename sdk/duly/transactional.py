"""Schedules tasks in the caller's own transaction, where the caller's tables are in Duly's Postgres.

    from duly import transactional

    with psycopg.connect(...) as connection:
        connection.execute("insert into orders ...")
        transactional.schedule(connection, "order.confirm", {"order": 7})

The task is there when the transaction commits, and only then. The connection is psycopg's, a SQLAlchemy connection or session,
or Django's `connection`; its role may execute `duly_schedule` (`duly db grant ROLE`). Free of gRPC, and of all of these.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Unpack

from duly.callbacks.lambda_of import SessionOptions, name_of
from duly.errors import (
    DulyError,
    InvalidTaskError,
    KeyConflictError,
    PayloadTooLargeError,
    UnknownLambdaError,
    UnknownResourceError,
)
from duly.limits.resource import needs_to_fields
from duly.sessions.session import Session, session_of
from duly.tasks.arguments import check_names
from duly.tasks.attributes import attributes_of, wire_attributes
from duly.tasks.new_task import LABELS, NewTask
from duly_wire.enums import SessionOrder
from duly_wire.v1 import task_pb2

_CASTS = {
    "lambda": "text",
    "payload": "json",
    "raw_payload": "bytea",
    "priority": "integer",
    "scheduled_at": "timestamptz",
    "delay": "interval",
    "expires_at": "timestamptz",
    "idempotency_key": "text",
    "task_id": "uuid",
    **dict.fromkeys(LABELS, "text"),
    "resources": "json",
    "session": "text",
    "on_failure": "integer",
    "attributes": "json",
}
_ERRORS: Mapping[str, type[DulyError]] = {
    "DY001": InvalidTaskError,
    "DY002": UnknownLambdaError,
    "DY003": PayloadTooLargeError,
    "DY004": KeyConflictError,
    "DY005": UnknownResourceError,
}
"""By SQLSTATE."""


def schedule(
    connection: Any,
    lambda_name: str | Callable[..., Any],
    payload: Any = None,
    *,
    idempotency_key: str | None = None,
    schema: str = "public",
    **options: Unpack[SessionOptions],
) -> str:
    """Schedule a task in the transaction of `connection`, and return its id.

    Arguments as for `Client.schedule`. `connection`: a psycopg connection or cursor, a SQLAlchemy Connection or Session,
    or Django's connection. `schema`: where Duly's tables are.

    With `session`, the task joins its session as the transaction commits; the order is that of the commits. Sessions of the order
    DUE are not possible here. In a transaction that is REPEATABLE READ or SERIALIZABLE, that commit may fail with a
    serialization error: try the transaction again.

    Raises UnknownLambdaError, UnknownResourceError, PayloadTooLargeError, KeyConflictError, InvalidTaskError or EncodingError. What Postgres
    refused has ended the transaction, or the savepoint around the call. Errors of the connection itself are its own.
    """
    values = _values(_new(lambda_name, payload, idempotency_key, options))
    try:
        if _is_sqlalchemy(connection):
            task_id = connection.execute(_text(_sql((*values,), schema, ":{}")), values).scalar_one()
        elif hasattr(connection, "fetchone"):  # a cursor
            connection.execute(_sql((*values,), schema, "%({})s"), values)
            task_id = _first(connection.fetchone())
        else:
            with connection.cursor() as cursor:
                cursor.execute(_sql((*values,), schema, "%({})s"), values)
                task_id = _first(cursor.fetchone())
    except Exception as error:  # of any driver: what is none of ours is raised as it is
        _raise_ours(error)
        raise
    return str(task_id)


async def schedule_async(
    connection: Any,
    lambda_name: str | Callable[..., Any],
    payload: Any = None,
    *,
    idempotency_key: str | None = None,
    schema: str = "public",
    **options: Unpack[SessionOptions],
) -> str:
    """Do the same on a psycopg AsyncConnection, or a SQLAlchemy AsyncConnection or AsyncSession."""
    values = _values(_new(lambda_name, payload, idempotency_key, options))
    try:
        if _is_sqlalchemy(connection):
            task_id = (await connection.execute(_text(_sql((*values,), schema, ":{}")), values)).scalar_one()
        else:
            async with connection.cursor() as cursor:
                await cursor.execute(_sql((*values,), schema, "%({})s"), values)
                task_id = _first(await cursor.fetchone())
    except Exception as error:  # of any driver: what is none of ours is raised as it is
        _raise_ours(error)
        raise
    return str(task_id)


def _new(
    lambda_name: str | Callable[..., Any], payload: Any, idempotency_key: str | None, options: SessionOptions
) -> NewTask:
    check_names(options, SessionOptions.__optional_keys__)
    return NewTask(name_of(lambda_name), payload, idempotency_key=idempotency_key, **options)


def _values(new: NewTask) -> dict[str, Any]:
    """Return the function's arguments, by name; those that are left out have its defaults."""
    fields = new.to_fields()
    values: dict[str, Any] = {"lambda": fields["lambda"], "priority": int(fields["priority"])}
    if fields["payload_encoding"] == task_pb2.ENCODING_RAW:
        values["raw_payload"] = fields["payload"]
    elif fields["payload"]:
        values["payload"] = fields["payload"].decode()
    for name in LABELS:
        if text := getattr(new, name):
            values[name] = text
    if new.resources:
        values["resources"] = json.dumps(needs_to_fields(new.resources))
    if new.attributes:
        # as the wire has them: what is sent is checked there
        values["attributes"] = json.dumps(attributes_of(wire_attributes(new.attributes)))
    if new.session is not None:
        values |= _session(session_of(new.session))
    given = (
        ("scheduled_at", new.at),
        ("delay", new.delay),
        ("expires_at", new.expires_at),
        ("idempotency_key", new.idempotency_key),
        ("task_id", fields.get("task_id")),
    )
    values |= {name: value for name, value in given if value is not None}
    return values


def _session(session: Session) -> dict[str, Any]:
    if session.order is not SessionOrder.SCHEDULED:
        raise InvalidTaskError(
            "a transaction takes sessions of the order SCHEDULED only: use a client for the order DUE",
            "session.order",
        )
    fields = session.to_fields()
    return {"session": fields["key"], "on_failure": int(fields["on_failure"])}


@lru_cache(maxsize=128)
def _sql(names: tuple[str, ...], schema: str, placeholder: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", schema):
        raise InvalidTaskError(f"{schema!r} is no name of a schema", "schema")
    arguments = ", ".join(f"{name} => cast({placeholder.format(name)} as {_CASTS[name]})" for name in names)
    return f'select "{schema}".duly_schedule({arguments})'


def _is_sqlalchemy(connection: object) -> bool:
    return any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(connection).__mro__)


def _text(sql: str) -> Any:
    return sys.modules["sqlalchemy"].text(sql)  # it is there: the connection is its own


def _first(row: Any) -> Any:
    """Return the value of a row of one column, whatever the connection makes rows of."""
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]


def _raise_ours(error: BaseException) -> None:
    """Raise what duly_schedule refused as an error of Duly's; return for any other."""
    for each in _chain(error):
        kind = _ERRORS.get(getattr(each, "sqlstate", None) or getattr(each, "pgcode", None) or "")
        if kind is None:
            continue
        diagnosis = getattr(each, "diag", None)
        message = getattr(diagnosis, "message_primary", None) or str(each)
        if kind is InvalidTaskError:
            raise InvalidTaskError(message, getattr(diagnosis, "column_name", None) or "") from error
        raise kind(message) from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and what SQLAlchemy and Django have wrapped in it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__
