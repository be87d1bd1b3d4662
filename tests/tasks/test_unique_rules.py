"""What becomes of a task with a unique key: each policy in each state of the task that has the key."""

from datetime import UTC, datetime, timedelta

import pytest

from duly_core.tasks.lifecycle import LIVE, Status
from duly_core.tasks.task import Unique
from duly_core.tasks.unique_rules import Holder, Verdict, decide
from duly_wire.enums import HeldWhile, OnConflict

HOUR = timedelta(hours=1)
NEW, OLD, ERR, NEXT, FIX = (
    Verdict.CREATE,
    Verdict.IGNORE,
    Verdict.REJECT,
    Verdict.REPLACE,
    Verdict.NOT_REPLACE,
)
PENDING, LIVE_, NO = HeldWhile.PENDING, HeldWhile.LIVE, timedelta()
IGNORE, REJECT, REPLACE = OnConflict.IGNORE, OnConflict.REJECT, OnConflict.REPLACE


def a_holder(status, parked_on=None):
    return Holder(bytes(16), datetime(2026, 1, 1, tzinfo=UTC), HOUR / 2, status, parked_on)


STATES = {
    "nobody": None,
    "pending": a_holder(Status.NEW),
    "retried": a_holder(Status.RETRIABLE_FAILURE),
    "in its session": a_holder(Status.WAITING),
    "parked": a_holder(Status.WAITING, "gate:night"),
    "running": a_holder(Status.PROCESSING),
    "handed over": a_holder(Status.WAITING, "completion:"),
    "waits for an event": a_holder(Status.WAITING, "event:"),
    "ended": a_holder(None),
}
PENDING_STATES = ("pending", "retried", "in its session", "parked")
RUNNING_STATES = ("running", "handed over", "waits for an event")
TABLE = [
    # held_while, period, on_conflict: nobody, pending, running, ended
    (PENDING, NO, IGNORE, NEW, OLD, NEW, NEW),
    (PENDING, NO, REJECT, NEW, ERR, NEW, NEW),
    (PENDING, NO, REPLACE, NEW, NEXT, NEW, NEW),
    (LIVE_, NO, IGNORE, NEW, OLD, OLD, NEW),
    (LIVE_, NO, REJECT, NEW, ERR, ERR, NEW),
    (LIVE_, NO, REPLACE, NEW, NEXT, FIX, NEW),
    (PENDING, HOUR, IGNORE, NEW, OLD, OLD, OLD),
    (PENDING, HOUR, REJECT, NEW, ERR, ERR, ERR),
    (PENDING, HOUR, REPLACE, NEW, NEXT, FIX, FIX),
    (LIVE_, HOUR, IGNORE, NEW, OLD, OLD, OLD),
    # its period has passed
    (PENDING, HOUR / 4, IGNORE, NEW, OLD, NEW, NEW),
    (LIVE_, HOUR / 4, REPLACE, NEW, NEXT, FIX, NEW),
]


@pytest.mark.parametrize(
    ("held_while", "period", "on_conflict", "nobody", "pending", "running", "ended"), TABLE
)
def test_each_policy_in_each_state(held_while, period, on_conflict, nobody, pending, running, ended):
    unique = Unique("k", held_while, period, on_conflict)

    decided = {state: decide(unique, holder) for state, holder in STATES.items()}

    wanted = {"nobody": nobody, "ended": ended}
    wanted |= dict.fromkeys(PENDING_STATES, pending) | dict.fromkeys(RUNNING_STATES, running)
    assert decided == wanted


def test_each_live_status_is_pending_or_running():
    pending = {status for status in LIVE if a_holder(status).is_pending}

    assert LIVE - pending == {Status.CLAIMED, Status.PROCESSING}
