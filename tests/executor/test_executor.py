"""The Executor as a process, between a Controller and an HSC that do as they are told."""

import signal
from datetime import timedelta

import pytest

from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.host import SECOND, SHORT, Host, claimed, gone, value_of
from tests.fixtures.programs import is_alive


async def test_a_task_is_run_and_reported(host: Host) -> None:
    task = claimed("test.echo", {"answer": 42})
    await host.ready(DULY_EXECUTOR_POLL_TIMEOUT="100ms")

    host.hand_out(task)

    assert value_of(await host.hsc.end_of(task)) == {"answer": 42}


async def test_an_executor_attaches_with_its_lambdas_its_process_and_its_journal(host: Host) -> None:
    executor = await host.ready()

    (attached,) = host.controller.attached
    assert "test.echo" in {declared.name for declared in attached.lambdas}
    assert attached.pid == executor.pid
    assert attached.board_fd > 0


async def test_an_executor_that_the_controller_does_not_know_attaches_again(host: Host) -> None:
    await host.ready(DULY_EXECUTOR_POLL_TIMEOUT="100ms")

    host.controller.knows_executors = False  # as after its restart

    await host.controller.until(lambda: len(host.controller.attached) == 2)
    assert len({attached.executor_id for attached in host.controller.attached}) == 1


async def test_an_executor_whose_lambdas_the_registry_refuses_says_so_and_gives_up(host: Host) -> None:
    host.controller.registry_problem = "lambda 'test.echo', max_runtime: is longer than a year"
    executor = host.start()

    assert await executor.exit_code() == 78

    assert "duly executor: the registry refuses: lambda 'test.echo', max_runtime" in executor.output


async def test_an_executor_refuses_lease_terms_under_which_a_task_could_run_twice(host: Host) -> None:
    host.controller.terms = hsc_pb2.LeaseTerms(
        claim_timeout=to_duration(SECOND), heartbeat_timeout=to_duration(SECOND)
    )
    executor = await host.ready()
    task = claimed()

    host.hand_out(task)

    assert await executor.exit_code() == 78
    assert "the HSC's heartbeat_timeout is 1s, too short" in executor.output
    assert task.claim in host.hsc.releases
    assert not host.hsc.results


async def test_heartbeats_become_more_frequent_as_soon_as_a_lease_is_shorter(host: Host) -> None:
    """With those of its configuration the first would come after 15 s, and the test would be over."""
    await host.ready(
        DULY_TIMING_HEARTBEAT_PERIOD="15s",
        DULY_TIMING_HEARTBEAT_DEADLINE="10s",
        DULY_TIMING_PROCESS_DEADLINE="57s",
        DULY_TIMING_HEARTBEAT_TIMEOUT="60s",
        DULY_TIMING_CLAIM_TIMEOUT="60s",
    )
    host.controller.terms = host.hsc.terms = hsc_pb2.LeaseTerms(
        claim_timeout=to_duration(5 * SECOND), heartbeat_timeout=to_duration(5 * SECOND)
    )

    host.hand_out(host.waiting())

    await host.hsc.until(lambda: len([beat for beat in host.hsc.beats if beat.items]) >= 3)


@pytest.mark.parametrize(
    "age",
    [
        pytest.param(20 * SECOND, id="its lease is over"),
        pytest.param(19.3 * SECOND, id="its lease would be over before a heartbeat is acknowledged"),
    ],
)
async def test_a_claim_that_comes_too_late_is_handed_back_and_not_started(host: Host, age: timedelta) -> None:
    late = host.waiting()
    in_time = claimed("test.echo")
    await host.ready()

    host.hand_out(late, age=age)
    host.hand_out(in_time)

    await host.hsc.release_of(late)
    await host.hsc.end_of(in_time)
    assert not host.journal.lines("started")


@pytest.mark.long  # starts an Executor; test_held_claims.py has the rule
async def test_heartbeats_name_everything_that_is_held_and_not_only_what_runs(host: Host) -> None:
    tasks = [host.waiting() for _ in range(3)]
    await host.ready("--slots", 2, DULY_EXECUTOR_RECALL_AFTER="1h")

    host.hand_out(*tasks)

    await host.hsc.beat_of(*tasks)
    host.journal.let_go()
    for task in tasks:
        assert value_of(await host.hsc.end_of(task)) == "waited"


async def test_a_heartbeat_carries_the_newest_progress(host: Host) -> None:
    task = host.progressing()
    await host.ready()

    await host.running(task)
    await host.hsc.beat_of(task)

    (item,) = host.hsc.beats[-1].items
    assert (item.progress, item.progress_note) == (0.75, "three of four")


async def test_heartbeats_go_on_while_a_callback_holds_the_gil(host: Host) -> None:
    task = claimed("test.misbehave", "hold the GIL")
    await host.ready()

    host.hand_out(task)

    for _ in range(4):
        await host.hsc.beat_of(task)
    assert host.hsc.result_of(task) is None
    assert value_of(await host.hsc.end_of(task)) == "let go"


async def test_a_result_is_brought_again_until_the_hsc_is_back_and_heartbeats_go_on_meanwhile(
    host: Host,
) -> None:
    host.hsc.away.add("SetResults")
    task = claimed()
    await host.ready()

    host.hand_out(task)
    await host.hsc.beat_of(task)
    await host.hsc.beat_of(task)
    host.hsc.away.clear()

    assert value_of(await host.hsc.end_of(task)) is None


async def test_results_that_do_not_fit_into_one_message_go_in_several(host: Host) -> None:
    host.hsc.away.add("SetResults")
    tasks = [claimed("test.echo", "x" * 250_000) for _ in range(20)]
    await host.ready("--slots", 20, DULY_RPC_MAX_MESSAGE_BYTES="1000000")

    host.hand_out(*tasks)
    await host.hsc.beat_of(*tasks)
    host.hsc.away.clear()

    for task in tasks:
        assert len(value_of(await host.hsc.end_of(task))) == 250_000


async def test_the_third_failed_heartbeat_ends_the_process_and_its_callbacks(host: Host) -> None:
    task = host.stubborn()
    executor = await host.ready(**SHORT)
    pid = await host.running(task)

    host.hsc.away.add("Heartbeat")

    assert await executor.exit_code() == -signal.SIGKILL
    await gone(pid)
    assert "too many failed heartbeat calls: executor ends itself" in executor.output
    assert executor.output.count("heartbeat call failed") == 3


async def test_a_stopped_executor_is_dead_before_its_lease_is_over(host: Host) -> None:
    task = host.stubborn()
    executor = await host.ready(**SHORT)
    pid = await host.running(task)

    executor.kill(signal.SIGSTOP)

    assert await executor.exit_code(3 * SECOND) == -signal.SIGKILL
    await gone(pid)


async def test_a_lost_claim_ends_its_callback_and_hands_its_neighbours_back(host: Host) -> None:
    lost, neighbour = (host.stubborn() for _ in range(2))
    executor = await host.ready()
    pid = await host.running(lost, neighbour)

    host.hsc.verdicts[lost.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM

    await gone(pid)
    await host.hsc.release_of(neighbour)
    assert not host.hsc.results
    assert is_alive(executor.pid)


async def test_a_lost_claim_that_waits_for_a_slot_is_never_started(host: Host) -> None:
    running, lost = (host.waiting() for _ in range(2))
    await host.ready("--slots", 1, DULY_EXECUTOR_RECALL_AFTER="1h")
    host.hand_out(running, lost)
    await host.journal.started(running)

    host.hsc.verdicts[lost.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM
    await host.hsc.until(lambda: host.hsc.beats and len(host.hsc.beats[-1].items) == 1)
    host.journal.let_go()
    await host.hsc.end_of(running)
    after = claimed()
    host.hand_out(after)
    await host.hsc.end_of(after)

    assert not host.journal.has("started", lost)
    assert host.hsc.result_of(lost) is None


async def test_when_all_claims_are_lost_the_executor_asks_for_new_work(host: Host) -> None:
    lost = host.stubborn()
    await host.ready("--slots", 1)
    await host.running(lost)

    host.hsc.verdicts[lost.claim.task_id] = hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM
    task = claimed()
    host.hand_out(task)

    assert value_of(await host.hsc.end_of(task)) is None


# long: more slots make no other end
@pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_max_runtime_ends_its_callback_alone_and_work_goes_on(host: Host, slots: int) -> None:
    too_long = host.stubborn(max_runtime=SECOND / 5)
    elsewhere = host.waiting()
    await host.ready("--slots", slots, "--processes", 2)
    host.hand_out(elsewhere, too_long)

    result = await host.hsc.end_of(too_long)
    next_task = claimed()
    host.hand_out(next_task)

    assert result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    assert result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME
    await host.hsc.end_of(next_task)
    host.journal.let_go()
    assert value_of(await host.hsc.end_of(elsewhere)) == "waited"
