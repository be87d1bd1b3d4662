"""What was counted is answered as shares through a real Frontend and the command; nothing counted is no data, and no 100 %."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import grpc
import pytest

import duly
from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import StoreUnavailableError
from duly_core.slo.rules import Level, Span
from duly_core.slo.store import read_levels
from duly_core.trends import store as trends
from duly_core.trends.rules import Time, minute_of
from duly_frontend import events, load_limits
from duly_frontend.slo import read
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.slo.wire import level_to_wire, merged
from duly_wire.enums import ServiceLevelIndicator
from duly_wire.time_conversion import to_datetime, to_timestamp
from duly_wire.v1 import frontend_pb2, inspection_pb2
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA
from tests.frontend.test_frontend import asked
from tests.trends.test_trend_store import Wall, row

MINUTE = timedelta(minutes=1)
ON_TIME, LATE = 0, 10


def recent():
    return minute_of(datetime.now(UTC)) - 2 * MINUTE


async def of(client, name=""):
    found = await client.service_levels(lambda_name=name)
    return {(each.indicator.name, each.lambda_name): each for each in found}


async def test_shares_are_those_of_runs_that_began_on_time_and_of_calls_that_were_accepted(
    store, client, task_states
):
    at = recent()
    await trends.add_runs(store, [row(name, at, starts=90, place=ON_TIME) for name in ("", LAMBDA)])
    await trends.add_runs(store, [row(name, at, starts=10, place=LATE) for name in ("", LAMBDA)])
    await trends.add_calls(store, {at: (1_000, 1)})

    found = await of(client)

    assert [*found] == [("CALLS", ""), ("STARTS", ""), ("STARTS", LAMBDA)]
    starts, calls = found["STARTS", LAMBDA], found["CALLS", ""]
    assert [(span.good, span.total) for span in starts.spans] == [(90, 100)] * 7
    assert starts.window.burn_rate == pytest.approx(2)
    assert starts.budget_left == pytest.approx(-1)
    assert (starts.start_within, starts.window.length) == (timedelta(seconds=5), timedelta(days=28))
    assert calls.window.share == pytest.approx(0.999)
    assert calls.counted_since == at


async def test_nothing_counted_is_no_share(client, task_states):
    found = await of(client, LAMBDA)

    assert [*found] == [("STARTS", LAMBDA)]
    level = found["STARTS", LAMBDA]
    assert (level.window.share, level.budget_left, level.alert, level.counted_since) == (None,) * 4


async def test_an_unknown_lambda_is_refused(client, frontend):
    with pytest.raises(duly.InvalidTaskError, match="ghost"):
        await client.service_levels(lambda_name="ghost")


async def test_the_command_says_no_data_and_what_burns(store, frontend, run_duly, task_states):
    nothing = await run_duly("slo", LAMBDA, "--address", frontend.address)
    at = recent()
    await trends.add_runs(store, [row(name, at, starts=50, place=LATE) for name in ("", LAMBDA)])

    table = await run_duly("slo", "--address", frontend.address)
    said = await run_duly("slo", LAMBDA, "--json", "--address", frontend.address)

    assert nothing.output.count("no data") == 4
    assert "critical" in table.output
    assert "-1,900 %" in table.output
    (level,) = [json.loads(line) for line in said.output.splitlines()]
    assert (level["lambda"], level["budget_left"]) == (LAMBDA, pytest.approx(-19))


def promise(monkeypatch, **settings):
    """Let the Frontends of this process judge by these settings."""
    monkeypatch.setattr(
        read, "read_levels", lambda store, _, *more: read_levels(store, LiveSloSettings(**settings), *more)
    )


async def test_the_command_has_one_column_for_a_window_of_a_day_and_warns_by_three(
    store, frontend, run_duly, task_states, monkeypatch
):
    promise(monkeypatch, window=timedelta(days=1))
    at = recent() - timedelta(hours=3)
    await trends.add_runs(store, [row(name, at, starts=200, place=ON_TIME) for name in ("", LAMBDA)])
    await trends.add_runs(store, [row(name, at, starts=20, place=LATE) for name in ("", LAMBDA)])

    table = await run_duly("slo", "--address", frontend.address)

    assert table.output.count("1 D") == 1
    assert table.output.count("warning") == 2


async def test_calls_are_kept_while_the_store_is_away(store, monkeypatch):
    wall = Wall(datetime(2026, 11, 27, 1, 5, 30, tzinfo=UTC))
    calls = AcceptedCalls(store, wall)
    at = minute_of(wall.now)

    async def away(*_):
        raise StoreUnavailableError("the store is away")

    calls.observe("Schedule", "OK", 0.01)
    monkeypatch.setattr(trends, "add_calls", away)
    assert await calls.run_once() == timedelta(seconds=5)
    calls.observe("Schedule", "UNAVAILABLE", 0.01)
    wall.now += MINUTE
    calls.observe("Schedule", "OK", 0.01)
    calls.observe("Schedule", "INVALID_ARGUMENT", 0.01)
    calls.observe("GetTask", "UNAVAILABLE", 0.01)
    monkeypatch.undo()

    assert await calls.run_once() == timedelta(seconds=31)
    await calls.run_once()

    times = [Time(1, at + n * MINUTE, at + (n + 1) * MINUTE) for n in range(2)]
    found = await trends.sums_of_times(store, times)
    assert [(each.calls, each.failed_calls) for each in found] == [(2, 1), (1, 0)]


async def test_a_frontend_counts_calls_that_come_alone_and_over_streams(store, task_states):
    wall = Wall(recent())
    accepted = AcceptedCalls(store, wall)
    async with serve_frontend(store, accepted=accepted) as frontend:
        async with duly.AsyncClient(frontend.address) as client:
            await client.schedule(LAMBDA, {})
        await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[asked()]))
        refused = await refusal(frontend.stub.Schedule(frontend_pb2.ScheduleRequest()))

    await accepted.run_once()

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    (found,) = await trends.sums_of_times(store, [Time(1, wall.now, wall.now + MINUTE)])
    assert (found.calls, found.failed_calls) == (2, 0)


async def test_a_caller_that_asks_for_too_much_breaks_no_promise(store):
    wall = Wall(recent())
    accepted = AcceptedCalls(store, wall)

    async def call(*, is_limited):
        if is_limited:
            events.load_refused("calls", "ann")
        accepted.observe("Schedule", "RESOURCE_EXHAUSTED", 0.01)

    await asyncio.gather(call(is_limited=True), call(is_limited=False))
    await accepted.run_once()

    (found,) = await trends.sums_of_times(store, [Time(1, wall.now, wall.now + MINUTE)])
    assert (found.calls, found.failed_calls) == (1, 1)


@pytest.mark.parametrize(
    ("most_waiting", "code"),
    [
        pytest.param(0, grpc.StatusCode.RESOURCE_EXHAUSTED, id="refused"),
        pytest.param(10, grpc.StatusCode.DEADLINE_EXCEEDED, id="waits until its deadline"),
    ],
)
async def test_a_call_that_gets_no_turn_because_of_its_own_caller_breaks_no_promise(
    store, task_states, monkeypatch, most_waiting, code
):
    await task_states.register()
    wall = Wall(recent())
    accepted = AcceptedCalls(store, wall)
    monkeypatch.setattr(load_limits, "_WAITING_CALLS", most_waiting)
    request = frontend_pb2.ScheduleRequest(tasks=[asked()])
    async with serve_frontend(store, accepted=accepted, caller_calls=1) as frontend:
        async with store.connection() as holder, holder.transaction():
            await holder.execute("lock table task_assoc in access exclusive mode")
            first = asyncio.ensure_future(frontend.stub.Schedule(request))
            async with asyncio.timeout(30):
                while not await waits_for_a_lock(holder):
                    pass
            second = await refusal(frontend.stub.Schedule(request, timeout=1.2))
        await first

    await accepted.run_once()

    assert second.code is code
    (found,) = await trends.sums_of_times(store, [Time(1, wall.now, wall.now + MINUTE)])
    assert (found.calls, found.failed_calls) == (1, 0)


async def waits_for_a_lock(connection):
    cursor = await connection.execute(
        "select exists (select from pg_locks where not granted and relation = 'task_assoc'::regclass)"
    )
    ((waits,),) = await cursor.fetchall()
    return waits


async def test_runs_and_calls_are_each_counted_since_their_own_first(store, client, task_states):
    at = recent()
    await trends.add_runs(store, [row("", at - timedelta(hours=2), starts=0, ended=1)])
    await trends.add_calls(store, {at - timedelta(hours=1): (5, 0)})
    await trends.add_runs(store, [row(name, at) for name in ("", LAMBDA)])

    found = await of(client)

    since = {name: level.counted_since for name, level in found.items()}
    assert since == {("CALLS", ""): at - timedelta(hours=1), ("STARTS", ""): at, ("STARTS", LAMBDA): at}


def an_answer(good, total, at):
    level = Level(ServiceLevelIndicator.STARTS, LAMBDA, 0.95, [Span(timedelta(days=28), good, total)], at)
    said = inspection_pb2.GetServiceLevelsResponse(levels=[level_to_wire(level)])
    said.at.CopyFrom(to_timestamp(at))
    return said


def test_a_promise_holds_for_all_cells_together():
    at = recent()

    answer = merged({"a": an_answer(90, 100, at), "b": an_answer(300, 300, at - MINUTE)})

    (level,) = answer.levels
    (span,) = level.spans
    assert (span.good, span.total) == (390, 400)
    assert level.budget_left == pytest.approx(0.5)
    assert to_datetime(level.counted_since) == to_datetime(answer.at) == at - MINUTE
