"""Make addresses, look at them, and use them: each once."""

import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from duly_core.events import store as store_events
from duly_core.events.store import EventKeyId, NewEvent, SentAll
from duly_core.postgres.arrays import byteas, intervals, texts
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import load

ADDRESSES = load("event_addresses/addresses.sql")

MOST_OF_KEY = 100
"""Addresses of one key that can be used."""
TITLE_LIMIT = 2_048
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=365)
_TOLD_FOR = timedelta(days=30)
_PAGE = 1_000
_EVERY = timedelta(minutes=10)
_SENDER = "address"


class State(Enum):
    """How an address stands."""

    OPEN = "open"
    USED = "used"
    OVER = "over"
    UNKNOWN = "unknown"


class NewAddress(NamedTuple):
    """An address that is to be made."""

    key: EventKeyId
    title: str
    lifetime: timedelta


class Claim(NamedTuple):
    """The right of the callback that makes addresses."""

    task_id: UUID
    token: UUID


class Address(NamedTuple):
    """What people see of an address."""

    state: State
    title: str = ""
    expires_at: datetime | None = None


class Made(NamedTuple):
    """An address that was made."""

    token: str
    expires_at: datetime


class Used(NamedTuple):
    """What came of a use."""

    state: State
    """OPEN: the event was sent now."""
    sent: SentAll | None = None


class TooManyKeptError(Exception):
    """The key has as many events as may be kept: the address was not used."""


def hash_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


async def create(
    store: Store, addresses: Sequence[NewAddress], created_by: str | None, claim: Claim | None = None
) -> list[Made | None]:
    """Make addresses; their tokens, and when they end; None: the key has too many, or the claim is lost.

    With `claim` they are of its task: the first use of those for one key is the only one.

    Raises:
        StoreUnavailableError: the outcome is unknown; what was made is of no use to anybody.
    """
    tokens = [secrets.token_urlsafe(32) for _ in addresses]
    hashes = [hash_of(token) for token in tokens]
    rows = await store.run(
        ADDRESSES["create_event_addresses"],
        {
            "hashes": byteas(hashes),
            "keys": texts([str(each.key) for each in addresses]),
            "titles": texts([each.title for each in addresses]),
            "lifetimes": intervals([each.lifetime for each in addresses]),
            "created_by": created_by,
            "most": MOST_OF_KEY,
            "task_id": claim.task_id if claim else None,
            "claim_token": claim.token if claim else None,
        },
    )
    ends = {bytes(digest): expires_at for digest, expires_at in rows}
    return [
        Made(token, ends[digest]) if digest in ends else None
        for token, digest in zip(tokens, hashes, strict=True)
    ]


async def look(store: Store, token: str) -> Address:
    """Return how an address stands. It changes nothing.

    Raises:
        StoreUnavailableError: ask again.
    """
    return _address(await store.run(ADDRESSES["event_address"], {"hash": hash_of(token)}))


def _address(rows: Sequence[tuple[object, ...]]) -> Address:
    if not rows:
        return Address(State.UNKNOWN)
    ((_, title, _, expires_at, used_at, is_over),) = rows
    state = State.USED if used_at is not None else State.OVER if is_over else State.OPEN
    assert isinstance(title, str)  # noqa: S101 (the columns of the statement)
    assert isinstance(expires_at, datetime)  # noqa: S101
    return Address(state, title, expires_at)


async def use(
    store: Store,
    token: str,
    value: bytes,
    encoding: int,
    kept_for: timedelta,
    tell: Callable[[Collection[str]], None],
) -> Used:
    """Send the event of an address, once; all or nothing. `tell` is told after each page of the lambdas that are due.

    Raises:
        TooManyKeptError: nothing was changed.
        StoreUnavailableError: the outcome is unknown; a repeat is told that the address was used.
    """
    digest = hash_of(token)
    async with store.connection() as connection, connection.transaction():
        rows = await fetch(connection, ADDRESSES["use_event_address"], {"hash": digest})
        if not rows:
            return Used(_address(await fetch(connection, ADDRESSES["event_address"], {"hash": digest})).state)
        ((key, created_by, task_id),) = [row for is_asked, *row in rows if is_asked]
        maker = f"task {UUID(bytes=task_id)}" if task_id else created_by
        sender = f"{_SENDER} of {maker}" if maker else _SENDER
        event = NewEvent(EventKeyId.parse(key), f"{_SENDER}:{digest.hex()}", value, encoding, sender[:255])
        sent = await store_events.send_within(connection, [event], kept_for)
        if sent.answers[0].is_refused:
            raise TooManyKeptError
    if sent.due:
        tell(sent.due)
    return Used(State.OPEN, await store_events.finish(store, sent, tell))


class AddressSweep:
    """Removes addresses that are over for long. Several may sweep at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> timedelta:
        """Sweep; return when to go on.

        Raises:
            StoreUnavailableError: some are left for another time.
        """
        asked = {"told_for": _TOLD_FOR, "limit": _PAGE}
        gone = await self._store.run(ADDRESSES["forget_event_addresses"], asked)
        return timedelta(milliseconds=100) if len(gone) == _PAGE else _EVERY
