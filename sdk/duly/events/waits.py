"""The waits of one attempt: each returns what was received in runs before, or ends the attempt. Free of gRPC."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from duly.callbacks.codec import event_of, reveal
from duly.callbacks.payload import decode
from duly.callbacks.validation import reader_for
from duly.errors import EventTimeoutError, PayloadError
from duly.events.received import ReceivedEvent
from duly_wire.time_conversion import to_datetime, to_duration
from duly_wire.v1 import hsc_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from duly.callbacks.codec import Codec

    Received: TypeAlias = Sequence[hsc_pb2.ReceivedEvent]
    Lookup: TypeAlias = Callable[[str, Sequence[str], bool], Received]
    """What was received in a wait, by its name, its keys and whether it needs all."""

KEY_LIMIT_BYTES = 255
MOST_KEYS = 16
_SHORTEST = timedelta(seconds=1)
_LONGEST = timedelta(days=365)
_REASON = 300
"""Characters of why a value is refused."""


class WaitsForEvent(BaseException):
    """Ends the attempt: its callback waits for an event. No Exception, so that no `except Exception` swallows it."""

    def __init__(self, wait: hsc_pb2.EventWait) -> None:
        super().__init__(f"waits for an event: {', '.join(wait.keys)}")
        self.wait = wait


class Waits:
    """Those of one attempt, in the order in which the callback asks for them."""

    __slots__ = ("_codec", "_lookup", "_namespace", "_seen")

    def __init__(self, lookup: Lookup, lambda_name: str, codec: Codec | None) -> None:
        self._lookup = lookup
        self._namespace = namespace_of(lambda_name)
        self._codec = codec
        self._seen: Counter[str] = Counter()

    def wait(
        self, keys: Sequence[str], kind: object, timeout: timedelta, *, needs_all: bool
    ) -> list[ReceivedEvent]:
        """Return what was received: of one key, or with `needs_all` of each, in their order.

        Raises:
            WaitsForEvent: nothing was received yet, or what was is not of this type.
            EventTimeoutError: the time of this wait is over.
        """
        check_keys(keys)
        check_timeout(timeout)
        read = reader_for(kind)
        name = self._name(keys, needs_all=needs_all)
        received = self._lookup(name, keys, needs_all)
        events = {each.key: each for each in received if not each.timed_out}
        if len(events) >= (len(keys) if needs_all else 1):
            return self._read_all(
                name, [events[key] for key in keys if key in events], keys, read, timeout, needs_all=needs_all
            )
        if len(events) < len(received):
            missing = tuple(key for key in keys if key not in events)
            error = EventTimeoutError(f"no event {' or '.join(missing)} came within {timeout}")
            error.keys = missing
            raise error
        missing = tuple(key for key in keys if key not in events)
        raise WaitsForEvent(_wait(name, missing, timeout, needs_all=needs_all))

    def _read_all(
        self,
        name: str,
        events: Sequence[hsc_pb2.ReceivedEvent],
        keys: Sequence[str],
        read: Callable[[Any], Any],
        timeout: timedelta,
        *,
        needs_all: bool,
    ) -> list[ReceivedEvent]:
        """Read values. Those that do not fit are refused, and the wait goes on: its sender may send another."""
        values: list[ReceivedEvent] = []
        refused: dict[str, str] = {}
        for event in events:
            try:
                values.append(self._read(event, read))
            except PayloadError as error:
                refused[event.key] = f"value{error.path}: {error.problem}"
        if not refused:
            return values
        wait = _wait(name, [*refused] if needs_all else keys, timeout, needs_all=needs_all)
        for key, reason in refused.items():
            wait.refused.add(key=key, reason=reason[:_REASON])
        raise WaitsForEvent(wait)

    def _name(self, keys: Iterable[str], *, needs_all: bool) -> str:
        """Return the name of this wait: its keys, and how many with the same keys came before it."""
        what = "all" if needs_all else "first"
        digest = hashlib.sha256("\0".join(sorted(keys)).encode()).hexdigest()[:32]
        self._seen[name] = number = self._seen[name := f"{what}:{digest}"] + 1
        return f"{name}:{number}"

    def _read(self, event: hsc_pb2.ReceivedEvent, read: Callable[[Any], Any]) -> ReceivedEvent:
        bound_to = event_of(self._namespace, event.key)
        data, encoding = reveal(self._codec, event.value, event.value_encoding, bound_to)
        value = read(decode(data, encoding))
        return ReceivedEvent(event.key, value, event.sent_by, to_datetime(event.sent_at))


def _wait(name: str, keys: Iterable[str], timeout: timedelta, *, needs_all: bool) -> hsc_pb2.EventWait:
    return hsc_pb2.EventWait(name=name, keys=keys, needs_all=needs_all, timeout=to_duration(timeout))


def received_before(received: Received) -> Lookup:
    """Return the lookup of what a claim brought."""
    return lambda name, _keys, _needs_all: [each for each in received if each.wait == name]


def namespace_of(lambda_name: str) -> str:
    """Return what stands before the slash in a lambda's name."""
    return lambda_name.rpartition("/")[0]


def check_keys(keys: Sequence[str]) -> None:
    """Refuse what the store would refuse. Raises TypeError, ValueError."""
    if not 1 <= len(keys) <= MOST_KEYS or len({*keys}) < len(keys):
        raise ValueError(f"wait for 1 to {MOST_KEYS} keys, each once, not {len(keys)}")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"a key must be a str, not {type(key).__name__}")
        if not 1 <= len(key.encode()) <= KEY_LIMIT_BYTES or "\0" in key:
            raise ValueError(f"a key must have 1 to {KEY_LIMIT_BYTES} bytes without NUL, not {key!r}")


def check_timeout(timeout: timedelta) -> None:
    """Refuse what the store would refuse. Raises TypeError, ValueError."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout must be a timedelta, not {type(timeout).__name__}")
    if not _SHORTEST <= timeout <= _LONGEST:
        raise ValueError(f"timeout must be between 1 s and {_LONGEST.days} days, not {timeout}")
