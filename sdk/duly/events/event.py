"""Events as a client sends and reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from duly.callbacks.codec import event_of, protect, reveal_if_possible, value_or_sign
from duly.callbacks.payload import encode
from duly.transport.message_fields import view
from duly_wire.v1 import events_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is to be sent."""

    key: str
    # Bytes, or anything JSON can carry; at most 64 KiB.
    value: Any = None
    # That of the lambdas whose tasks wait for it: what stands before `/` in their names.
    namespace: str = ""
    # Events of one key and one id are one event.
    event_id: str = field(default_factory=lambda: str(uuid4()))

    def to_proto(self, codec: Codec | None) -> events_pb2.NewEvent:
        """Return its message. Raises EncodingError."""
        bound_to = event_of(self.namespace, self.key)
        data, encoding = protect(codec, encode(self.value), bound_to, self.event_id)
        return events_pb2.NewEvent(
            key=self.key,
            namespace=self.namespace,
            value=data,
            value_encoding=encoding,
            event_id=self.event_id,
        )


@dataclass(frozen=True, slots=True)
class SentEvent:
    """What came of an event that was sent."""

    event_id: str
    # The tasks that waited for it, and received it now. 0: it is kept for a task that waits later.
    receivers: int
    # An event of this key and id was sent before: nothing was done.
    is_repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvent:
    """An event that is kept for tasks that wait for it later."""

    event_id: str
    # None, if the caller may not see payloads; an EncryptedPayload, if this client cannot decrypt it.
    value: Any
    value_withheld: bool
    sent_by: str
    sent_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWaiter:
    """A task that waits for events of a key."""

    task_id: str
    lambda_name: str
    # Its wait ends with the last of its keys, not with the first.
    needs_all: bool
    # When its time is over.
    until_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKey:
    """What there is of a key. Lists have the number of events only."""

    key: str
    namespace: str
    # How many are kept.
    event_count: int
    # The newest 100, oldest first.
    events: tuple[KeptEvent, ...] = ()
    # At most 100.
    waiters: tuple[EventWaiter, ...] = ()

    @classmethod
    def from_proto(cls, message: events_pb2.EventKey, codec: Codec | None) -> EventKey:
        """Return the view of a key as it came over the wire."""
        bound_to = event_of(message.namespace, message.key)
        return cls(
            key=message.key,
            namespace=message.namespace,
            event_count=message.event_count or len(message.events),
            events=tuple(_kept(each, codec, bound_to) for each in message.events),
            waiters=tuple(view(EventWaiter, each) for each in message.waiters),
        )


def _kept(event: events_pb2.Event, codec: Codec | None, bound_to: bytes) -> KeptEvent:
    data, encoding = reveal_if_possible(codec, event.value, event.value_encoding, bound_to)
    value = None if event.value_withheld else value_or_sign(data, encoding)
    return view(KeptEvent, event, value=value)
