"""Notifications that rows are due, by NOTIFY: never needed, only sooner. The poll finds everything without them."""

import asyncio
import re
from collections.abc import Callable, Collection
from datetime import timedelta

import psycopg
import structlog
from psycopg import sql

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.channels import (
    CHANNELS,
    DUE_CHANNEL,
    GATE_CHANNEL,
    NEW_LAMBDA_CHANNEL,
    SETTING_CHANNEL,
    TIME_TABLE_CHANNEL,
)
from duly_core.postgres.connection import Connection
from duly_core.postgres.listener_group import ListenerGroup
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.pool import Row, Step, Store, connect_arguments_now
from duly_core.postgres.rate_detector import STREAM_GAP, RateDetector
from duly_core.postgres.settings import StoreSettings, direct
from duly_core.process.loop import backoff
from duly_core.process.pace import USUAL, Pace

log = structlog.get_logger()

_MOST_NAMES = 32
"""A notification of more lambdas names none: a payload holds less than 8,000 bytes."""

HORIZON = timedelta(minutes=2)
"""What is due later than this needs no notification: the longest poll interval comes first."""

_GAP = timedelta(milliseconds=5)
"""Others are told no more often than this: each notification is a statement, and wakes them all."""

_LAST_WORD = 1.0
"""Seconds, at most, to end the listening."""

_CHANGES = (NEW_LAMBDA_CHANNEL, SETTING_CHANNEL)

_DUE_PAYLOAD = re.compile("([0-9]{1,6})(?: ([A-Za-z0-9_.,/@+-]+))?")
"""As many digits as the horizon has. Names are those of queues: NAME, or NAME@VERSION."""


class Notifier:
    """Tells who looks for due tasks when something will be due; many notifications go as one.

    Services of the same process are told by a call. Others are told by NOTIFY, unless this process serves the notification.
    While tasks stream, others are told as often as they look: each notification is a statement, and wakes them all.
    """

    def __init__(self, store: Store, local: LocalNotifications | None = None) -> None:
        """Make one; `local` connects it with the other services of this process."""
        self._store = store
        self._local = local
        self._soonest: timedelta | None = None
        self._lambdas: set[str] = set()
        self._stream = RateDetector()
        self._sent_at = float("-inf")
        self._gap = _GAP
        self._task: asyncio.Task[None] | None = None

    def is_served_here(self, lambdas: Collection[str]) -> bool:
        """Tell whether a notification of these lambdas would be served in this process."""
        return self._local is not None and self._local.serves(lambdas)

    async def run_with_look(self, lambda_name: str, step: Step[Row]) -> list[Row] | None:
        """Do what `LocalNotifications.run_with_look` says, which tells what is raised."""
        return None if self._local is None else await self._local.run_with_look(lambda_name, step)

    def due_in(self, ahead: timedelta, lambdas: Collection[str] = (), tasks: int = 1) -> None:
        """Something of these lambdas (empty: any) is due this far ahead, the first of so many; returns at once."""
        if ahead > HORIZON:
            return
        # who waits here now may be busy when the time comes: others hear of that, too
        if self._local is not None and self._local.send(ahead, lambdas) and ahead <= timedelta():
            return
        self._stream.count(tasks, asyncio.get_running_loop().time())
        self.notify_others(ahead, lambdas)

    def notify_others(self, ahead: timedelta, lambdas: Collection[str], gap: timedelta = _GAP) -> None:
        """Tell other processes, no sooner than `gap` after they were told before; returns at once."""
        self._gap = gap
        if self._soonest is None:
            self._soonest, self._lambdas = ahead, set(lambdas)
        else:
            self._soonest = min(ahead, self._soonest)
            self._lambdas = self._lambdas | set(lambdas) if self._lambdas and lambdas else set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._soonest is not None:
            waited = await self._keep_the_gap()
            milliseconds = max(0, round((self._soonest - waited) / timedelta(milliseconds=1)))
            names = ",".join(sorted(self._lambdas)) if len(self._lambdas) <= _MOST_NAMES else ""
            self._soonest = None
            try:
                async with self._store.connection() as connection:
                    await connection.execute(
                        "select pg_notify(duly_channel(%s), %s)",
                        (DUE_CHANNEL, f"{milliseconds} {names}".strip()),
                    )
            except StoreUnavailableError as error:
                log.info("notification not sent; the poll finds the task", reason=str(error))

    async def _keep_the_gap(self) -> timedelta:
        """Answers how long it took: what was said to be ahead is that much nearer (or less: too soon does no harm)."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        gap = max(self._gap, STREAM_GAP) if self._stream.is_high else self._gap
        early = self._sent_at + gap.total_seconds() - began_at
        if early > 0:
            await asyncio.sleep(early)
        self._sent_at = loop.time()
        return timedelta(seconds=self._sent_at - began_at)


class Listener:
    """Listens on a connection of its own; a lost connection is opened again, and costs lateness only."""

    def __init__(
        self,
        settings: StoreSettings,
        on_due: Callable[[timedelta, Collection[str]], object],
        on_change: Callable[[], None],
        on_time_table: Callable[[], None] = lambda: None,
        on_gate: Callable[[], None] = lambda: None,
        pace: Pace = USUAL,
        group: ListenerGroup | None = None,
    ) -> None:
        """Make one.

        Args:
            settings: of the store to listen to.
            on_due: takes how far ahead something is due, and of which lambdas (empty: any).
            on_change: called when lambdas were registered, or settings changed.
            on_time_table: called when time tables changed.
            on_gate: called when gates or breakers changed.
            pace: told whether this listens, and of what is due.
            group: of those in this process that listen to the same store by one connection; None: this one has its own.
        """
        self._settings = settings
        self._on_due = on_due
        self._on_change = on_change
        self._on_time_table = on_time_table
        self._on_gate = on_gate
        self._pace = pace
        self._group = group or ListenerGroup()

    async def run(self, stop: asyncio.Event) -> None:
        """Listen until `stop`; behind a pooler that is not possible, and the poll goes on alone."""
        if self._settings.pooled and not self._settings.direct_dsn:
            log.info("notifications disabled behind a pooler: store.direct_dsn is not set; polling only")
            await stop.wait()
            return
        listening = asyncio.ensure_future(self._listen_in_turn())
        try:
            await stop.wait()
        finally:
            listening.cancel()
            await asyncio.wait({listening}, timeout=_LAST_WORD)  # Postgres may hang

    async def _listen_in_turn(self) -> None:
        with self._group.joined(self):
            async with self._group.turn:
                await self._listen_for_ever()

    async def _listen_for_ever(self) -> None:
        failures = 0
        while True:
            try:
                async with await Connection.connect(
                    **await connect_arguments_now(direct(self._settings)), autocommit=True
                ) as connection:
                    channels = await self._listen(connection)
                    failures = 0
                    with self._group.listening(), self._pace.listening():
                        async for notification in connection.notifies():
                            self._pace.stir()
                            self._group.hear(channels[notification.channel], notification.payload)
            except (psycopg.Error, OSError, StoreUnavailableError) as error:
                failures += 1
                log.warning(
                    "notification listener failed; polling only", reason=str(error).strip(), failures=failures
                )
            await asyncio.sleep(backoff(failures).total_seconds())

    async def _listen(self, connection: Connection) -> dict[str, str]:
        """Listen to the channels of the store's schema; return what each is for."""
        cursor = await connection.execute(
            "select duly_channel(name), name from unnest(%s::text[]) as name", [[*CHANNELS]]
        )
        channels: dict[str, str] = dict(await cursor.fetchall())
        if not self._settings.schema_name:
            channels |= {name: name for name in CHANNELS}  # an older release tells all schemas by these
        for channel in channels:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        return channels

    def begin(self) -> None:
        """Look at everything: what was told while nobody listened."""
        self._on_change()
        self._on_time_table()
        self._on_gate()

    def hear(self, channel: str, payload: str) -> None:
        """Take a notification."""
        if channel in _CHANGES:
            self._on_change()
        elif channel == TIME_TABLE_CHANNEL:
            self._on_time_table()
        elif channel == GATE_CHANNEL:
            self._on_gate()
        elif told := _DUE_PAYLOAD.fullmatch(payload):  # anybody with a connection may notify
            self._on_due(timedelta(milliseconds=int(told[1])), told[2].split(",") if told[2] else ())
