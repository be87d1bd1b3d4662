"""What a server remembers of tokens and grants: all of them, compared with the store every two seconds."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.access.grants import Access, Grant, together
from duly_core.access.principal import Principal, group_principal
from duly_core.access.roles import Role
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store, StoreNow, store_now
from duly_core.process.newer_values import known

FRESH = timedelta(seconds=2)
"""How long a grant or token that was taken away may still be honoured."""

STALE = timedelta(minutes=1)
"""How long the same while the store does not answer: what is admitted needs the store anyway."""

UNKNOWN = timedelta(milliseconds=200)
"""How soon the store is asked again for a token that is not known, for all callers together: guesses load it no more than that."""

_MOST_REMEMBERED = 10_000
"""Callers whose access is remembered. An identity provider may name any number of people in a group."""

RETRY = timedelta(seconds=1)
"""How soon a store that did not answer is asked again."""

_PATIENCE = timedelta(seconds=1)
"""How long the own cell may take where another one has the same."""

_OWN_AGAIN = timedelta(seconds=10)
"""How long other cells are asked in the place of one that did not answer."""

_VERSION = "select version from access_version"
_VERSION_AND_FENCE = (
    "select version, (select state = 'fenced' from cell_directory) as is_fenced from access_version"
)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    version: int
    store: Store | None
    """Versions of two stores have nothing to do with each other."""
    own: Store | None
    """The own cell's when it was read: what was read before that cell moved holds no more."""
    tokens: dict[bytes, tuple[str, datetime | None]]
    grants: dict[str, list[Grant]]
    access: dict[tuple[str, tuple[str, ...]], Access] = field(default_factory=dict)


class AccessCache:
    """Unknown tokens cost a statement five times a second, however many come: so nobody can load the store with guesses."""

    def __init__(
        self,
        store: Store | StoreNow,
        others: Callable[[], Sequence[Store]] = tuple,
        on_fence: Callable[[], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            store: has the tokens and grants.
            others: returns the stores of other cells, which have the same: they are asked while this one does not answer.
            on_fence: called when the store's cell moves, or did: the store may be the former place; None: it is no cell.
        """
        self._own = store_now(store)
        self._others = others
        self._on_fence = on_fence
        self._own_away_until = float("-inf")
        self._snapshot = _Snapshot(-1, None, None, {}, {})
        self._read_at = self._failed_at = float("-inf")
        self._failure = ""
        self._lock = asyncio.Lock()

    async def token_holder(self, digest: bytes) -> Principal | None:
        """Return whose token has this SHA-256; None: it is unknown or revoked. It may have expired.

        Raises:
            StoreUnavailableError: what is remembered is too old, and the store does not answer.
        """
        found = (await self._fresh()).tokens.get(digest) or (await self._fresh(UNKNOWN)).tokens.get(digest)
        return None if found is None else Principal(*found)

    async def access_of(self, principal: str, groups: tuple[str, ...] = ()) -> Access:
        """Return what a principal may do: by its own grants, and by those of its groups.

        Raises:
            StoreUnavailableError: what is remembered is too old, and the store does not answer.
        """
        snapshot = await self._fresh()
        access = snapshot.access.get((principal, groups))
        if access is None:
            grants = snapshot.grants.get(principal, [])
            by_groups = [
                grant for group in groups for grant in snapshot.grants.get(group_principal(group), ())
            ]
            access = Access(principal, together(grants, by_groups) if by_groups else grants, groups)
            if grants or by_groups:  # others are anybody that a JWT or a certificate names
                if len(snapshot.access) >= _MOST_REMEMBERED:
                    snapshot.access.clear()
                snapshot.access[principal, groups] = access
        return access

    async def _fresh(self, longest: timedelta | None = None) -> _Snapshot:
        limit = (longest or FRESH).total_seconds()
        if self._age() > limit:
            came_at = time.monotonic()
            async with self._lock:
                # of the calls that waited here while one asked without an answer, each would wait as long for itself
                failed_now = time.monotonic() - self._failed_at < RETRY.total_seconds()
                if self._failed_at >= came_at and self._age() > STALE.total_seconds():
                    raise StoreUnavailableError(self._failure)
                if self._age() > limit and not (failed_now and self._age() <= STALE.total_seconds()):
                    try:
                        await self._read()
                    except StoreUnavailableError as error:
                        self._failed_at, self._failure = time.monotonic(), str(error)
                        if self._age() > STALE.total_seconds():
                            raise
        return self._snapshot

    def _age(self) -> float:
        if self._snapshot.own is not self._own():
            return float("inf")
        return time.monotonic() - self._read_at

    async def _read(self) -> None:
        others, own = self._others(), self._own()
        if not others:
            await self._read_from(own, own)
            return
        failure: StoreUnavailableError | None = None
        if time.monotonic() >= self._own_away_until:
            try:
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    await self._read_from(own, own)
            except TimeoutError:
                failure = StoreUnavailableError(f"no answer within {_PATIENCE.total_seconds():g} s")
            except StoreUnavailableError as error:
                failure = error
            else:
                return
            self._own_away_until = time.monotonic() + _OWN_AGAIN.total_seconds()
        for store in others:
            try:
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    await self._read_from(store, own)
            except (TimeoutError, StoreUnavailableError) as error:
                failure = failure or StoreUnavailableError(str(error))
            else:
                return
        self._own_away_until = float("-inf")
        raise failure or StoreUnavailableError("no cell answers")

    async def _read_from(self, store: Store, own: Store) -> None:
        asked_at = time.monotonic()
        async with store.connection() as connection, connection.cursor() as cursor:
            await cursor.execute(_VERSION if self._on_fence is None else _VERSION_AND_FENCE)
            row = await cursor.fetchone()
            version = row[0] if row else 0
            if self._on_fence is not None and row and row[1]:
                self._on_fence()
            known_by = self._snapshot.version, self._snapshot.store, self._snapshot.own
            if (version, store, own) != known_by:
                await cursor.execute(
                    "select digest, principal, expires_at from access_token where revoked_at is null"
                )
                tokens = {
                    bytes(digest): (name, expires_at) for digest, name, expires_at in await cursor.fetchall()
                }
                await cursor.execute("select principal, role, pattern from role_grant")
                grants = defaultdict(list)
                for name, text, pattern in await cursor.fetchall():
                    if role := known(Role, text):
                        grants[name].append(Grant(name, role, pattern))
                self._snapshot = _Snapshot(version, store, own, tokens, dict(grants))
        self._read_at = asked_at
