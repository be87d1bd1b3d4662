"""Hold what a client asks for against the rules; what passes is a NewTask that the store will take."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Never
from uuid import UUID

from duly_core.access.current import scheduler
from duly_core.config.settings import format_duration
from duly_core.rpc.requests.attachment_uses import task_uses
from duly_core.rpc.requests.attributes import new_attributes
from duly_core.rpc.requests.checks import check_text, read_instant
from duly_core.rpc.requests.names import check_lambda_name, check_name, unknown_lambda
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.times import from_duration
from duly_core.rpc.requests.unique import new_unique
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT, Encoding, Needs, NewTask, Session
from duly_core.time_tables.time_table import TICK_KEYS
from duly_wire.enums import Priority, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2

_KEY_LIMIT = 255
LONGEST_FAIR_KEY = 128
_ID_CLOCK_SLACK_S = timedelta(days=1).total_seconds()
_ID_LENGTH = 36
_ID_BYTES = 16
_LONGEST_ID = 64
"""Characters of a UUID in any form that Python reads: with `urn:uuid:`, or in braces."""

# Looked up by the wire's number: calling the enum, and catching what it raises, takes four times as long.
ENCODINGS = {int(encoding): encoding for encoding in Encoding} | {
    task_pb2.ENCODING_UNSPECIFIED: Encoding.JSON
}
PRIORITIES = {int(priority): priority for priority in Priority} | {
    task_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL
}

_SESSION_ORDERS = {int(order): order for order in SessionOrder} | {
    task_pb2.SESSION_ORDER_UNSPECIFIED: SessionOrder.SCHEDULED
}
_SESSION_POLICIES = {int(policy): policy for policy in SessionPolicy} | {
    task_pb2.SESSION_POLICY_UNSPECIFIED: SessionPolicy.SKIP
}


@dataclass(slots=True, eq=False)
class ProblemUnlessRepeatedError(Exception):
    """An item that may not be written now, but may have been written before: then it is answered as a repeat."""

    problem: Problem
    task: NewTask


def new_task(
    asked: frontend_pb2.NewTask, payload_limits: Mapping[str, int], horizon: timedelta, needs: Needs = ()
) -> NewTask:
    """Check one item, but for its resources, against the lambdas' payload limits (bytes) and the horizon.

    Raises:
        Problem: names the field and the fix.
        ProblemUnlessRepeatedError: its time has passed.
    """
    name: str = getattr(asked, "lambda")
    check_lambda_name("lambda", name)
    collection = asked.collection
    if collection:
        check_name("collection", collection)
    limit = payload_limits.get(name)
    if limit is None:
        raise Problem("lambda", unknown_lambda(name, payload_limits), task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
    payload = asked.payload
    if len(payload) > min(limit, HARD_PAYLOAD_LIMIT):
        raise payload_too_large(len(payload), limit, name)
    scheduled_at, delay = when(asked, horizon)
    key = asked.idempotency_key
    if key:
        _check_key(key)
    fair_key = asked.fair_key
    if fair_key:
        check_text("fair_key", fair_key, LONGEST_FAIR_KEY)
    expires_at = read_instant("expires_at", asked.expires_at) if asked.HasField("expires_at") else None
    attachments = task_uses(asked.attachments) if asked.attachments else ()
    given_id = asked.task_id
    # by position: so many keywords cost as much as the rest of the call
    task = NewTask(
        _task_id(given_id, key),
        name,
        payload,
        read_encoding(asked.payload_encoding, payload, attached=bool(attachments)),
        PRIORITIES.get(asked.priority) or _no_priority(asked.priority),
        collection,
        scheduled_at,
        delay,
        expires_at,
        key or None,
        read_session(asked.session) if asked.HasField("session") else None,
        needs,
        scheduler(),
        fair_key or None,
        attachments,
        new_unique(asked, attachments=bool(attachments)) if asked.unique else None,
        new_attributes(asked.attributes) if asked.attributes else (),
    )
    if given_id and abs(time.time() - _made_at(task.task_id)) > _ID_CLOCK_SLACK_S:
        raise ProblemUnlessRepeatedError(_NOT_OF_TODAY, task)
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise ProblemUnlessRepeatedError(_EXPIRED, task)
    return task


_said = attrgetter("lambda", "collection", "payload", "payload_encoding", "priority", "task_id", "fair_key")
_said_seldom = attrgetter("idempotency_key", "resources", "attachments", "unique", "attributes")
_PLAIN_ENCODINGS = frozenset(ENCODINGS) - {task_pb2.ENCODING_ENCRYPTED, task_pb2.ENCODING_ATTACHMENT}


def plain_tasks(
    messages: Sequence[frontend_pb2.NewTask], payload_limits: Mapping[str, int], horizon: timedelta
) -> list[NewTask] | None:
    """Check items by columns, and return their tasks. None: `new_task` is to check each, for not all are valid and plain.

    Most items of a large call differ by their id, payload and fair key only, so this takes a third of the time. An item is plain if it has
    an id, and none of the fields that few tasks have.
    """
    if any(map(any, map(_said_seldom, messages))):
        return None
    if any(message.HasField("session") or message.HasField("expires_at") for message in messages):
        return None
    names, collections, payloads, encodings, priorities, texts, fair_keys = zip(
        *map(_said, messages), strict=True
    )
    longest = max(map(len, payloads))
    task_ids = _ids_of_today(texts)
    if task_ids is None or not (
        _PLAIN_ENCODINGS.issuperset(encodings) and PRIORITIES.keys() >= {*priorities}
    ):
        return None
    try:
        for name in {*names}:
            check_lambda_name("lambda", name)
            if longest > min(payload_limits.get(name, -1), HARD_PAYLOAD_LIMIT):
                return None
        for collection in {*collections}:
            if collection:
                check_name("collection", collection)
        for fair_key in {*fair_keys}:
            if fair_key:
                check_text("fair_key", fair_key, LONGEST_FAIR_KEY)
        scheduled_at, delays = zip(*_times(messages, horizon), strict=True)
    except Problem:
        return None
    columns = (
        task_ids,
        names,
        payloads,
        map(ENCODINGS.__getitem__, encodings),
        map(PRIORITIES.__getitem__, priorities),
        collections,
        scheduled_at,
        delays,
        repeat(None),  # expires_at
        repeat(None),  # idempotency_key
        repeat(None),  # session
        repeat(()),  # resources
        repeat(scheduler()),
        (fair_key or None for fair_key in fair_keys),
        repeat(()),  # attachments
        repeat(None),  # unique
        repeat(()),  # attributes
    )
    return [*map(NewTask._make, zip(*columns, strict=False))]


def _times(
    messages: Sequence[frontend_pb2.NewTask], horizon: timedelta
) -> Iterator[tuple[datetime | None, timedelta | None]]:
    """Yield of each item what `when` returns; the clock is read once.

    Raises:
        Problem: as `when`.
    """
    latest = datetime.now(UTC) + horizon
    for message in messages:
        said = message.WhichOneof("when")
        if said is None:
            yield None, None
        elif said == "scheduled_at":
            yield _scheduled_at(message, horizon, latest), None
        else:
            yield when(message, horizon)


def _scheduled_at(
    asked: frontend_pb2.NewTask | frontend_pb2.TaskUpdate, horizon: timedelta, latest: datetime
) -> datetime:
    scheduled_at = read_instant("scheduled_at", asked.scheduled_at)
    if scheduled_at > latest:
        raise _too_far("scheduled_at", horizon)
    return scheduled_at


def _ids_of_today(texts: Sequence[str]) -> list[bytes] | None:
    """Return the bytes of ids that clients made by now; None: not all of them are such ids in their usual form."""
    if {*map(len, texts)} != {_ID_LENGTH}:
        return None
    joined = "".join(texts)
    if not _have_hyphens(joined):
        return None
    try:
        data = bytes.fromhex(joined.replace("-", ""))
    except ValueError:
        return None
    if len(data) != _ID_BYTES * len(texts):  # more hyphens, or blanks between digits
        return None
    if {byte >> 4 for byte in data[6::_ID_BYTES]} != {7} or {byte >> 6 for byte in data[8::_ID_BYTES]} != {
        0b10
    }:
        return None
    task_ids = [data[start : start + _ID_BYTES] for start in range(0, len(data), _ID_BYTES)]
    now = time.time()
    are_of_today = all(
        abs(now - _made_at(each)) <= _ID_CLOCK_SLACK_S for each in (min(task_ids), max(task_ids))
    )
    return task_ids if are_of_today else None


_NOT_OF_TODAY = Problem(
    "task_id",
    "its time is more than a day from now, and there is no such task: set the client's clock, or leave it out",
)
_EXPIRED = Problem("expires_at", "is in the past: the task could never run")


def parse_task_id(text: str, field: str = "task_id") -> bytes:
    """A task id's bytes.

    Raises:
        Problem: the text is not a UUID.
    """
    if is_canonical(text):
        # a fifth of what a UUID object costs; of 32 digits none was blank if they make 16 bytes
        try:
            task_id = bytes.fromhex(text.replace("-", ""))
        except ValueError:
            task_id = b""
        if len(task_id) == _ID_BYTES:
            return task_id
        raise _not_an_id(field)  # UUID() takes underscores and others' digits, too
    if len(text) > _LONGEST_ID:
        raise _not_an_id(field)
    try:
        return UUID(text).bytes
    except ValueError:
        raise _not_an_id(field) from None


def _not_an_id(field: str) -> Problem:
    return Problem(field, "not a task id: write a UUID such as 0192d3e4-5f60-7abc-8def-0123456789ab")


_HYPHENS = (8, 13, 18, 23)


def _have_hyphens(joined: str) -> bool:
    """Whether ids of 36 characters each, one behind the other, have hyphens where we write them."""
    return not any(joined[place::_ID_LENGTH].strip("-") for place in _HYPHENS)


def are_canonical(texts: Sequence[str]) -> bool:
    """Whether texts that are task ids are all written as we write them, in a third of the time of `is_canonical`."""
    joined = "".join(texts)
    return {*map(len, texts)} == {_ID_LENGTH} and _have_hyphens(joined) and joined == joined.lower()


def is_canonical(text: str) -> bool:
    """Whether text that is a task id is written as we write it: in lower case, with its four hyphens."""
    return len(text) == _ID_LENGTH and text[8:24:5] == "----" and text.islower()


def payload_too_large(size: int, limit: int, name: str) -> Problem:
    """What to say about a payload that exceeds its lambda's limit."""
    return Problem(
        "payload",
        f"{size:,} bytes exceed the {min(limit, HARD_PAYLOAD_LIMIT):,} that {name} takes: put large data elsewhere and "
        f"send its address, or raise the lambda's payload_limit (at most {HARD_PAYLOAD_LIMIT:,})",
        task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE,
    )


def read_encoding(value: int, payload: bytes, *, attached: bool = False) -> Encoding:
    """Return an encoding of the wire; `attached` says that the task uses attachments.

    Raises:
        Problem: there is no such encoding, or an encrypted payload does not name its key.
    """
    encoding = ENCODINGS.get(value) or _no_encoding(value)
    if encoding is Encoding.ENCRYPTED and not has_key_name(payload):
        raise Problem(
            "payload",
            "ENCODING_ENCRYPTED needs the bytes D0 01, the length of the key's name, the name, and the content",
        )
    if encoding is Encoding.ATTACHMENT and not attached:
        raise Problem("payload_encoding", "ENCODING_ATTACHMENT is for a new task that uses the attachment")
    return encoding


def has_key_name(payload: bytes) -> bool:
    """Whether encrypted bytes begin as they must; the statement `existing` reads the name of the key."""
    return len(payload) > 3 and payload.startswith(b"\xd0\x01") and len(payload) > 3 + payload[2] > 3


def read_priority(value: int) -> Priority:
    """Return a priority of the wire.

    Raises:
        Problem: there is no such priority.
    """
    return PRIORITIES.get(value) or _no_priority(value)


def _no_encoding(value: int) -> Never:
    raise Problem(
        "payload_encoding",
        f"{value} is not an encoding: use ENCODING_JSON, ENCODING_RAW, ENCODING_ENCRYPTED or ENCODING_ATTACHMENT",
    )


def _no_priority(value: int) -> Never:
    raise Problem("priority", f"{value} is not a priority: use URGENT, HIGH, NORMAL or LOW")


def when(
    asked: frontend_pb2.NewTask | frontend_pb2.TaskUpdate, horizon: timedelta
) -> tuple[datetime | None, timedelta | None]:
    """The two ways to say when; both are resolved by the store's clock, which also moves the past to now."""
    said = asked.WhichOneof("when")
    if said is None:
        return None, None
    if said == "scheduled_at":
        return _scheduled_at(asked, horizon, datetime.now(UTC) + horizon), None
    try:
        delay = from_duration(asked.delay)
    except ValueError as error:
        raise Problem("delay", str(error)) from error
    if delay < timedelta():
        raise Problem("delay", "must not be negative: leave it out to run the task now")
    if delay > horizon:
        raise _too_far("delay", horizon)
    return None, delay


def _too_far(field: str, horizon: timedelta) -> Problem:
    return Problem(
        field,
        f"may be at most {format_duration(horizon)} ahead (frontend.horizon): schedule it when that time is nearer, "
        "or let the operator raise the horizon",
    )


def _check_key(key: str) -> None:
    check_text("idempotency_key", key, _KEY_LIMIT)
    if key.startswith(TICK_KEYS):
        raise Problem("idempotency_key", f"must not begin with {TICK_KEYS!r}: the keys of ticks do")


def read_session(asked: task_pb2.Session) -> Session:
    """Return the session of a task.

    Raises:
        Problem: names the field and the fix.
    """
    check_session_key("session.key", asked.key)
    order = _SESSION_ORDERS.get(asked.order)
    if order is None:
        raise Problem(
            "session.order", f"{asked.order} is no order: use SESSION_ORDER_SCHEDULED or SESSION_ORDER_DUE"
        )
    policy = _SESSION_POLICIES.get(asked.on_failure)
    if policy is None:
        raise Problem("session.on_failure", f"{asked.on_failure} is no policy: use SKIP, BLOCK or FAIL_REST")
    return Session(asked.key, order, policy)


def check_session_key(field: str, key: str) -> str:
    """Check a session's key, and return it.

    Raises:
        Problem: names the field and the fix.
    """
    check_text(field, key, _KEY_LIMIT, least=1, remedy=": use a hash of a longer key")
    return key


def _task_id(text: str, key: str) -> bytes:
    if not text:
        return new_task_id().bytes
    if key:
        raise Problem("task_id", "say either task_id or idempotency_key: each alone makes a repeat safe")
    task_id = parse_task_id(text)
    # RFC 9562: 48 bits of milliseconds, 4 of version, 12 of anything, 2 of variant
    if task_id[6] >> 4 != 7 or task_id[8] >> 6 != 0b10:
        raise Problem("task_id", "must be a UUID of version 7, or be left out")
    return task_id


def is_of_the_future(task_id: bytes) -> bool:
    """Whether an id was made more than a day from now, by this host's clock."""
    return _made_at(task_id) - time.time() > _ID_CLOCK_SLACK_S


def _made_at(task_id: bytes) -> float:
    """Return when an id was made, in seconds since 1970."""
    return int.from_bytes(task_id[:6]) / 1000
