"""What becomes of tasks when callback processes die, hang, or are asked to stop."""

import os
import signal

import pytest

from duly_wire.v1 import hsc_pb2, task_pb2
from tests.chaos import process_tree
from tests.fixtures.host import SECOND, Host, claimed, gone, until, value_of
from tests.fixtures.programs import is_alive


async def test_the_task_of_a_killed_callback_process_crashed_and_what_waited_runs_in_the_next(
    host: Host,
) -> None:
    running, waiting = host.stubborn(), claimed("test.context")
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, waiting)
    pid = await host.journal.started(running)

    os.kill(pid, signal.SIGKILL)

    result = await host.hsc.end_of(running)
    assert (result.outcome, result.failure_kind) == (hsc_pb2.OUTCOME_CRASHED, task_pb2.FAILURE_KIND_CRASH)
    assert "was killed by signal 9" in result.failure_message
    assert value_of(await host.hsc.end_of(waiting))["pid"] != pid


@pytest.mark.long  # starts an Executor; the first test of this file has it after another way to end
async def test_a_new_callback_process_takes_the_place_of_a_dead_one(host: Host) -> None:
    before, after = claimed("test.misbehave", "leave"), claimed("test.context")
    # else a slow machine hands the next task back before there is a new process
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")

    host.hand_out(before)
    crashed = await host.hsc.end_of(before)
    host.hand_out(after)

    assert "ended with exit code 7" in crashed.failure_message
    assert value_of(await host.hsc.end_of(after))["task_id"]


async def test_every_task_that_a_process_ran_when_it_died_is_a_suspect(host: Host) -> None:
    suspects = [host.stubborn() for _ in range(3)]
    await host.ready("--slots", 3)
    pid = await host.running(*suspects)

    os.kill(pid, signal.SIGSEGV)

    for suspect in suspects:
        result = await host.hsc.end_of(suspect)
        assert result.outcome == hsc_pb2.OUTCOME_CRASHED
        assert "3 tasks, any of which may be the cause" in result.failure_message


async def test_a_suspect_runs_alone_in_a_process_beside_those_that_others_wait_for(host: Host) -> None:
    suspect, others = host.waiting(crashes=1), [host.waiting() for _ in range(3)]
    await host.ready("--slots", 4)

    host.hand_out(suspect, *others)

    alone = await host.journal.started(suspect)
    assert alone not in {await host.journal.started(other) for other in others}


@pytest.mark.long  # starts an Executor; test_dispatch.py has the rule
async def test_suspects_wait_neither_for_the_end_of_others_nor_for_one_another(host: Host) -> None:
    others = [host.waiting() for _ in range(3)]
    suspects = [host.waiting(crashes=crashes) for crashes in (1, 2, 1)]
    await host.ready("--slots", 2, "--processes", 2)
    await host.running(*others)

    await host.running(*suspects)

    busy = {await host.journal.started(other) for other in others}
    alone = {await host.journal.started(suspect) for suspect in suspects}
    assert len(busy) == 2
    assert len(alone) == 3
    assert alone.isdisjoint(busy)


@pytest.mark.long  # starts an Executor; test_dispatch.py has the rule
async def test_an_executor_that_runs_suspects_goes_on_with_other_tasks(host: Host) -> None:
    suspects, other = [host.waiting(crashes=1) for _ in range(2)], claimed()
    await host.ready("--slots", 4)
    host.hand_out(*suspects)
    await host.journal.started(suspects[0])

    host.hand_out(other)

    assert value_of(await host.hsc.end_of(other)) is None


@pytest.mark.long  # starts an Executor; test_executor_stuck.py has the rule
async def test_a_suspect_that_waits_for_another_is_not_handed_back_at_once(host: Host) -> None:
    busy, first, suspect = host.waiting(), host.waiting(crashes=1), claimed(crashes=1)
    await host.ready("--slots", 2, DULY_EXECUTOR_RECALL_AFTER="100ms", DULY_EXECUTOR_ISOLATED_PROCESSES="1")
    await host.running(busy)
    await host.running(first)

    host.hand_out(suspect)
    for _ in range(3):
        await host.hsc.beat_of(suspect)
    host.journal.let_go()

    assert value_of(await host.hsc.end_of(suspect)) is None
    assert suspect.claim not in host.hsc.releases


async def test_what_waits_behind_slow_callbacks_is_handed_back(host: Host) -> None:
    slow, waiting = host.waiting(), host.waiting()
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="300ms")
    host.hand_out(slow, waiting)

    await host.hsc.release_of(waiting)

    assert not host.journal.has("started", waiting)
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(slow)) == "waited"


@pytest.mark.parametrize("name", ["test.wait", "test.async_wait"])
async def test_a_cancel_reaches_the_callback_which_stops_by_itself(host: Host, name: str) -> None:
    task = claimed(name, host.journal.payload())
    await host.ready()
    pid = await host.running(task)

    host.hsc.verdicts[task.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED

    result = await host.hsc.end_of(task)
    assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    assert host.journal.has("clean" if "async" in name else "cancelled", task)
    assert is_alive(pid)


@pytest.mark.long  # starts an Executor; test_watchdog_overruns.py has the rule
async def test_a_callback_that_ignores_a_cancel_is_killed_when_its_neighbour_has_ended(host: Host) -> None:
    ignorant, neighbour = host.stubborn(), host.waiting()
    executor = await host.ready(
        "--slots", 2, DULY_EXECUTOR_CANCEL_GRACE="200ms", DULY_EXECUTOR_INTERRUPT_GRACE="200ms"
    )
    pid = await host.running(neighbour, ignorant)

    host.hsc.verdicts[ignorant.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
    await executor.says("takes no more work")
    host.journal.let_go()

    result = await host.hsc.end_of(ignorant)
    assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    await gone(pid)
    assert value_of(await host.hsc.end_of(neighbour)) == "waited"


async def test_a_cancelled_task_that_waits_for_a_process_is_never_started(host: Host) -> None:
    running, cancelled = host.waiting(), host.waiting()
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h", DULY_EXECUTOR_CANCEL_GRACE="1h")
    host.hand_out(running, cancelled)
    await host.journal.started(running)

    host.hsc.verdicts[cancelled.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED

    result = await host.hsc.end_of(cancelled)
    assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    assert not host.journal.has("started", cancelled)


async def test_a_descendant_that_holds_the_socket_open_does_not_hide_that_the_process_died(
    host: Host,
) -> None:
    task, after = claimed("test.misbehave", "fork and die"), claimed()
    await host.ready("--slots", 1)

    host.hand_out(task)
    result = await host.hsc.end_of(task)
    host.hand_out(after)

    assert "ended with exit code 9" in result.failure_message
    assert value_of(await host.hsc.end_of(after)) is None


async def test_a_fork_that_returns_from_its_callback_runs_nothing_else(host: Host) -> None:
    forking, others = (
        claimed("test.misbehave", "fork and return"),
        [claimed("test.context") for _ in range(5)],
    )
    await host.ready("--slots", 1)

    host.hand_out(forking, *others)

    parent = value_of(await host.hsc.end_of(forking))
    assert not parent["is_child"]
    for task in others:
        assert value_of(await host.hsc.end_of(task))["pid"] == parent["pid"]
    assert len(host.hsc.results) == 6


@pytest.mark.long  # starts an Executor; test_held_claims.py has the rule
async def test_a_task_that_comes_back_under_a_new_claim_is_kept_when_the_old_ones_end_is_told(
    host: Host,
) -> None:
    host.hsc.away.add("SetResults")
    old = claimed()
    new = hsc_pb2.ClaimedTask()
    new.CopyFrom(host.waiting(fence=2))
    new.claim.task_id = old.claim.task_id
    await host.ready("--slots", 2)
    host.hand_out(old)
    await host.hsc.beat_of(old)

    await host.running(new)  # the old result had been applied, its reply was lost
    host.hsc.away.clear()
    await host.hsc.end_of(old)

    await host.hsc.beat_of(new)
    assert host.hsc.beats[-1].items[0].claim == new.claim
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(new)) == "waited"


async def test_a_process_that_is_killed_while_it_starts_again_does_not_end_the_executor(host: Host) -> None:
    executor = await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    first, last = host.stubborn(), claimed()
    pid = await host.running(first)

    def another_process() -> int | None:
        children = set(process_tree.children(executor.pid)) - {pid}
        return next(iter(children), None)

    os.kill(pid, signal.SIGKILL)
    os.kill(await until(another_process), signal.SIGKILL)
    host.hand_out(last)

    assert value_of(await host.hsc.end_of(last)) is None
    assert is_alive(executor.pid)


@pytest.mark.long  # starts an Executor; test_callback_pool.py has the rule
async def test_max_runtime_is_not_reported_before_the_callback_runs_no_more(host: Host) -> None:
    task = host.stubborn(max_runtime=SECOND / 5)
    await host.ready()
    pid = await host.running(task)

    await host.hsc.end_of(task)

    assert not is_alive(pid)


async def test_a_process_that_says_what_nobody_understands_has_crashed(host: Host) -> None:
    task = claimed("test.misbehave", "say what nobody understands")
    await host.ready("--slots", 1)

    host.hand_out(task)

    result = await host.hsc.end_of(task)
    assert result.outcome == hsc_pb2.OUTCOME_CRASHED
    assert "sent its Executor what nobody understands" in result.failure_message
