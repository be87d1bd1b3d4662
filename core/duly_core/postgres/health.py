"""Health that follows the store: NOT_SERVING while Postgres does not answer, or refuses what it is asked.

It also sees to it that a server that is cut off is left for the primary of now (primary.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import structlog

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.postgres.primary import leave_lost_server, may_lead_elsewhere
from duly_core.process.loop import wait_for
from duly_core.process.pace import USUAL, Pace

log = structlog.get_logger()

_LOOK_EVERY = timedelta(milliseconds=500)
_PING_AFTER = timedelta(seconds=1)
"""Whoever has work for the store needs no pings: only a store that was silent for this long is asked."""
_LAST_WORD = 1.0
"""Seconds, at most, to end the asking."""


class Server(Protocol):
    """Whose health it is."""

    async def set_serving(self, *, serving: bool) -> None:
        """Answer health checks so from now on."""


class HealthFollower:
    """Tells health checks SERVING, then what it sees, until `stop`."""

    def __init__(
        self,
        server: Server,
        stores: Sequence[Store],
        patience: timedelta,
        trouble: Callable[[], str | None] = lambda: None,
        pace: Pace = USUAL,
    ) -> None:
        """Make one.

        Args:
            server: whose health it is.
            stores: pools to the same Postgres; an answer to any of them counts, the first is used to ask.
            patience: how long Postgres may be silent.
            trouble: another reason not to serve; None: no other.
            pace: of the loops that look at the store.
        """
        self._server = server
        self._stores = stores
        self._patience = patience.total_seconds()
        self._trouble = trouble
        self._begun_at = float("inf")
        self._ping_after = _PING_AFTER.total_seconds()
        self._is_cell = pace.gives_back
        if self._is_cell:  # half of its patience is left for the answer
            self._ping_after = max(self._ping_after, self._patience / 2)

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until `stop`; the store has just answered when this begins."""
        self._begun_at = asyncio.get_running_loop().time()
        await self._server.set_serving(serving=True)
        asking = asyncio.ensure_future(self._keep_asking())
        looking = asyncio.ensure_future(self._keep_looking_for_the_primary())
        try:
            await self._follow(stop)
        finally:
            asking.cancel()
            looking.cancel()
            await asyncio.wait({asking, looking}, timeout=_LAST_WORD)  # Postgres may hang

    async def _follow(self, stop: asyncio.Event) -> None:
        serves = True
        while not await wait_for(stop, self._until_silent(self._patience) if serves else _LOOK_EVERY):
            silent_for = self._silent_for()
            reason = self._trouble() or self._refusal()
            if silent_for > self._patience:
                reason = f"Postgres has not answered for {silent_for:.1f} s"
            if (reason is None) is serves:
                continue
            serves = reason is None
            await self._server.set_serving(serving=serves)
            if serves:
                log.info("health: serving again")
            else:
                log.warning("health: not serving", reason=reason)

    async def _keep_asking(self) -> None:
        """The first pool's own bounds end each try."""
        while True:
            if self._silent_for() >= self._ping_after and self._is_our_turn():
                try:
                    await self._stores[0].ping()
                except (
                    StoreUnavailableError
                ):  # its silence is what counts; another service may have a connection
                    self._stores[0].answers.asked_at = float("-inf")
                except Exception:
                    log.exception("health: Postgres check failed")  # and is asked again: nobody else would
            await asyncio.sleep(self._until_silent(self._ping_after).total_seconds())

    def _is_our_turn(self) -> bool:
        """Whether nobody else of this process asks this Postgres now: one answer is one for all."""
        answers, now = self._stores[0].answers, asyncio.get_running_loop().time()
        if self._is_cell and now - answers.asked_at < _LOOK_EVERY.total_seconds():
            return False
        answers.asked_at = now
        return True

    def _until_silent(self, bound: float) -> timedelta:
        """Return when to look again: a cell's store cannot have been silent for so many seconds any sooner.

        What else may be wrong is seen within as long: of many cells each look costs all of them.
        """
        if not self._is_cell:
            return _LOOK_EVERY
        return max(_LOOK_EVERY, timedelta(seconds=bound - self._silent_for()))

    async def _keep_looking_for_the_primary(self) -> None:
        """The pools' connections may lead to a server that is gone."""
        if not may_lead_elsewhere(self._stores[0].settings):
            return
        while True:
            try:
                if await leave_lost_server(self._stores[0].settings):
                    await asyncio.gather(*(store.discard_broken() for store in self._stores))
            except StoreUnavailableError:
                pass  # the password cannot be read now
            except Exception:
                log.exception("health: Postgres's primary not looked for")
            await asyncio.sleep(_LOOK_EVERY.total_seconds())

    def _refusal(self) -> str | None:
        return next((reason for store in self._stores if (reason := store.refusal())), None)

    def _silent_for(self) -> float:
        answered_at = max(store.answers.at for store in self._stores)
        return asyncio.get_running_loop().time() - max(self._begun_at, answered_at)
