"""The trends on a real store: HSCs add runs to minutes, one Store Consumer measures each, hours are summed, old points go."""

from datetime import UTC, datetime, timedelta

import pytest

from duly_core.counting.backlog import read_ready
from duly_core.errors import StoreUnavailableError
from duly_core.gates.ends import GateEnds
from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks.task import Applied, ReleasedClaim, Result
from duly_core.trends import store as trends
from duly_core.trends.rules import PLACES, Time, minute_of, on_time
from duly_hsc.run_trends import RunTrends
from duly_store_consumer.counting.trend_loop import TrendLoop
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.gates.test_gates import a_gate

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
AT = datetime(2026, 11, 27, 1, 5, tzinfo=UTC)


class Wall:
    """A clock that stands until it is moved."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now.timestamp()

    async def store_now(self):
        return self.now


def row(name, at=AT, starts=1, place=0, ended=0, failed=0):
    lateness = [0] * PLACES
    lateness[place] = starts
    return {"lambda": name, "at": at.isoformat(), "lateness": lateness, "ended": ended, "failed_runs": failed}


async def points(store, name="", minutes=1, at=AT, length=HOUR):
    return await trends.read_points(store, minutes, at, at + length, name)


async def test_two_hscs_add_to_the_same_minute(store):
    await trends.add_runs(store, [row(""), row("a", place=2, ended=1)])
    await trends.add_runs(store, [row("a", starts=3, place=4, failed=2), row("")])

    (found,) = await points(store, "a")

    assert (found.lateness[2], found.lateness[4], found.started) == (1, 3, 4)
    assert (found.ended, found.failed_runs, found.is_measured) == (1, 2, False)
    assert (await points(store))[0].started == 2


async def test_what_an_hsc_saw_is_added_to_the_minute_in_which_it_came(store, task_states):
    wall = Wall(datetime.now(UTC))
    hsc = RunTrends(store, wall)
    good, bad, elsewhere = [await task_states.claimed() for _ in range(3)]
    late = replace_due(good, wall.now - timedelta(seconds=7))
    hsc.claimed([late, bad, None])
    results = [
        Result(good.task_id, good.token, Outcome.SUCCESS),
        Result(bad.task_id, bad.token, Outcome.FATAL_FAILURE, failure_kind=FailureKind.CALLBACK),
        Result(elsewhere.task_id, elsewhere.token, Outcome.SUCCESS),
    ]
    hsc.ended(results, await verdicts(store, results))
    hsc.ended(results, await verdicts(store, results))
    began = minute_of(wall.now)
    wall.now += MINUTE

    await hsc.run_once()
    await hsc.run_once()

    (found,) = await points(store, LAMBDA, at=began)
    assert (found.started, on_time(found.lateness, 5 * SECOND)) == (2, 1)
    assert (found.ended, found.failed_runs) == (2, 1)
    (together,) = await points(store, at=began)
    assert (together.started, together.ended) == (2, 2)


async def test_what_a_gate_held_is_late_from_the_end_of_the_gate(store, task_states):
    wall = Wall(datetime.now(UTC))
    hsc = RunTrends(store, wall)
    ends = GateEnds()
    ends.note([a_gate(LAMBDA)], wall.now - timedelta(seconds=3))
    task = replace_due(await task_states.claimed(), wall.now - HOUR)

    hsc.claimed([task], ends)
    await hsc.run_once()

    (found,) = await points(store, LAMBDA, at=minute_of(wall.now))
    assert (found.started, on_time(found.lateness, 5 * SECOND)) == (1, 1)


async def test_a_claim_that_is_handed_back_before_its_callback_began_is_no_start(store, task_states):
    wall = Wall(datetime.now(UTC))
    hsc = RunTrends(store, wall)
    ran, kept, drained, repeated = [await task_states.claimed() for _ in range(4)]
    hsc.claimed([replace_due(each, wall.now) for each in (ran, kept, drained, repeated)])

    hsc.released(
        [
            ReleasedClaim(ran.task_id, ran.token),
            ReleasedClaim(drained.task_id, drained.token, started_at=wall.now),
            ReleasedClaim(repeated.task_id, repeated.token),
        ],
        [Applied.APPLIED, Applied.APPLIED, Applied.ALREADY_APPLIED],
    )
    await hsc.run_once()

    (found,) = await points(store, LAMBDA, at=minute_of(wall.now))
    assert found.started == 3


def replace_due(task, due_at):
    return task._replace(due_at_us=int(due_at.timestamp() * 1e6), startable_at_us=None)


async def verdicts(store, results):
    return (await set_results(store, results)).verdicts


@pytest.fixture
def wall():
    return Wall(datetime.now(UTC))


@pytest.fixture
def measuring(store, wall):
    ready = {}
    loop = TrendLoop(store, lambda: ready, lambda: [LAMBDA, "other.one"], wall.store_now)
    loop.ready_now = ready
    return loop


async def test_a_minute_is_measured_once(store, task_states, wall, measuring):
    now = minute_of(wall.now)
    await task_states.fail(await task_states.claimed())
    for _ in range(3):
        await task_states.new()
    measuring.ready_now |= await read_ready(store, [QueueKey(LAMBDA, Priority.NORMAL)])
    wall.now = now + MINUTE + timedelta(seconds=10)

    await measuring.run_once()
    await measuring.run_once()

    (found,) = await points(store, LAMBDA, at=now)
    assert (found.scheduled, found.dead, found.ended) == (4, 1, 1)
    assert found.ready == 3
    assert found.oldest is not None
    assert found.is_measured
    (together,) = await points(store, at=now)
    assert (together.scheduled, together.ready, together.slots) == (4, 3, 0)


async def test_the_next_round_comes_when_the_next_minute_has_settled(wall, measuring):
    wall.now = AT + timedelta(seconds=20)

    assert await measuring.run_once() == timedelta(seconds=45)


async def test_hours_are_summed_from_their_minutes(store, wall, measuring):
    hour = AT.replace(minute=0)
    await trends.add_runs(
        store, [row("a", at=hour + n * MINUTE, starts=2, place=n % 3, ended=1) for n in range(60)]
    )
    wall.now = hour + HOUR + MINUTE + timedelta(seconds=10)

    await measuring.run_once()

    (found,) = await points(store, "a", minutes=60, at=hour, length=2 * HOUR)
    assert (found.at, found.started, found.ended) == (hour, 120, 60)
    assert [number for number in found.lateness if number] == [40, 40, 40]


async def test_hours_that_no_store_consumer_saw_end_are_summed_later(store, wall, measuring):
    hour = AT.replace(minute=0)
    await trends.add_runs(store, [row("", at=hour - HOUR)])
    await trends.sum_points(store, 60, 1, hour - HOUR, 10)
    for n in range(4):
        await trends.add_runs(store, [row("", at=hour + n * HOUR), row("a", at=hour + n * HOUR)])
    wall.now = hour + timedelta(hours=4, minutes=30)

    await measuring.run_once()

    assert [each.at for each in await points(store, "a", 60, hour, timedelta(days=1))] == [
        hour + n * HOUR for n in range(4)
    ]


async def test_days_are_summed_from_their_hours_with_calls(store, wall, measuring):
    day = AT.replace(hour=0, minute=0)
    for n in range(24):
        await trends.add_runs(store, [row("", at=day + n * HOUR, starts=2)])
        await trends.add_calls(store, {day + n * HOUR: (10, 1)})
        await trends.sum_points(store, 60, 1, day + n * HOUR, 10)
    wall.now = day + timedelta(days=1, minutes=1, seconds=10)

    await measuring.run_once()

    (found,) = await points(store, minutes=1_440, at=day, length=timedelta(days=2))
    assert (found.at, found.started) == (day, 48)
    (summed,) = await trends.sums_of_times(store, [Time(1_440, day, day + HOUR)])
    assert (sum(summed.lateness), summed.lateness[0]) == (48, 48)
    assert (summed.calls, summed.failed_calls) == (240, 24)


async def test_runs_of_each_place_are_summed(store):
    for place in range(PLACES):
        await trends.add_runs(store, [row("", starts=place + 1, place=place)])

    (found,) = await trends.sums_of_times(store, [Time(1, AT, AT + MINUTE)])

    assert found.lateness == [place + 1 for place in range(PLACES)]


async def test_calls_of_an_hour_that_is_summed_already_are_added_to_it_too(store):
    hour = AT.replace(minute=0)
    await trends.add_runs(store, [row("", at=hour)])
    await trends.sum_points(store, 60, 1, hour, 10)

    await trends.add_calls(store, {AT: (5, 2), AT + MINUTE: (1, 0)})

    found = await trends.sums_of_times(store, [Time(1, hour, hour + HOUR), Time(60, hour, hour + HOUR)])
    assert [(each.calls, each.failed_calls) for each in found] == [(6, 2), (6, 2)]


async def test_old_points_go(store, wall, measuring):
    await trends.add_runs(store, [row("a"), row("a", at=AT - timedelta(hours=26))])
    wall.now = AT + timedelta(seconds=70)

    await measuring.run_once()

    assert [
        each.at for each in await points(store, "a", at=AT - timedelta(days=2), length=timedelta(days=3))
    ] == [AT]


async def test_very_many_tasks_of_a_minute_are_estimated(store, task_states, monkeypatch):
    monkeypatch.setattr(trends, "_MOST_SCHEDULED", 20)
    since = minute_of(datetime.now(UTC))
    async with store.connection() as connection:
        await connection.execute(
            "insert into task (task_id, lambda, priority, scheduled_at, payload, payload_encoding)"
            " select (lpad(to_hex(%s + n * 300), 12, '0') || repeat('0', 20))::uuid, %s, 2, now(), '', 1"
            " from generate_series(0, 199) as n",
            (int(since.timestamp() * 1000), LAMBDA),
        )

    found = await trends.scheduled_between(store, [LAMBDA], since, since + MINUTE)

    assert 180 <= found[LAMBDA] <= 230


async def test_marks_are_changes_and_versions_newest_first(store, task_states):
    since = datetime.now(UTC) - HOUR
    async with store.connection() as connection:
        await connection.execute(
            "insert into audit_event (at, actor, peer, method, outcome, request, answer) values"
            " (now(), 'ann', '', 'GateService/PutGate', 'OK', '{}', ''),"
            " (now(), 'ann', '', 'GateService/PutGate', 'PERMISSION_DENIED', '{}', ''),"
            " (now(), 'ann', '', 'FrontendService/CancelTask', 'OK', '{}', '')"
        )

    marks = await trends.read_marks(store, ["GateService/PutGate"], since, datetime.now(UTC) + HOUR)

    assert [mark.method for mark in marks if mark.method] == ["GateService/PutGate"]
    assert [mark.lambda_name for mark in marks if not mark.method] == [LAMBDA]


async def test_a_minute_whose_measuring_failed_is_measured_by_the_next_round(
    store, wall, measuring, monkeypatch
):
    wall.now = AT + timedelta(minutes=1, seconds=10)
    monkeypatch.setattr(trends, "dead_between", refuse)
    with pytest.raises(StoreUnavailableError):
        await measuring.run_once()
    assert await points(store) == []
    monkeypatch.undo()

    await measuring.run_once()

    assert [each.is_measured for each in await points(store)] == [True]


async def refuse(*_):
    raise StoreUnavailableError("the store is away")


async def test_a_clock_that_was_set_back_does_not_stop_the_counts(store):
    wall = Wall(AT)
    hsc = RunTrends(store, wall)
    await hsc.run_once()
    wall.now = AT - timedelta(hours=2)

    assert await hsc.run_once() <= timedelta(seconds=61)
