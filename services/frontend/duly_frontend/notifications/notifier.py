"""Tells one target of problems: a round compares the board with what was told, and delivers one message at most."""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from duly_core.access.grants import Scope
from duly_core.notifications import store as store_notifications
from duly_core.notifications.rules import BETWEEN_MESSAGES, Rules, Stated, Told, message_of, plan
from duly_core.notifications.settings import Target
from duly_core.notifications.store import Begun, Delivery
from duly_core.postgres.pool import Store
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, clean
from duly_core.process.identity import host_name
from duly_frontend import events
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.problems.texts import hits, say

EVERY = timedelta(seconds=10)
GIVEN_UP_AFTER = timedelta(hours=1)
"""A message that has not arrived by then is replaced by one that says how things stand then."""
_FIRST_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(minutes=10)
_PAYLOADS = "message"
"""Of a problem's values: it comes from callbacks, and may hold what payloads say."""


def notifiers_of(store: Store, deliveries: Deliveries | None) -> "list[Notifier]":
    """Return one for each target that the settings name."""
    if deliveries is None:
        return []
    events.notifications_of(deliveries.targets)
    return [Notifier(store, name, target, deliveries) for name, target in deliveries.targets.items()]


class Notifier:
    """`run_once` makes a round for one target, if it is this Frontend's turn."""

    def __init__(
        self,
        store: Store,
        name: str,
        target: Target,
        deliveries: Deliveries,
        every: timedelta = EVERY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Make one.

        Args:
            store: its reads have a time limit, as lists do.
            name: the target's.
            target: what it is told.
            deliveries: delivers.
            every: between two rounds.
            jitter: from 0 to 1; spreads retries.
        """
        self._store = store
        self._name = name
        self._target = target
        self._deliveries = deliveries
        self._every = every
        self._jitter = jitter
        self._by = f"{host_name()}:{os.getpid()}"
        self._begun_at: datetime | None = None
        self._rules = Rules(target.delay, target.repeat or None, target.resolved)

    async def run_once(self) -> timedelta:
        """Make a round; return how long to wait before the next.

        Raises:
            StoreUnavailableError: the store does not answer. A message that was sent may be sent again, with the same id.
        """
        begun = await store_notifications.begin(
            self._store, self._name, self._by, self._every * 0.9, self._begun_at
        )
        if begun is not None:
            self._begun_at = begun.begun_at
            await self._round(begun)
        return self._every

    async def _round(self, begun: Begun) -> None:
        board = await store_problems.read(self._store)
        told = begun.told
        if told.message is not None and board.now - told.message.created_at > GIVEN_UP_AFTER:
            told = told.given_up()
        if told.message is None and not board.is_stale:
            told = self._compare(told, board.problems, board.now, begun.last_success_at)
        is_new = told.message is not None and told.message != begun.told.message
        if is_new and not await store_notifications.keep(self._store, self._name, begun.begun_at, told):
            return
        due_at = None if is_new else begun.next_attempt_at
        if told.message is None or (due_at is not None and due_at > board.now):
            changed = told if told != begun.told and not is_new else None
            await store_notifications.finish(self._store, self._name, begun.begun_at, changed)
            return
        attempt = 1 if is_new and not begun.failures else begun.failures + 1
        outcome = await self._deliveries.deliver(self._name, told.message, attempt)
        if outcome.failure:
            pause = max(self._pause(begun.failures), outcome.retry_after or timedelta())
            events.notification_failed(self._name, begun.failures + 1, outcome.failure)
            delivery = Delivery(outcome.failure, pause)
            await store_notifications.finish(self._store, self._name, begun.begun_at, None, delivery)
            return
        events.notification_sent(self._name, begun.failures)
        await store_notifications.finish(self._store, self._name, begun.begun_at, told.arrived(), Delivery())

    def _compare(
        self, told: Told, problems: Sequence[FoundProblem], now: datetime, last_at: datetime | None
    ) -> Told:
        """Return what was told, with a message if there is something to tell and it is time."""
        stated = [each for problem in problems if (each := self._stated(problem, now)) is not None]
        decided = plan(told.problems, stated, self._rules, now, {each.fingerprint for each in problems})
        is_time = last_at is None or now - last_at >= BETWEEN_MESSAGES
        if not decided.items or not is_time:
            return Told(problems=decided.before)
        message = message_of(decided.items, str(uuid4()), now)
        return Told(problems=decided.before, message=message, after=decided.after)

    def _stated(self, problem: FoundProblem, now: datetime) -> Stated | None:
        """Return a problem in words, without what the target is not to read; None: it is not for this target."""
        target = self._target
        if problem.severity < Severity[target.severity.upper()]:
            return None
        if target.kinds and problem.kind.name.lower() not in target.kinds:
            return None
        if problem.kind is Kind.NOTIFICATIONS_FAIL and problem.subject == self._name:
            return None  # the next message that arrives says it by itself
        seen = problem.seen_by(Scope(target.lambdas, ()) if target.lambdas else None)
        if seen is None:
            return None
        plain = {name: "" if name == _PAYLOADS else value for name, value in seen.values.items()}
        shown = replace(seen, values=plain)
        return Stated(
            fingerprint=problem.fingerprint,
            kind=problem.kind.name.lower(),
            severity=int(problem.severity),
            subject=shown.subject,
            since_at=problem.since_at,
            text=clean(say(shown, now).text),
            hits=hits(shown),
        )

    def _pause(self, failures: int) -> timedelta:
        """Return how long to wait after one more failure: twice as long after each, half of it random."""
        longest: timedelta = min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(failures, 10)))
        return longest * (0.5 + self._jitter() / 2)
