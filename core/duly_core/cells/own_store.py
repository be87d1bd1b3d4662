"""Connections to the own cell, at the place that the directory names: a cell that moved leaves an old copy behind."""

import asyncio
from typing import Self

import structlog

from duly_core.cells.follower import DirectoryFollower
from duly_core.postgres.dsn import place_of
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings

log = structlog.get_logger()

_CONNECTIONS = 2
"""To read who may do what, and to write the audit log: apart from the calls of the own cell."""


class OwnStore:
    """What a process reads and writes by itself in its own cell: tokens, grants, the audit log.

    The former place of a cell refuses writes only. So tokens that were revoked since the move would be read there without an error.
    """

    def __init__(self, follower: DirectoryFollower) -> None:
        """Make one; the directory may not be known yet."""
        self._follower = follower
        self._turn = asyncio.Lock()
        self._following: set[asyncio.Task[None]] = set()
        self._store = self._made()

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        self._follower.on_change(lambda _: self._changed())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following:
            await asyncio.wait(self._following)
        await self._store.__aexit__()

    def now(self) -> Store:
        """Return the store at the present place."""
        return self._store

    async def follow(self) -> None:
        """Go where the directory says that the cell is, if that is elsewhere."""
        async with self._turn:
            made = self._made()
            before = self._store
            if _place(made.settings) == _place(before.settings):
                return
            await made.__aenter__()
            self._store = made
            log.info("own cell is elsewhere", store=made.where, before=before.where)
            await before.__aexit__()

    def _made(self) -> Store:
        return Store(self._follower.own_settings().model_copy(update={"connections": _CONNECTIONS}))

    def _changed(self) -> None:
        following = asyncio.ensure_future(self.follow())
        self._following.add(following)
        following.add_done_callback(self._following.discard)


def _place(settings: StoreSettings) -> tuple[str, str]:
    """Return what tells two places apart: one may be written as a URI, and its schema may go without saying."""
    return place_of(settings.dsn), settings.schema_name or "public"
