"""One HSC before two real cells: who gets what, in which turn, and what a cell that is away costs the others."""

import asyncio
import os
from collections import Counter
from datetime import timedelta

import grpc
import pytest

from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2, hsc_pb2
from tests.fixtures.hsc_cells import OF_A, OF_B, serve_cells
from tests.fixtures.services import TIMING, refusal
from tests.fixtures.waiting import until

DEADLINE = 20


@pytest.fixture
async def hsc(postgres_server):
    async with serve_cells(postgres_server) as served:
        yield served


def request(*lambdas, most=10, seconds=15.0, prefix=None, lost=(), keeps_cells=True):
    return hsc_pb2.ClaimWorkRequest(
        holder="host",
        lambdas=lambdas or [OF_A, OF_B],
        max_tasks=most,
        timeout=to_duration(timedelta(seconds=seconds)),
        token_prefix=os.urandom(TOKEN_PREFIX_BYTES) if prefix is None else prefix,
        lost_prefixes=lost,
        keeps_cells=keeps_cells,
    )


async def claim(hsc, *lambdas, **asked):
    response = await hsc.stub.ClaimWork(request(*lambdas, **asked), timeout=DEADLINE)
    return [task.claim for task in response.tasks]


def ids(claims):
    return [claim.task_id for claim in claims]


def result(claim, **fields):
    return hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS, **fields)


async def status(hsc, cell, task_id):
    return (await hsc.states[cell].row(task_id))["status"]


async def all_wait(hsc, cells="ab"):
    await until(lambda: all(hsc.servicers[cell].work._waiting for cell in cells))


# ---- claims --------------------------------------------------------------------------------------------------


async def test_a_claim_says_in_which_cell_it_was_made(hsc):
    of_a, of_b = await hsc.new("a"), await hsc.new("b")

    claims = {each.cell: each.task_id for each in [*await claim(hsc, OF_A), *await claim(hsc, OF_B)]}

    assert claims == {"a": of_a, "b": of_b}


@pytest.fixture
def patient(monkeypatch):
    """A cell that a busy machine slows down does not count as one that hangs."""
    monkeypatch.setattr("duly_hsc.cells.turns._HEAD_START", 2.0)


@pytest.mark.usefixtures("patient")
async def test_one_answer_has_tasks_of_one_cell_and_a_busy_cell_takes_no_turn_of_another(hsc):
    for _ in range(30):
        await hsc.new("a")
    for _ in range(2):
        await hsc.new("b")

    answers = [await claim(hsc, most=1) for _ in range(4)]

    assert all(len(answer) == 1 for answer in answers)
    assert Counter(answer[0].cell for answer in answers) == {"a": 2, "b": 2}


@pytest.mark.parametrize("cell", ["a", "b"])
async def test_a_call_that_waits_in_both_cells_ends_with_the_first_work_of_either(hsc, cell):
    answer = asyncio.ensure_future(claim(hsc))
    await all_wait(hsc)

    task_id = await hsc.new(cell)

    assert ids(await answer) == [task_id]


async def test_nobody_waits_in_any_cell_after_an_answer(hsc):
    answer = asyncio.ensure_future(claim(hsc))
    await all_wait(hsc)
    await hsc.new("a")
    await answer

    await until(lambda: not any(servicer.work._waiting for servicer in hsc.servicers.values()))


@pytest.mark.usefixtures("patient")
async def test_of_two_cells_in_which_something_is_due_at_once_one_claims_for_a_call(hsc):
    answer = asyncio.ensure_future(claim(hsc))
    await all_wait(hsc)
    tasks = {
        cell: (await hsc.states[cell].new(lambda_name=name)).task_id
        for cell, name in (("a", OF_A), ("b", OF_B))
    }

    for cell, name in (("a", OF_A), ("b", OF_B)):
        hsc.servicers[cell].work.note_due(timedelta(), {name})

    (first,) = await answer
    other = "b" if first.cell == "a" else "a"
    assert (await hsc.states[other].row(tasks[other]))["fence"] == 0
    (second,) = await claim(hsc, OF_A if other == "a" else OF_B)
    assert second.task_id == tasks[other]


async def test_a_call_in_which_nothing_came_is_answered_with_the_terms_of_leases_alone(hsc):
    response = await hsc.stub.ClaimWork(request(seconds=0.1), timeout=DEADLINE)

    assert list(response.tasks) == []
    assert response.terms.claim_timeout.ToTimedelta() == TIMING.claim_timeout


async def test_the_reply_that_was_lost_is_found_in_whatever_cell_it_was_claimed(hsc):
    task_id = await hsc.new("b")
    lost = os.urandom(TOKEN_PREFIX_BYTES)
    (first,) = await claim(hsc, OF_B, prefix=lost)

    (again,) = await claim(hsc, lost=[lost])

    assert (again.task_id, again.cell) == (task_id, "b")
    assert again.token != first.token


async def test_a_host_that_knows_no_cells_gets_tasks_of_the_default_cell_only(hsc):
    of_a = await hsc.new("a")
    await hsc.new("b")

    assert ids(await claim(hsc, keeps_cells=False)) == [of_a]
    assert await claim(hsc, keeps_cells=False, seconds=0.1) == []
    refused = await refusal(hsc.stub.ClaimWork(request(OF_B, keeps_cells=False), timeout=DEADLINE))
    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "upgrade" in refused.message


# ---- holders -------------------------------------------------------------------------------------------------


async def test_heartbeats_results_and_releases_go_to_the_cell_of_each_claim(hsc):
    for cell in "ab":
        for _ in range(2):
            await hsc.new(cell)
    claims = [*await claim(hsc, OF_A), *await claim(hsc, OF_B)]
    mixed = [claims[0], claims[2], claims[1], claims[3]]

    beaten = await hsc.stub.Heartbeat(
        hsc_pb2.HeartbeatRequest(holder="host", items=[hsc_pb2.HeartbeatItem(claim=each) for each in mixed]),
        timeout=DEADLINE,
    )
    written = await hsc.stub.SetResults(
        hsc_pb2.SetResultsRequest(results=[result(each) for each in mixed[:2]]), timeout=DEADLINE
    )
    released = await hsc.stub.Release(hsc_pb2.ReleaseRequest(claims=mixed[2:]), timeout=DEADLINE)

    assert list(beaten.verdicts) == [hsc_pb2.HEARTBEAT_VERDICT_KEPT] * 4
    assert beaten.terms.HasField("heartbeat_timeout")
    assert list(written.verdicts) == list(released.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED] * 2
    assert [await status(hsc, each.cell, each.task_id) for each in mixed] == [
        "success",
        "success",
        "new",
        "new",
    ]


async def test_the_verdicts_of_several_cells_are_in_the_order_of_the_request(hsc):
    await hsc.new("a")
    await hsc.new("b")
    (of_a,), (of_b,) = await claim(hsc, OF_A), await claim(hsc, OF_B)
    void = hsc_pb2.Claim(task_id=os.urandom(16), token=os.urandom(16), cell="b")

    written = await hsc.stub.SetResults(
        hsc_pb2.SetResultsRequest(results=[result(void), result(of_a), result(of_b)]), timeout=DEADLINE
    )

    assert list(written.verdicts) == [
        hsc_pb2.RESULT_VERDICT_LOST_CLAIM,
        hsc_pb2.RESULT_VERDICT_APPLIED,
        hsc_pb2.RESULT_VERDICT_APPLIED,
    ]


async def test_claims_that_name_no_cell_are_those_of_the_default_cell(hsc):
    await hsc.new("a")
    (of_a,) = await claim(hsc, OF_A)
    of_a.ClearField("cell")

    written = await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result(of_a)]), timeout=DEADLINE)

    assert list(written.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]


async def test_a_claim_of_a_cell_that_is_not_known_here_may_be_known_elsewhere(hsc):
    claim = hsc_pb2.Claim(task_id=os.urandom(16), token=os.urandom(16), cell="c")

    refused = await refusal(
        hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result(claim)]), timeout=DEADLINE)
    )

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "'c'" in refused.message


async def test_what_lost_requests_claimed_is_handed_back_in_all_cells(hsc):
    prefixes = [os.urandom(TOKEN_PREFIX_BYTES) for _ in "ab"]
    tasks = {cell: await hsc.new(cell) for cell in "ab"}
    for name, prefix in zip((OF_A, OF_B), prefixes, strict=True):
        await claim(hsc, name, prefix=prefix)

    await hsc.stub.Release(hsc_pb2.ReleaseRequest(token_prefixes=prefixes), timeout=DEADLINE)

    assert [await status(hsc, cell, task_id) for cell, task_id in tasks.items()] == ["new", "new"]


async def test_a_child_whose_lambda_lives_in_another_cell_ends_its_parent_with_both_names(hsc):
    task_id = await hsc.new("a")
    (of_a,) = await claim(hsc, OF_A)
    child = frontend_pb2.NewTask(task_id=str(new_task_id()), **{"lambda": OF_B}, payload=b"{}")

    await hsc.stub.SetResults(
        hsc_pb2.SetResultsRequest(results=[result(of_a, children=[child])]), timeout=DEADLINE
    )

    row = await hsc.states["a"].row(task_id)
    assert row["status"] == "fatal_failure"
    assert "cell b" in row["failure_message"]
    assert "cell a" in row["failure_message"]


# ---- references of queues -------------------------------------------------------------------------------------


def proposals(*tasks, keeps_cells=True):
    return hsc_pb2.ClaimTaskRequest(
        holder="host",
        proposals=[
            hsc_pb2.ClaimProposal(
                claim=hsc_pb2.Claim(task_id=task.task_id, token=os.urandom(16)),
                **{"lambda": task.lambda_name},
            )
            for task in tasks
        ],
        keeps_cells=keeps_cells,
    )


async def enqueued(hsc):
    return [await hsc.states[cell].enqueued(lambda_name=name) for cell, name in (("a", OF_A), ("b", OF_B))]


def verdicts(response):
    return [answer.verdict for answer in response.answers]


async def test_references_of_two_cells_are_claimed_in_one_call(hsc):
    tasks = await enqueued(hsc)

    response = await hsc.stub.ClaimTask(proposals(*tasks), timeout=DEADLINE)

    assert verdicts(response) == [hsc_pb2.CLAIM_VERDICT_CLAIMED] * 2
    assert [answer.task.claim.cell for answer in response.answers] == ["a", "b"]
    assert response.terms.HasField("claim_timeout")


async def test_a_reference_of_a_cell_that_is_away_is_neither_claimed_nor_refused(hsc):
    tasks = await enqueued(hsc)
    await hsc.lines["b"].cut()

    response = await hsc.stub.ClaimTask(proposals(*tasks), timeout=DEADLINE)

    assert verdicts(response) == [hsc_pb2.CLAIM_VERDICT_CLAIMED, hsc_pb2.CLAIM_VERDICT_CELL_AWAY]


async def test_what_a_cell_claims_after_its_caller_was_answered_is_not_taken_from_a_repeat(postgres_server):
    async with serve_cells(postgres_server, patience=timedelta(minutes=5)) as hsc:
        asked = proposals(*await enqueued(hsc))
        hsc.lines["b"].freeze()
        response = await hsc.stub.ClaimTask(asked, timeout=DEADLINE)
        assert verdicts(response) == [hsc_pb2.CLAIM_VERDICT_CLAIMED, hsc_pb2.CLAIM_VERDICT_CELL_AWAY]
        (late,) = hsc.router._background
        hsc.lines["b"].thaw()
        await late

        again = await hsc.stub.ClaimTask(asked, timeout=DEADLINE)
        assert verdicts(again) == [hsc_pb2.CLAIM_VERDICT_CLAIMED] * 2
        assert await status(hsc, "b", asked.proposals[1].claim.task_id) == "claimed"


async def test_claims_wait_no_moment_for_a_cell_that_has_hung_before_and_it_makes_none_that_nobody_waits_for(
    postgres_server, monkeypatch
):
    async with serve_cells(postgres_server, patience=timedelta(minutes=5)) as hsc:
        hsc.lines["b"].freeze()
        await hsc.stub.ClaimTask(proposals(*await enqueued(hsc)), timeout=DEADLINE)
        (late,) = hsc.router._background
        monkeypatch.setattr("duly_hsc.cells.router._PATIENCE", 10 * DEADLINE)
        asked = proposals(*await enqueued(hsc))

        for _ in range(3):
            answers = verdicts(await hsc.stub.ClaimTask(asked, timeout=DEADLINE))
            assert answers == [hsc_pb2.CLAIM_VERDICT_CLAIMED, hsc_pb2.CLAIM_VERDICT_CELL_AWAY]
        (look,) = hsc.router._looks.values()

        hsc.lines["b"].thaw()
        await asyncio.gather(late, look)
        assert await status(hsc, "b", asked.proposals[1].claim.task_id) == "enqueued"
        again = await hsc.stub.ClaimTask(asked, timeout=DEADLINE)
        assert verdicts(again) == [hsc_pb2.CLAIM_VERDICT_CLAIMED] * 2
        assert not hsc.router._looks


async def test_references_of_cells_that_are_all_in_doubt_are_claimed_by_the_call_that_finds_them_back(hsc):
    asked = proposals(*await enqueued(hsc))
    for name in ("a", "b"):
        hsc.cells.get(name).pause.hung()

    response = await hsc.stub.ClaimTask(asked, timeout=DEADLINE)
    if hsc_pb2.CLAIM_VERDICT_CELL_AWAY in verdicts(response):  # one was seen to answer before the other
        await until(lambda: not hsc.router._looks)
        response = await hsc.stub.ClaimTask(asked, timeout=DEADLINE)

    assert verdicts(response) == [hsc_pb2.CLAIM_VERDICT_CLAIMED] * 2


async def test_a_cell_that_failed_is_looked_at_by_one_of_the_calls_that_concern_others_too(hsc):
    asked = proposals(*await enqueued(hsc))
    await hsc.lines["b"].cut()
    await hsc.stub.ClaimTask(asked, timeout=DEADLINE)
    await hsc.lines["b"].restore()
    pause = hsc.cells.get("b").pause

    answers = [0, 0]
    async with asyncio.timeout(DEADLINE):
        while answers[1] != hsc_pb2.CLAIM_VERDICT_CLAIMED:
            answers = verdicts(await hsc.stub.ClaimTask(asked, timeout=DEADLINE))
            assert answers[0] == hsc_pb2.CLAIM_VERDICT_CLAIMED
            await until(lambda: not hsc.router._looks)

    assert not pause.is_in_doubt


async def test_a_controller_that_knows_no_cells_claims_in_the_default_cell_only(hsc):
    tasks = await enqueued(hsc)

    response = await hsc.stub.ClaimTask(proposals(*tasks, keeps_cells=False), timeout=DEADLINE)

    assert verdicts(response) == [hsc_pb2.CLAIM_VERDICT_CLAIMED, hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED]


# ---- a cell is away -------------------------------------------------------------------------------------------


async def test_a_cell_that_is_away_fails_its_own_calls_and_names_itself(hsc):
    await hsc.new("a")
    await hsc.new("b")
    (of_a,), (of_b,) = await claim(hsc, OF_A), await claim(hsc, OF_B)
    await hsc.lines["b"].cut()

    refused = await refusal(
        hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result(of_b)]), timeout=DEADLINE)
    )
    written = await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result(of_a)]), timeout=DEADLINE)

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "cell b" in refused.message
    assert list(written.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]


async def test_claims_of_one_cell_go_on_while_another_is_away(hsc):
    await hsc.lines["b"].cut()
    tasks = [await hsc.new("a") for _ in range(6)]

    found = [ids(await claim(hsc, most=1)) for _ in tasks]

    assert sorted(found) == sorted([task_id] for task_id in tasks)


async def test_a_call_for_cells_that_are_all_away_fails_as_for_a_sole_store(hsc):
    for line in hsc.lines.values():
        await line.cut()

    refused = await refusal(hsc.stub.ClaimWork(request(), timeout=DEADLINE))

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "cell " in refused.message


async def test_a_call_that_waits_gets_the_work_of_a_cell_that_came_back_and_hears_how_long_it_waited(hsc):
    loop = asyncio.get_running_loop()
    await hsc.lines["b"].cut()
    answer = asyncio.ensure_future(hsc.stub.ClaimWork(request(seconds=15), timeout=DEADLINE))
    await all_wait(hsc, "a")
    began_at = loop.time()
    task_id = (await hsc.states["b"].new(lambda_name=OF_B)).task_id
    away_until = loop.time()

    await hsc.lines["b"].restore()

    response = await answer
    assert [task.claim.task_id for task in response.tasks] == [task_id]
    assert response.waited.ToTimedelta().total_seconds() >= away_until - began_at


async def test_a_cell_that_hangs_does_not_hold_up_the_claims_of_others(postgres_server):
    async with serve_cells(postgres_server, patience=timedelta(minutes=5)) as hsc:
        hsc.lines["b"].freeze()
        tasks = [await hsc.new("a") for _ in range(6)]
        hsc.servicers["b"].work.note_due(timedelta(), {OF_B})

        found = [ids(await claim(hsc, most=1)) for _ in tasks]

        hsc.lines["b"].thaw()
    assert sorted(found) == sorted([task_id] for task_id in tasks)


async def test_what_a_cell_that_is_away_owes_is_handed_back_when_it_answers(hsc):
    task_id = await hsc.new("b")
    prefix = os.urandom(TOKEN_PREFIX_BYTES)
    await claim(hsc, OF_B, prefix=prefix)
    await hsc.lines["b"].cut()
    await hsc.stub.Release(hsc_pb2.ReleaseRequest(token_prefixes=[prefix]), timeout=DEADLINE)
    await hsc.lines["b"].restore()

    await until(lambda: hsc.cells.get("b").pause.left() == 0)

    await hsc.cells.run_once()

    assert await status(hsc, "b", task_id) == "new"


async def test_a_cell_that_is_no_longer_served_is_away(hsc):
    await hsc.new("b")
    (of_b,) = await claim(hsc, OF_B)
    with hsc.cells.serving("b", hsc.servicers["b"]):
        pass

    refused = await refusal(
        hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result(of_b)]), timeout=DEADLINE)
    )

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "cell b is away" in refused.message
