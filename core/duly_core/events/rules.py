"""What callbacks wait for, and the bounds of events. Pure data."""

from datetime import timedelta
from typing import NamedTuple

PARKED_ON = "event:"
"""What a task is parked on that waits for events."""

KEY_LIMIT = 255
"""Bytes of a key, and of an event's id."""
VALUE_LIMIT = 64 * 1024
MOST_KEPT = 1_000
"""Events of one key that are kept at a time."""
MOST_GIVEN_AT_ONCE = 500
"""Waits that one transaction ends: a key may have many more."""

NAME_LIMIT = 128
"""Bytes of the name of a wait."""
MOST_KEYS = 16
"""Of one wait."""
SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(days=365)

MOST_RECEIVED = 100
"""Events that a task may have received, and still wait for another."""
MOST_RECEIVED_BYTES = 512 * 1024
"""Of what it received, as the store has it."""


REASON_LIMIT = 300
"""Bytes of why a callback refused an event."""


class RefusedEvent(NamedTuple):
    """An event that a callback received, and cannot read."""

    key: str
    reason: str
    """Without what is in the event."""


class EventWait(NamedTuple):
    """What a callback waits for."""

    name: str
    """The same in each run of the callback; no other of its waits has it."""
    keys: tuple[str, ...]
    """Each once, of the namespace of the task's lambda."""
    needs_all: bool
    """Ends with the last of the keys, not with the first."""
    timeout: timedelta
    refused: tuple[RefusedEvent, ...] = ()
    """What it received in this wait, and cannot read: it waits for another, as long as it would have waited for the first."""
