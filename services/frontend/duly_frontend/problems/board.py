"""Computes the incident board: one round finds all that is wrong; one Frontend at a time makes it."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, TypeVar

from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import StoreUnavailableError
from duly_core.fleet.services import AS_FRONTEND
from duly_core.gates.rules import Gate, GateSet
from duly_core.gates.store import read_gates
from duly_core.notifications import store as store_notifications
from duly_core.postgres.pool import Store
from duly_core.problems import store as store_problems
from duly_core.problems.budgets import Budgets
from duly_core.problems.failures import DeadLetterCauses, sessions_blocked
from duly_core.problems.fleet import hosts_astray
from duly_core.problems.holds import breakers_open, paused
from duly_core.problems.installation import (
    REPORTED_WITHIN,
    Outage,
    certificate_expiring,
    pools_failing,
    services,
    store_slow,
    tokens_expiring,
)
from duly_core.problems.kinds import Kind
from duly_core.problems.problem import FoundProblem
from duly_core.problems.queues import LateQueues, held_by_gates, read_late
from duly_core.problems.resources import resources_full
from duly_core.problems.signs import ALL, read_signs
from duly_core.process.clock import seconds_since_boot
from duly_core.process.identity import host_name
from duly_core.process.pace import USUAL, Pace
from duly_core.slo.store import promised_by_lambda
from duly_frontend import events
from duly_frontend.problems.late import find_late

EVERY = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(seconds=30)
_TIMES = 50
"""A round that took long is followed by a pause of so many times its length: a large store is not kept busy by it."""
_MEASURED = 3
_OBJECTIVES_EVERY = 60
"""Seconds."""
_OF_LATE_QUEUES = (Kind.NO_HOST, Kind.SLOTS_HELD, Kind.LATE, Kind.LAMBDA_GONE)
Answer = TypeVar("Answer")


class Found(NamedTuple):
    """What a round found."""

    problems: list[FoundProblem]
    """In no order."""
    unread: set[Kind]
    """Kinds that could not be read, or not completely."""
    has_others: bool = True
    """Whether there may be problems of earlier rounds that are open, or to be forgotten."""


class ProblemBoard:
    """`run_once` computes the board, if it is this Frontend's turn."""

    def __init__(
        self,
        store: Store,
        every: timedelta = EVERY,
        *,
        expected_services: Collection[str] = (),
        cert_file: str = "",
        seconds: Callable[[], float] = seconds_since_boot,
        slo: Callable[[], LiveSloSettings] = LiveSloSettings,
        others: Callable[[datetime], Sequence[FoundProblem]] = lambda _: (),
        pace: Pace = USUAL,
    ) -> None:
        """Make one.

        Args:
            store: its reads have a time limit, as lists do.
            every: between two rounds.
            expected_services: services of which some process must report itself.
            cert_file: this Frontend's certificate; empty: it serves without TLS.
            seconds: measures how long statements take.
            slo: tells what is promised now.
            others: returns problems that are not in the store, as of its clock.
            pace: of the loops that look at the store.
        """
        self.wake = asyncio.Event()
        self._pace = pace
        self._is_clear = False
        self._store = store
        self._every = every
        self._expected = expected_services
        self._cert_file = cert_file
        self._seconds = seconds
        self._by = f"{host_name()}:{os.getpid()}"
        self._version = -1
        self._gates: Sequence[Gate] = ()
        self._gate_set = GateSet()
        self._dead_letters = DeadLetterCauses()
        self._budgets = Budgets(slo)
        self._slo = slo
        self._objectives_at: float | None = None
        self._others = others
        self._answered_in: deque[timedelta] = deque(maxlen=_MEASURED)
        self._seldom_took = 0.0
        """Seconds of the round for what is read once a minute, however short the pauses are."""
        self._started_at: datetime | None = None
        self._begun_at: datetime | None = None
        self._shown_at = seconds()
        self._answered_at = seconds()
        self._is_lost = False
        self._outage: tuple[float, float] | None = None
        """Since when and until when the store was away, in seconds."""

    async def run_once(self) -> timedelta:
        """Make a round; return how long to wait before the next.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        began, self._seldom_took = self._seconds(), 0.0
        try:
            await self._compute()
        except StoreUnavailableError:
            self._is_lost = True
            await self._show()
            raise
        await self._show()
        took = timedelta(seconds=self._seconds() - began - self._seldom_took)
        pause = min(max(self._every, _TIMES * took), max(self._every, _LONGEST_PAUSE))
        return self._pace.rest(pause, self.wake) if self._is_clear else pause

    async def _compute(self) -> None:
        begun_at = await store_problems.begin(self._store, self._by, self._every * 0.9, self._begun_at)
        self._note_answer()
        if begun_at is None:
            return
        self._begun_at = begun_at
        found = await self.find()
        self._is_clear = not found.problems and not found.unread
        await store_problems.publish(
            self._store, begun_at, found.problems, found.unread, has_others=found.has_others
        )

    def _note_answer(self) -> None:
        """Note that the store answers. One that is soon lost again counts as away since the first time."""
        at = self._seconds()
        if self._is_lost:
            since, until = self._outage or (0.0, float("-inf"))
            is_again = self._answered_at - until < REPORTED_WITHIN.total_seconds()
            self._outage = (since if is_again else self._answered_at, at)
        self._answered_at, self._is_lost = at, False

    def _outage_at(self, now: datetime) -> Outage | None:
        """Return the last outage by the store's clock."""
        if self._outage is None:
            return None
        at = self._seconds()
        since, until = (now - timedelta(seconds=at - each) for each in self._outage)
        return Outage(since, until)

    async def _show_objectives(self) -> None:
        """Set the gauges of objectives, once a minute: alerts on metrics leave out lambdas with objectives of their own."""
        at = self._seconds()
        if self._objectives_at is None or at - self._objectives_at >= _OBJECTIVES_EVERY:
            events.objectives_read(await promised_by_lambda(self._store, self._slo()))
            self._objectives_at = at

    async def _show(self) -> None:
        """Set the gauges: each Frontend shows what was found, so that it does not matter which of them is asked."""
        try:
            await self._show_objectives()
            events.board_read(await store_problems.read(self._store))
            self._shown_at = self._seconds()
        except StoreUnavailableError:
            if self._seconds() - self._shown_at > store_problems.STALE_AFTER.total_seconds():
                events.board_unknown()
            raise

    async def find(self) -> Found:
        """Return all that is wrong now. A read that fails costs its own kinds of problems only.

        Raises:
            StoreUnavailableError: the store does not answer at all.
        """
        store = self._store
        now = await self._read_gates()
        unread: set[Kind] = set()

        async def tried(finding: Awaitable[Answer], otherwise: Answer, *kinds: Kind) -> Answer:
            try:
                return await finding
            except StoreUnavailableError as error:
                unread.update(kinds)
                events.board_unread(kinds, error)
                return otherwise

        async def tried_if(
            may_be: bool,  # noqa: FBT001 (a sign of what is looked for)
            find: Callable[[], Awaitable[list[FoundProblem]]],
            kind: Kind,
        ) -> list[FoundProblem]:
            return await tried(find(), [], kind) if may_be else []

        signs = await tried(read_signs(store), ALL)
        late = await tried(
            read_late(store, now, self._slo(), signs.shortest_objective), LateQueues({}), *_OF_LATE_QUEUES
        )
        held = held_by_gates(late, self._gate_set) if late.since else {}
        counts = {name: late.lambdas(queues) for name, queues in held.items()}
        held_back = {queue for queues in held.values() for queue in queues}
        problems = [
            *await tried(paused(store, self._gates, counts), [], Kind.PAUSED),
            *await tried_if(signs.breakers, partial(breakers_open, store, counts), Kind.BREAKER_OPEN),
        ]
        if len(held_back) < len(late.since):
            problems += await tried(find_late(store, late, held_back, now), [], *_OF_LATE_QUEUES)
        # the clocks of services are found with those of hosts
        seen = services(store, now, self._expected, self._started_at or now, self._outage_at(now))
        away, skewed = await tried(seen, ([], []), Kind.SERVICE_AWAY, Kind.CLOCKS_APART)
        explained = {host.host_id for each in problems if each.kind is Kind.NO_HOST for host in each.hosts}
        astray = hosts_astray(store, now, skewed, explained, has_hosts=signs.hosts)
        problems += [
            *away,
            *await tried(astray, [], Kind.SILENT_HOSTS, Kind.CLOCKS_APART),
            *await tried(self._find_budgets(now), [], Kind.BUDGET_BURNS),
            *await tried_if(signs.parked, partial(resources_full, store, now), Kind.RESOURCE_FULL),
            *await tried_if(
                signs.dead_letters, partial(self._dead_letters.find, store, now), Kind.DEAD_LETTERS
            ),
            *await tried_if(signs.blocked_sessions, partial(sessions_blocked, store), Kind.SESSIONS_BLOCKED),
            *await tried_if(signs.failing_pools, partial(pools_failing, store), Kind.POOL_DRIVER_FAILS),
            *await tried_if(signs.expiring_tokens, partial(tokens_expiring, store, now), Kind.TOKEN_EXPIRES),
            *await tried_if(
                signs.failing_targets, partial(store_notifications.failing, store), Kind.NOTIFICATIONS_FAIL
            ),
            *certificate_expiring(self._cert_file, AS_FRONTEND, now),
            *store_slow(self._answered_in, now),
            *self._others(now),
        ]
        return Found(problems, unread, signs.problems)

    async def _find_budgets(self, now: datetime) -> Sequence[FoundProblem]:
        began = self._seconds()
        try:
            return await self._budgets.find(self._store, now)
        finally:
            self._seldom_took = self._seconds() - began

    async def _read_gates(self) -> datetime:
        """Read the gates that are in force; return the store's clock."""
        began = self._seconds()
        read = await read_gates(self._store, self._version)
        self._answered_in.append(timedelta(seconds=self._seconds() - began))
        self._started_at = self._started_at or read.read_at
        if read.gates is not None:
            self._version, self._gates = read.version, read.gates
            self._gate_set = GateSet(read.gates)
        return read.read_at
