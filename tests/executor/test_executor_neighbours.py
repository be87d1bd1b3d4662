"""Callbacks that run side by side in one process: what one does costs the others nothing."""

from uuid import UUID

import pytest

from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.host import SECOND, Host, claimed, gone, value_of
from tests.fixtures.programs import is_alive

HASTY = {"DULY_EXECUTOR_INTERRUPT_GRACE": "200ms"}
LIMIT = SECOND / 5


def running_on(host: Host, **payload: str) -> hsc_pb2.ClaimedTask:
    return claimed("test.spin", {**host.journal.payload(), **payload}, max_runtime=LIMIT)


def starts(host: Host, task: hsc_pb2.ClaimedTask) -> int:
    name = str(UUID(bytes=task.claim.task_id))
    return sum(name in line for line in host.journal.lines("started"))


def assert_ran_too_long(result: hsc_pb2.TaskResult) -> None:
    assert result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    assert result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME
    assert result.started_at.seconds


# ---- interruption ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("test.spin", "interrupted"),
        # long: callbacks of other kinds, which test_interruption.py and test_callback_orders.py interrupt or cancel
        pytest.param("test.async_wait", "cleaned up", marks=pytest.mark.long),
        pytest.param("test.wait", "", marks=pytest.mark.long),
    ],
)
async def test_python_that_runs_too_long_is_interrupted_and_its_process_lives_on(
    host: Host, name: str, word: str
) -> None:
    too_long = claimed(name, host.journal.payload(), max_runtime=LIMIT)
    neighbour, after = host.waiting(), claimed("test.context")
    await host.ready("--slots", 3, DULY_EXECUTOR_ISOLATE_FOR="0s")
    pid = await host.running(neighbour, too_long)

    result = await host.hsc.end_of(too_long)
    host.hand_out(after)

    assert_ran_too_long(result)
    assert "was interrupted" in result.failure_message
    assert not word or host.journal.has(word, too_long)
    assert value_of(await host.hsc.end_of(after))["pid"] == pid
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(neighbour)) == "waited"


async def test_a_callback_that_ignores_a_cancel_is_interrupted_after_the_grace(host: Host) -> None:
    task = claimed("test.spin", host.journal.payload())
    await host.ready(DULY_EXECUTOR_CANCEL_GRACE="200ms")
    pid = await host.running(task)

    host.hsc.verdicts[task.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED

    assert (await host.hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_CANCELLED
    assert host.journal.has("interrupted", task)
    assert is_alive(pid)


async def test_a_callback_that_swallows_the_interruption_is_killed(host: Host) -> None:
    task = running_on(host, swallow="yes")
    executor = await host.ready(**HASTY)
    pid = await host.running(task)

    result = await host.hsc.end_of(task)

    assert_ran_too_long(result)
    assert "was killed" in result.failure_message
    assert not is_alive(pid)
    assert str(UUID(bytes=task.claim.task_id)) in executor.output
    assert "reason=max_runtime" in executor.output or '"reason": "max_runtime"' in executor.output


# ---- processes that linger -------------------------------------------------------------------------------


async def test_a_blocked_callback_keeps_its_claim_while_its_neighbours_finish_and_others_run_elsewhere(
    host: Host,
) -> None:
    blocked = host.stubborn(max_runtime=LIMIT)
    neighbours, after = [host.waiting() for _ in range(2)], claimed("test.context")
    executor = await host.ready("--slots", 3, **HASTY)
    pid = await host.running(*neighbours, blocked)
    await executor.says("takes no more work")

    host.hand_out(after)

    assert value_of(await host.hsc.end_of(after))["pid"] != pid
    for _ in range(3):
        await host.hsc.beat_of(blocked, *neighbours)
    assert host.hsc.result_of(blocked) is None
    assert is_alive(pid)
    host.journal.let_go()
    for neighbour in neighbours:
        assert value_of(await host.hsc.end_of(neighbour)) == "waited"
        assert starts(host, neighbour) == 1
    assert_ran_too_long(await host.hsc.end_of(blocked))
    assert not is_alive(pid)
    assert not host.hsc.releases


@pytest.mark.long  # starts an Executor; test_watchdog_overruns.py and test_dispatch.py have the rules
async def test_what_waits_behind_a_blocked_callback_runs_in_the_process_that_takes_its_place(
    host: Host,
) -> None:
    blocked, neighbour = host.stubborn(max_runtime=LIMIT), host.waiting()
    waiting = claimed("test.context")
    await host.ready("--slots", 2, DULY_EXECUTOR_RECALL_AFTER="1h", **HASTY)
    pid = await host.running(blocked, neighbour)

    host.hand_out(waiting)

    assert value_of(await host.hsc.end_of(waiting))["pid"] != pid
    assert waiting.claim not in host.hsc.releases


@pytest.mark.long  # starts an Executor; test_watchdog_overruns.py has the rule
async def test_a_process_whose_neighbours_overrun_too_is_killed_and_all_are_told(host: Host) -> None:
    tasks = [host.stubborn(max_runtime=limit * LIMIT) for limit in (1, 2, 3)]
    await host.ready("--slots", 3, **HASTY)
    pid = await host.running(*tasks)

    for task in tasks:
        assert_ran_too_long(await host.hsc.end_of(task))

    await gone(pid)
    assert not host.hsc.releases


async def test_a_lost_claim_in_a_process_that_lingers_ends_it_at_once(host: Host) -> None:
    blocked, neighbour = host.stubborn(max_runtime=LIMIT), host.waiting()
    executor = await host.ready("--slots", 2, **HASTY)
    pid = await host.running(neighbour, blocked)
    await executor.says("takes no more work")

    host.hsc.verdicts[blocked.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM

    await gone(pid)
    await host.hsc.release_of(neighbour)
    told = host.hsc.stopped[neighbour.claim.task_id]
    assert told.started_at.seconds
    assert "one whose claim was lost" in told.reason
    assert host.hsc.result_of(blocked) is None


@pytest.mark.long  # callbacks block for seconds
async def test_async_neighbours_of_a_callback_that_blocks_their_loop_are_handed_back_uncharged(
    host: Host,
) -> None:
    neighbours = [
        claimed("test.async_wait", host.journal.payload(), max_runtime=4 * SECOND) for _ in range(2)
    ]
    blocking = claimed("test.async_block", host.journal.payload(), max_runtime=LIMIT)
    await host.ready("--slots", 3, DULY_EXECUTOR_ANSWER_TIMEOUT="6s", **HASTY)
    pid = await host.running(*neighbours)
    assert await host.running(blocking) == pid

    await host.hsc.release_of(*neighbours)

    assert_ran_too_long(await host.hsc.end_of(blocking))
    assert not is_alive(pid)
    assert len(host.hsc.results) == 1
    for neighbour in neighbours:
        assert "ran too long" in host.hsc.stopped[neighbour.claim.task_id].reason


# ---- crashes ---------------------------------------------------------------------------------------------


# long: test_callback_pool.py has the rule for last words, however a process ends
@pytest.mark.parametrize("end", ["exit", pytest.param("signal", marks=pytest.mark.long)])
async def test_only_the_task_that_ends_its_process_is_charged(host: Host, end: str) -> None:
    culprit = claimed("test.spin", {**host.journal.payload(), "end": end})
    neighbours = [host.stubborn() for _ in range(2)]
    executor = await host.ready("--slots", 3)
    await host.running(*neighbours, culprit)

    host.journal.let_go()

    result = await host.hsc.end_of(culprit)
    await host.hsc.release_of(*neighbours)
    assert result.outcome == hsc_pb2.OUTCOME_CRASHED
    assert result.started_at.seconds
    assert "may be the cause" not in result.failure_message
    assert len(host.hsc.results) == 1
    for neighbour in neighbours:
        told = host.hsc.stopped[neighbour.claim.task_id]
        assert told.reason == "its callback process was ended by another task"
        assert told.started_at.seconds
    assert end != "signal" or "in run_on" in executor.output


async def test_what_a_drain_stops_says_so(host: Host) -> None:
    task = host.stubborn()
    executor = await host.ready(DULY_EXECUTOR_DRAIN_GRACE="100ms")
    await host.running(task)

    executor.kill(15)

    await host.hsc.release_of(task)
    assert "when the Executor had to stop" in host.hsc.stopped[task.claim.task_id].reason


# ---- lambdas that are kept apart -------------------------------------------------------------------------


@pytest.mark.long  # callbacks overrun for seconds
async def test_a_lambda_that_overran_shares_no_process_with_others_until_its_time_is_over(host: Host) -> None:
    others = [host.waiting() for _ in range(2)]
    executor = await host.ready("--slots", 8, DULY_EXECUTOR_ISOLATE_FOR="4s")
    first = running_on(host)
    pid = await host.running(first)
    await host.hsc.end_of(first)
    await executor.says("lambda isolated")
    apart = [claimed("test.spin", host.journal.payload()) for _ in range(2)]

    host.hand_out(*others, *apart)
    shared = {await host.journal.started(other) for other in others}
    separate = {await host.journal.started(task) for task in apart}

    assert shared == {pid}
    assert len(separate) == 1
    assert separate.isdisjoint(shared)
    await executor.says("lambda isolation ended")
    isolation_ended = claimed("test.spin", host.journal.payload())
    assert await host.running(isolation_ended) == pid


async def test_a_lambda_whose_task_crashed_a_process_shares_none_with_others(host: Host) -> None:
    crashing = claimed("test.misbehave", "leave")
    # else a slow machine hands the next task back before there is a new process
    await host.ready("--slots", 8, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(crashing)
    await host.hsc.end_of(crashing)
    other = host.waiting()
    pid = await host.running(other)

    for _ in range(3):
        crash = claimed("test.misbehave", "leave")
        host.hand_out(crash)
        assert (await host.hsc.end_of(crash)).outcome == hsc_pb2.OUTCOME_CRASHED

    assert is_alive(pid)
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(other)) == "waited"
    assert starts(host, other) == 1


# ---- kills -----------------------------------------------------------------------------------------------


async def test_a_kill_ends_a_callback_that_heeds_nothing_and_its_process_and_lets_neighbours_finish_first(
    host: Host,
) -> None:
    poison, neighbour, after = host.stubborn(), host.waiting(), claimed("test.context")
    executor = await host.ready("--slots", 2, DULY_EXECUTOR_CANCEL_GRACE="1h", **HASTY)
    pid = await host.running(neighbour, poison)
    host.hsc.verdicts[poison.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    await host.hsc.beat_of(poison)  # asking did not help

    host.hsc.to_kill.add(poison.claim.task_id)
    await executor.says("takes no more work")
    host.hand_out(after)

    assert value_of(await host.hsc.end_of(after))["pid"] != pid  # the slots are back
    assert is_alive(pid)
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(neighbour)) == "waited"
    assert (await host.hsc.end_of(poison)).outcome == hsc_pb2.OUTCOME_CANCELLED
    await gone(pid)
    assert "reason=kill" in executor.output or '"reason": "kill"' in executor.output


async def test_neighbours_of_a_killed_callback_that_do_not_end_within_their_grace_run_again_uncharged(
    host: Host,
) -> None:
    poison, neighbour = host.stubborn(), host.waiting()
    await host.ready("--slots", 2, DULY_EXECUTOR_NEIGHBOUR_GRACE="300ms", **HASTY)
    pid = await host.running(neighbour, poison)

    host.hsc.to_kill.add(poison.claim.task_id)

    assert (await host.hsc.end_of(poison)).outcome == hsc_pb2.OUTCOME_CANCELLED
    await host.hsc.release_of(neighbour)
    assert "duly cancel --kill" in host.hsc.stopped[neighbour.claim.task_id].reason
    assert host.hsc.result_of(neighbour) is None
    await gone(pid)


async def test_heartbeats_tell_at_once_since_when_a_callback_does_not_end_and_what_it_waits_for(
    host: Host,
) -> None:
    late, neighbours = running_on(host, swallow="yes"), [host.waiting() for _ in range(2)]
    # the next heartbeat by the clock comes long after
    timing = {"DULY_TIMING_HEARTBEAT_PERIOD": "15s", "DULY_TIMING_HEARTBEAT_DEADLINE": "250ms"}
    lease = {f"DULY_TIMING_{name}": "70s" for name in ("HEARTBEAT_TIMEOUT", "CLAIM_TIMEOUT")}
    await host.ready("--slots", 3, **HASTY, **timing, **lease, DULY_TIMING_PROCESS_DEADLINE="60s")
    await host.running(*neighbours, late)

    def told() -> hsc_pb2.HeartbeatItem | None:
        items = [item for beat in host.hsc.beats for item in beat.items if item.HasField("overdue_for")]
        return items[0] if items else None

    item = await host.hsc.until(told, 8 * SECOND)

    assert item.claim == late.claim
    assert item.overdue_neighbours == 2
    assert 0 < item.overdue_for.ToTimedelta().total_seconds() < 8


async def test_a_kill_needs_no_process_of_what_can_be_interrupted_or_has_not_started(host: Host) -> None:
    running, waiting = claimed("test.spin", host.journal.payload()), host.waiting()
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, waiting)
    pid = await host.journal.started(running)

    host.hsc.to_kill |= {running.claim.task_id, waiting.claim.task_id}

    assert (await host.hsc.end_of(running)).outcome == hsc_pb2.OUTCOME_CANCELLED
    assert (await host.hsc.end_of(waiting)).outcome == hsc_pb2.OUTCOME_CANCELLED
    assert not host.journal.has("started", waiting)
    assert is_alive(pid)


@pytest.mark.long  # starts an Executor; test_watchdog_overruns.py has the rule
async def test_an_overrun_waits_for_its_neighbours_no_longer_than_their_grace(host: Host) -> None:
    late, neighbour = running_on(host, swallow="yes"), host.waiting()
    await host.ready("--slots", 2, DULY_EXECUTOR_NEIGHBOUR_GRACE="300ms", **HASTY)
    pid = await host.running(neighbour, late)

    assert_ran_too_long(await host.hsc.end_of(late))

    await host.hsc.release_of(neighbour)
    assert "ran too long" in host.hsc.stopped[neighbour.claim.task_id].reason
    await gone(pid)
