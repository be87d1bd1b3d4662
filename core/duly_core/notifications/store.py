"""Keep what targets were told: one sender at a time for each, and what came of its deliveries."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.notifications.rules import Told
from duly_core.notifications.statements import NOTIFICATIONS
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, found

_ABANDONED_AFTER = timedelta(seconds=60)
"""A round that is not finished by then is no longer waited for: its Frontend died, or stands still."""
_LONGEST_FAILURE = 500
_FAILURES = 2
"""In a row: one may be a chance."""
_MOST_FAILING = 50


class Begun(NamedTuple):
    """A round that was begun, and how its target stands."""

    begun_at: datetime
    told: Told
    last_success_at: datetime | None
    failures: int
    next_attempt_at: datetime | None


class TargetState(NamedTuple):
    """How the deliveries to a target went."""

    target: str
    last_success_at: datetime | None
    last_failure_at: datetime | None
    failure: str
    """Of the last failure; empty: none failed."""
    failures: int
    """In a row, the last ones."""
    failing_since: datetime | None
    is_message_under_way: bool
    next_attempt_at: datetime | None
    """The message under way is not sent again before. None: no delivery of it failed."""


class Delivery(NamedTuple):
    """What came of a delivery."""

    failure: str = ""
    """Empty: it arrived."""
    pause: timedelta = timedelta()
    """After a failure: until the next one."""


async def begin(
    store: Store, target: str, by: str, every: timedelta, own: datetime | None = None
) -> Begun | None:
    """Take the next round of a target; its begin names it. None: it is another Frontend's, or not yet time.

    Args:
        store: has the targets.
        target: its name.
        by: who makes the round.
        every: between the begins of two rounds.
        own: the last round of the caller, which is over even if it was not finished.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"target": target, "by": by, "every": every, "own": own, "abandoned_after": _ABANDONED_AFTER}
    rows = await store.run(NOTIFICATIONS["begin_notifications"], asked)
    if not rows:
        return None
    ((begun_at, told, last_success_at, failures, next_attempt_at),) = rows
    return Begun(begun_at, Told.from_facts(told), last_success_at, failures, next_attempt_at)


async def keep(store: Store, target: str, begun_at: datetime, told: Told) -> bool:
    """Keep what was told, with the message under way, before it is sent; False: the round is another Frontend's by now.

    Raises:
        StoreUnavailableError: the outcome is unknown; nothing may be sent.
    """
    asked = {"target": target, "begun_at": begun_at, "told": json.dumps(told.to_facts())}
    return bool(await store.run(NOTIFICATIONS["keep_told"], asked))


async def finish(
    store: Store, target: str, begun_at: datetime, told: Told | None = None, delivery: Delivery | None = None
) -> bool:
    """End a round. `told`: None: it stays. `delivery`: None: nothing was sent.

    Raises:
        StoreUnavailableError: the outcome is unknown: what was sent may be sent again, with the same id.
    """
    asked = {
        "target": target,
        "begun_at": begun_at,
        "told": None if told is None else json.dumps(told.to_facts()),
        "delivered": None if delivery is None else not delivery.failure,
        "failure": "" if delivery is None else delivery.failure[:_LONGEST_FAILURE],
        "pause": timedelta() if delivery is None else delivery.pause,
    }
    return bool(await store.run(NOTIFICATIONS["finish_notifications"], asked))


async def note_test(store: Store, target: str, failure: str) -> None:
    """Keep what came of a test; `failure` is empty: it arrived.

    Raises:
        StoreUnavailableError: the outcome is unknown.
    """
    asked = {"target": target, "delivered": not failure, "failure": failure[:_LONGEST_FAILURE]}
    await store.run(NOTIFICATIONS["note_test_of_target"], asked)


async def failing(store: Store) -> list[FoundProblem]:
    """Return a problem for each target whose last deliveries failed.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(NOTIFICATIONS["failing_targets"], {"failures": _FAILURES, "most": _MOST_FAILING})
    return [
        found(Kind.NOTIFICATIONS_FAIL, Severity.WARNING, failing_since, target, failure=failure)
        for target, failing_since, failure in rows
    ]


async def read_targets(store: Store, targets: Sequence[str]) -> dict[str, TargetState]:
    """Return how targets stand, by name; those to which nobody has sent yet are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(NOTIFICATIONS["read_targets"], {"targets": texts(targets)})
    return {row[0]: TargetState(*row) for row in rows}
