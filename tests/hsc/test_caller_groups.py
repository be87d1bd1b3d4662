"""When the next look for work is made after one: single tasks that come fast are taken together."""

import itertools
from datetime import timedelta

import pytest

from duly_core.tasks.task import ClaimedTask
from duly_hsc.work.caller_groups import CallerGroups
from duly_wire.enums import Priority

GAP = timedelta(milliseconds=2)
MOST = 100


def found(tasks):
    return [
        ClaimedTask(
            bytes(16), bytes(16), "mail.send", Priority.NORMAL, 1, 0, 0, 0, b"", 1, timedelta(hours=1)
        )
        for _ in range(tasks)
    ]


def rests_after(rate, looks=200, at_a_time=None, gap=GAP):
    """Return the seconds of rest after looks, while so many tasks a second come; `at_a_time`: each look finds so many."""
    group = CallerGroups(lambda: 0.1).join(frozenset({"mail.send"}))
    now, due, rests = 0.0, 0.0, []
    for _ in range(looks):
        begins_at = max(now + 1 / rate, group.rests_until)
        due += (begins_at - now) * rate
        now = begins_at
        tasks = at_a_time or int(due + 1e-9)
        due -= tasks
        group.took(found(tasks), MOST, now, gap)
        rests.append(group.rests_until - now)
    return rests


@pytest.mark.parametrize("rate", [20, 60, 150])
def test_tasks_that_come_seldom_are_followed_by_the_batching_gap_alone(rate):
    rests = rests_after(rate)

    assert max(rests) == pytest.approx(GAP.total_seconds())


@pytest.mark.parametrize(("rate", "together"), [(230, 2.5), (400, 3), (700, 9)])
def test_single_tasks_that_come_fast_are_taken_together(rate, together):
    rests = rests_after(rate)

    assert rests[-1] * rate == pytest.approx(together, abs=1.5)


def test_a_stream_rests_as_long_as_its_notifications():
    rests = rests_after(2_000)

    assert rests[-1] == pytest.approx(0.02)


def test_where_rests_bring_nothing_together_they_are_left_out():
    rests = rests_after(400, looks=2_000, at_a_time=1)

    longer = [rest for rest in rests if rest > GAP.total_seconds() * 1.01]
    assert 1 <= len(longer) <= 12


def test_an_operator_can_have_them_taken_at_once():
    rests = rests_after(400, gap=timedelta())

    assert max(rests) == 0


def test_two_tasks_in_one_millisecond_are_no_stream():
    group = CallerGroups(lambda: 0.1).join(frozenset({"mail.send"}))

    for now in itertools.accumulate([0.0, 0.05, 0.05, 0.001]):
        group.took(found(1), MOST, now, GAP)

    assert group.rests_until - now == pytest.approx(GAP.total_seconds())
