"""Hold what a client asks of unique keys against the rules."""

from datetime import timedelta
from hashlib import sha256
from typing import TypeVar

from google.protobuf.message import DecodeError

from duly_core.rpc.requests.checks import check_text, read_duration
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.task import Debounce, Unique
from duly_wire.enums import HeldWhile, OnConflict
from duly_wire.v1 import frontend_pb2, task_pb2

LONGEST_PERIOD = timedelta(days=31)
LONGEST_DEBOUNCE = timedelta(days=7)
_SHORTEST_WAIT = timedelta(milliseconds=1)
_LONGEST_KEY = 255
_MOST_BYTES = 1024
_HELD_WHILE = {0: HeldWhile.PENDING} | {int(each): each for each in HeldWhile}
_ON_CONFLICT = {0: OnConflict.IGNORE} | {int(each): each for each in OnConflict}

Member = TypeVar("Member")


def new_unique(asked: frontend_pb2.NewTask, *, attachments: bool) -> Unique:
    """Return what a new task says of its unique key; `attachments`: it uses some.

    Raises:
        Problem: names the field and the fix.
    """
    said = _parse(asked.unique)
    key = said.key
    if key:
        check_text("unique.key", key, _LONGEST_KEY, remedy=": use a hash of a longer key")
    if said.HasField("debounce"):
        unique = _debounced(asked, said)
    else:
        if not key:
            key = _digest(asked)
        period = timedelta()
        if said.HasField("period"):
            period = read_duration("unique.period", said.period, LONGEST_PERIOD)
        unique = Unique(
            key,
            _member(
                "unique.held_while", said.held_while, _HELD_WHILE, "HELD_WHILE_PENDING or HELD_WHILE_LIVE"
            ),
            period,
            _member(
                "unique.on_conflict",
                said.on_conflict,
                _ON_CONFLICT,
                "ON_CONFLICT_IGNORE, ON_CONFLICT_REJECT or ON_CONFLICT_REPLACE",
            ),
        )
    if unique.on_conflict is OnConflict.REPLACE:
        what = "a debounced task" if unique.debounce else "a task that replaces another"
        if asked.idempotency_key:
            raise Problem("idempotency_key", f"{what} has a task_id in its place, which makes repeats safe")
        if attachments:
            raise Problem("attachments", f"{what} cannot use attachments: send the address of the data")
        if asked.HasField("session") and asked.session.order == task_pb2.SESSION_ORDER_DUE:
            raise Problem("session.order", f"{what} moves the due time: use SESSION_ORDER_SCHEDULED")
    return unique


def _parse(data: bytes) -> frontend_pb2.Unique:
    if len(data) > _MOST_BYTES:
        raise Problem("unique", f"must be at most {_MOST_BYTES:,} bytes, not {len(data):,}")
    try:
        return frontend_pb2.Unique.FromString(data)
    except DecodeError as error:
        raise Problem("unique", "must be a serialized duly.v1.Unique") from error


def _debounced(asked: frontend_pb2.NewTask, said: frontend_pb2.Unique) -> Unique:
    for field in ("held_while", "on_conflict"):
        if getattr(said, field):
            raise Problem(f"unique.{field}", "a debounce says it: leave it out")
    if said.HasField("period"):
        raise Problem("unique.period", "a debounce has none: leave it out")
    if asked.WhichOneof("when") is not None:
        raise Problem(asked.WhichOneof("when") or "", "a debounce says when to run: leave it out")
    if not said.key:
        raise Problem("unique.key", "a debounce needs one: the latest payload of the key is run")
    debounce = said.debounce
    if not debounce.HasField("at_most"):
        raise Problem(
            "unique.debounce.at_most",
            "is needed: without it, calls that do not pause put the task off for ever",
        )
    wait = read_duration("unique.debounce.wait", debounce.wait, LONGEST_DEBOUNCE, least=_SHORTEST_WAIT)
    at_most = read_duration("unique.debounce.at_most", debounce.at_most, LONGEST_DEBOUNCE)
    if at_most < wait:
        raise Problem("unique.debounce.at_most", "must not be shorter than wait")
    return Unique(said.key, on_conflict=OnConflict.REPLACE, debounce=Debounce(wait, at_most))


def _digest(asked: frontend_pb2.NewTask) -> str:
    if asked.payload_encoding == task_pb2.ENCODING_ENCRYPTED:
        raise Problem(
            "unique.key", "is needed for an encrypted payload: the same content is never encrypted alike"
        )
    encoding = asked.payload_encoding or task_pb2.ENCODING_JSON
    return f"payload:{sha256(encoding.to_bytes(4) + asked.payload).hexdigest()}"


def _member(field: str, value: int, members: dict[int, Member], names: str) -> Member:
    member = members.get(value)
    if member is None:
        raise Problem(field, f"{value} is unknown: use {names}")
    return member
