"""Between the wire's waits for events and the store's shapes; checks what it reads."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from duly_core.errors import InvalidRequestError
from duly_core.events.rules import (
    KEY_LIMIT,
    LONGEST_WAIT,
    MOST_KEYS,
    NAME_LIMIT,
    REASON_LIMIT,
    SHORTEST_WAIT,
    EventWait,
    RefusedEvent,
)
from duly_core.rpc.requests.checks import check_text, read_duration
from duly_wire.v1 import hsc_pb2


def read_wait(field: str, message: hsc_pb2.EventWait) -> EventWait:
    """Read what a callback waits for.

    Raises:
        InvalidRequestError: a field lacks, or is out of its bounds.
    """
    check_text(f"{field}.name", message.name, NAME_LIMIT, least=1)
    keys = tuple(message.keys)
    if not 1 <= len(keys) <= MOST_KEYS or len({*keys}) < len(keys):
        raise InvalidRequestError(f"{field}.keys", f"must be 1 to {MOST_KEYS} keys, each once")
    for key in keys:
        check_text(f"{field}.keys", key, KEY_LIMIT, least=1)
    if not message.HasField("timeout"):
        raise InvalidRequestError(f"{field}.timeout", "a task that waits for an event must say for how long")
    timeout = read_duration(f"{field}.timeout", message.timeout, LONGEST_WAIT, least=SHORTEST_WAIT)
    return EventWait(message.name, keys, message.needs_all, timeout, _refused(field, message, keys))


def _refused(field: str, message: hsc_pb2.EventWait, keys: tuple[str, ...]) -> tuple[RefusedEvent, ...]:
    refused = {each.key: each.reason for each in message.refused}
    if len(refused) < len(message.refused) or not refused.keys() <= {*keys}:
        raise InvalidRequestError(f"{field}.refused", "must be of the keys of this wait, each once")
    return tuple(RefusedEvent(key, _reason(reason)) for key, reason in refused.items())


def _reason(text: str) -> str:
    line = " ".join(text[:REASON_LIMIT].split()).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return line.encode()[:REASON_LIMIT].decode(errors="ignore")


def write_received(received: Sequence[Mapping[str, Any]], message: hsc_pb2.ClaimedTask) -> None:
    """Write what a callback received in runs before."""
    for each in received:
        if "refused" in each:
            continue
        event = message.received.add(wait=each["wait"] or "")
        if each.get("timed_out"):
            event.timed_out = True
            continue
        event.key = each["key"]
        event.value = b64decode(each["value"])
        event.value_encoding = each["encoding"]
        event.sent_by = each.get("sent_by", "")
        event.sent_at.FromMicroseconds(each["sent_at"])
