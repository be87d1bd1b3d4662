"""Hold what a client asks for against the rules; what passes is a NewTask that the store will take."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duly.ids import new_task_id
from duly.v1 import frontend_pb2, task_pb2
from duly_core.routing import LAMBDA_NAME, Priority
from duly_core.rpc.convert import from_duration, from_timestamp
from duly_core.settings import format_duration
from duly_core.task import Encoding, NewTask
from duly_frontend.settings import HARD_PAYLOAD_LIMIT

_KEY_LIMIT = 255
_ID_CLOCK_SLACK = timedelta(days=1)
_NUL = re.compile("\x00")


@dataclass(slots=True, eq=False)
class Problem(Exception):  # noqa: N818 (it is an answer for one item, not a failure of ours)
    """Why an item cannot be taken."""

    field: str
    message: str
    code: "task_pb2.ErrorCode.ValueType" = task_pb2.ERROR_CODE_INVALID_ARGUMENT

    def to_wire(self) -> task_pb2.ItemError:
        return task_pb2.ItemError(code=self.code, field=self.field, message=self.message)


def new_task(asked: frontend_pb2.NewTask, payload_limits: Mapping[str, int], horizon: timedelta) -> NewTask:
    """Check one item against the registered lambdas' payload limits (bytes) and the horizon.

    Raises:
        Problem: names the field and the mend.
    """
    name: str = getattr(asked, "lambda")
    _check_name("lambda", name)
    if asked.collection:
        _check_name("collection", asked.collection)
    if name not in payload_limits:
        raise Problem(
            "lambda",
            unknown_lambda(name),
            task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
        )
    _check_payload(asked.payload, payload_limits[name], name)
    scheduled_at, delay = _when(asked, horizon)
    return NewTask(
        task_id=_task_id(asked),
        lambda_name=name,
        payload=asked.payload,
        encoding=_encoding(asked.payload_encoding),
        priority=_priority(asked.priority),
        collection=asked.collection,
        scheduled_at=scheduled_at,
        delay=delay,
        expires_at=_timestamp(asked, "expires_at"),
        idempotency_key=_key(asked.idempotency_key),
    )


def unknown_lambda(name: str) -> str:
    """What to say about a lambda that is not registered."""
    return (
        f"no lambda {name!r} is registered: start a host that declares it (duly worker MODULE:APP), "
        "or mend the name; `duly lambdas` lists those that are"
    )


def parse_task_id(text: str, field: str = "task_id") -> bytes:
    """A task id's bytes.

    Raises:
        Problem: the text is no UUID.
    """
    try:
        return UUID(text).bytes
    except ValueError:
        raise Problem(
            field, "not a task id: write a UUID such as 0192d3e4-5f60-7abc-8def-0123456789ab"
        ) from None


def _check_name(field: str, name: str) -> None:
    if not LAMBDA_NAME.fullmatch(name):
        raise Problem(
            field,
            "must be 1 to 128 of the characters a-z, 0-9, '_', '.', '-', beginning with a letter or a digit",
        )


def _check_payload(payload: bytes, limit: int, name: str) -> None:
    limit = min(limit, HARD_PAYLOAD_LIMIT)
    if len(payload) > limit:
        raise Problem(
            "payload",
            f"{len(payload):,} bytes exceed the {limit:,} that {name} takes: put large data elsewhere and send its "
            f"address, or raise the lambda's payload_limit (at most {HARD_PAYLOAD_LIMIT:,})",
            task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE,
        )


def _encoding(value: int) -> Encoding:
    try:
        return Encoding(value or task_pb2.ENCODING_JSON)
    except ValueError:
        raise Problem(
            "payload_encoding", f"{value} is no encoding: use ENCODING_JSON or ENCODING_RAW"
        ) from None


def _priority(value: int) -> Priority:
    try:
        return Priority(value or task_pb2.PRIORITY_NORMAL)
    except ValueError:
        raise Problem("priority", f"{value} is no priority: use URGENT, HIGH, NORMAL or LOW") from None


def _when(asked: frontend_pb2.NewTask, horizon: timedelta) -> tuple[datetime | None, timedelta | None]:
    """The two ways to say when; both are resolved by the store's clock, which also moves the past to now."""
    scheduled_at = _timestamp(asked, "scheduled_at")
    if scheduled_at is not None and scheduled_at > datetime.now(UTC) + horizon:
        raise _too_far("scheduled_at", horizon)
    if not asked.HasField("delay"):
        return scheduled_at, None
    try:
        delay = from_duration(asked.delay)
    except ValueError as error:
        raise Problem("delay", str(error)) from error
    if delay > horizon:
        raise _too_far("delay", horizon)
    return None, max(delay, timedelta())


def _too_far(field: str, horizon: timedelta) -> Problem:
    return Problem(field, f"is more than the horizon of {format_duration(horizon)} ahead: schedule it later")


def _timestamp(asked: frontend_pb2.NewTask, field: str) -> datetime | None:
    if not asked.HasField(field):  # type: ignore[arg-type]
        return None
    try:
        return from_timestamp(getattr(asked, field))
    except ValueError as error:
        raise Problem(field, f"not an instant: {error}") from error


def _key(key: str) -> str | None:
    if len(key.encode()) > _KEY_LIMIT:
        raise Problem("idempotency_key", f"must be at most {_KEY_LIMIT} bytes of UTF-8")
    if _NUL.search(key):
        raise Problem("idempotency_key", "must not contain NUL")
    return key or None


def _task_id(asked: frontend_pb2.NewTask) -> bytes:
    if not asked.task_id:
        return new_task_id().bytes
    if asked.idempotency_key:
        raise Problem("task_id", "say either task_id or idempotency_key: each alone makes a repeat safe")
    task_id = parse_task_id(asked.task_id)
    # RFC 9562: 48 bits of milliseconds, 4 of version, 12 of anything, 2 of variant
    if task_id[6] >> 4 != 7 or task_id[8] >> 6 != 0b10:
        raise Problem("task_id", "must be a UUID of version 7, or be left out")
    made_at = int.from_bytes(task_id[:6]) / 1000
    if abs(time.time() - made_at) > _ID_CLOCK_SLACK.total_seconds():
        raise Problem(
            "task_id", "its time is more than a day from now: set the client's clock, or leave it out"
        )
    return task_id
