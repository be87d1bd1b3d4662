"""An Executor that asks the HSC for work: what it asks, and what becomes of answers that it never gets."""

import signal
from datetime import timedelta
from time import monotonic

import grpc
import pytest

from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import SECOND, Command, Host, claimed, until, value_of

SHORT_LIVED = {"DULY_TIMING_PROCESS_DEADLINE": "2s"}
"""So long a claim lives on a host: beside LIVELY."""
LONGER = timedelta(seconds=2.5)


async def asking(host: Host, **environment: str) -> Command:
    """Start an Executor that is told to ask the HSC, and wait until it does."""
    host.controller.ask_hsc = True
    executor = host.start(**environment)
    await host.hsc.until(lambda: len(host.hsc.asked) >= 2)
    return executor


async def test_a_task_that_the_hsc_hands_out_is_run_and_reported(host: Host) -> None:
    await asking(host)
    task = claimed("test.echo", {"answer": 42})

    host.hsc.hand_out(task)

    assert value_of(await host.hsc.end_of(task)) == {"answer": 42}
    assert host.controller.asked == []


async def test_each_request_names_its_holder_its_lambdas_and_a_prefix_of_its_own(host: Host) -> None:
    await asking(host, DULY_EXECUTOR_POLL_TIMEOUT="100ms")

    await host.hsc.until(lambda: len(host.hsc.asked) >= 6)

    (attached,) = host.controller.attached
    assert {request.holder for request in host.hsc.asked} == {attached.executor_id}
    declared = sorted(each.name for each in attached.lambdas)
    assert {tuple(request.lambdas) for request in host.hsc.asked} == {tuple(declared)}
    prefixes = [request.token_prefix for request in host.hsc.asked]
    assert len(set(prefixes)) == len(prefixes)
    assert {len(prefix) for prefix in prefixes} == {14}


async def test_what_a_lost_reply_may_have_held_is_named_in_the_next_request_and_the_task_runs_once(
    host: Host,
) -> None:
    hsc = host.hsc
    hsc.away.add("ClaimWork")
    host.controller.ask_hsc = True
    host.start()
    await hsc.until(lambda: len(hsc.asked) >= 3)
    task = host.waiting()
    hsc.hand_out(task)

    hsc.away.clear()
    await host.journal.started(task)
    host.journal.let_go()
    await hsc.end_of(task)

    got = next(request for request in hsc.asked if request.token_prefix == task.claim.token[:14])
    before = {request.token_prefix for request in hsc.asked[: hsc.asked.index(got)]}
    assert before
    assert set(got.lost_prefixes) <= before
    named = {prefix for request in hsc.asked for prefix in request.lost_prefixes}
    assert before <= named
    assert len(host.journal.lines("started")) == len(hsc.results) == 1


async def test_at_its_end_an_executor_releases_what_its_open_calls_may_have_claimed(host: Host) -> None:
    executor = await asking(host)

    executor.kill(signal.SIGTERM)

    assert await executor.exit_code() == 0
    # the first call is answered at once
    assert set(host.hsc.prefixes) == {request.token_prefix for request in host.hsc.asked[1:]}


@pytest.mark.long  # waits for the end of a lease
async def test_a_claim_lives_from_when_the_hsc_made_it_however_long_the_call_had_been_open(
    host: Host,
) -> None:
    host.hsc.waited = LONGER
    await asking(host, **SHORT_LIVED)
    asked_at = monotonic()
    await until(lambda: monotonic() > asked_at + LONGER.total_seconds())
    task = claimed("test.echo", 1)

    host.hsc.hand_out(task)

    assert (await host.hsc.end_of(task)).outcome == hsc_pb2.OUTCOME_SUCCESS


@pytest.mark.long  # waits for the end of a lease
async def test_a_claim_of_which_the_hsc_does_not_say_that_the_call_waited_may_be_as_old_as_the_call(
    host: Host,
) -> None:
    await asking(host, **SHORT_LIVED)
    asked_at = monotonic()
    await until(lambda: monotonic() > asked_at + LONGER.total_seconds())
    task = claimed("test.echo", 1)

    host.hsc.hand_out(task)

    await host.hsc.release_of(task)
    assert host.hsc.results == []


@pytest.mark.long  # ten seconds of callbacks that overrun
async def test_a_lambda_that_is_kept_apart_and_has_no_process_left_keeps_no_other_from_being_asked_for(
    host: Host,
) -> None:
    spinning = host.journal.payload()
    first = claimed("test.spin", spinning, max_runtime=SECOND / 5)
    executor = await asking(
        host, DULY_EXECUTOR_SLOTS="1", DULY_EXECUTOR_ISOLATED_PROCESSES="1", DULY_EXECUTOR_POLL_TIMEOUT="1s"
    )
    host.hsc.hand_out(first)
    await executor.says("lambda isolated")
    many = [claimed("test.spin", spinning) for _ in range(150)]

    host.hsc.hand_out(*many)
    asked = await host.hsc.until(
        lambda: next((request for request in host.hsc.asked if "test.spin" not in request.lambdas), None)
    )
    other = claimed("test.echo", 1)
    host.hsc.hand_out(other)

    assert asked.lambdas
    assert value_of(await host.hsc.end_of(other)) == 1
    seen = len(host.hsc.asked)
    await host.hsc.until(
        lambda: any("test.spin" in request.lambdas for request in host.hsc.asked[seen:])
    )  # what waited was handed back


async def test_an_executor_that_is_told_otherwise_when_it_attaches_again_asks_its_controller(
    host: Host,
) -> None:
    await asking(host, DULY_EXECUTOR_POLL_TIMEOUT="1s")
    host.controller.ask_hsc = False
    host.hsc.refusing["ClaimWork"] = grpc.StatusCode.FAILED_PRECONDITION

    await host.controller.until(lambda: host.controller.asked)

    assert len(host.controller.attached) == 2


async def test_a_request_that_the_hsc_refuses_is_repeated(host: Host) -> None:
    host.hsc.refusing["ClaimWork"] = grpc.StatusCode.INVALID_ARGUMENT
    host.controller.ask_hsc = True
    executor = host.start()
    await host.hsc.until(lambda: len(host.hsc.asked) >= 3)
    task = claimed("test.echo", 1)

    del host.hsc.refusing["ClaimWork"]
    host.hsc.hand_out(task)

    await host.hsc.end_of(task)
    assert "INVALID_ARGUMENT: ClaimWork is refused" in executor.output


async def test_an_executor_refuses_to_wait_longer_for_work_than_the_hsc_lets_it(host: Host) -> None:
    executor = host.start(DULY_EXECUTOR_POLL_TIMEOUT="61s")

    assert await executor.exit_code() == 78
    assert "POLL_TIMEOUT" in executor.output
