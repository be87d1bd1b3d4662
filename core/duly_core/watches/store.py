"""Begin and keep watches, and read what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store
from duly_core.watches.presence import FIRST_BEGINS_AFTER
from duly_core.watches.rules import WATCH_BEGAN, Cursor, Event, WatchFilter
from duly_core.watches.statements import WATCHES

MOST, MOST_OF_ONE = 2_000, 200
"""Watches of a store, and of one principal."""


class Begun(Enum):
    """What came of a call that begins a watch."""

    AT_ONCE = auto()
    AFTER_A_WHILE = auto()
    """It is the first of the store: some services may not know of it for `FIRST_BEGINS_AFTER`."""
    TOO_MANY = auto()


class KeptWatch(NamedTuple):
    """A watch that is there."""

    filter: str
    source: str
    source_now: str
    """Another one: the numbers of its transactions mean nothing any more."""
    began_xid: int
    began_seq: int
    keep_for: timedelta


@dataclass(frozen=True, slots=True)
class Page:
    """What happened next."""

    events: Sequence[Event]
    end: Cursor
    """Where a reader is that has read them."""
    is_last: bool
    """Nothing else is over yet."""
    has_gap: bool
    """Some of what came next was removed."""
    head: int
    """All transactions below it are over."""
    ahead: int
    """No transaction has this number yet."""


async def begin(
    store: Store,
    watch_id: bytes,
    principal: str,
    asked: WatchFilter,
    keys: Sequence[str],
    keep_for: timedelta,
) -> Begun:
    """Begin a watch; where nobody is asked who they are the principal is empty, and may have all that there may be.

    `keys`: what is to be written for it (WatchFilter.keys).

    Raises:
        StoreUnavailableError: the outcome is unknown; begin it again with the same id.
    """
    ((is_there, is_first),) = await store.run(
        WATCHES["begin_watch"],
        {
            "watch_id": UUID(bytes=watch_id),
            "principal": principal,
            "filter": str(asked),
            "keys": texts(keys),
            "keep_for": keep_for,
            "most": MOST,
            "most_of_one": MOST_OF_ONE if principal else MOST,
            "first_after": FIRST_BEGINS_AFTER,
        },
    )
    if not is_there:
        return Begun.TOO_MANY
    return Begun.AFTER_A_WHILE if is_first else Begun.AT_ONCE


async def keep(store: Store, watch_id: bytes, principal: str) -> KeptWatch | None:
    """Keep a watch of a principal for its time again, and return it; None: it is not there, or it is another's.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(WATCHES["renew_watch"], {"watch_id": UUID(bytes=watch_id), "principal": principal})
    return KeptWatch(*rows[0]) if rows else None


async def read(store: Store, after: Cursor, limit: int) -> Page:
    """Return what happened after a position, of all that anybody watches.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(WATCHES["events_after"], after._asdict() | {"limit": limit})
    xmin, xmax, has_gap = rows[0][:3]
    found = [Event(*row[3:]) for row in rows if row[3] is not None]
    is_last = len(found) < limit
    end = max(after, Cursor(xmin)) if is_last else found[-1].cursor
    events = [event for event in found if event.kind != WATCH_BEGAN]
    return Page(events, end, is_last, has_gap, xmin, xmax)
