"""The HSC over the real wire: a verdict for each item, and a definite refusal for each bad request."""

import asyncio
import os
from datetime import UTC, datetime, timedelta

import grpc
import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from duly_core.lambdas.names import QueueKey
from duly_core.tasks import polling
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import cancel_tasks, get_attempts
from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.services import TIMING, refusal, serve_hsc
from tests.fixtures.task_states import LAMBDA

HOUR = timedelta(hours=1)

CLAIMED, NOT_CLAIMED = hsc_pb2.CLAIM_VERDICT_CLAIMED, hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED
ASK_AGAIN = hsc_pb2.CLAIM_VERDICT_ASK_AGAIN
KEPT, LOST_CLAIM = hsc_pb2.HEARTBEAT_VERDICT_KEPT, hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM
CANCEL_REQUESTED = hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
APPLIED, ALREADY_APPLIED = hsc_pb2.RESULT_VERDICT_APPLIED, hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED
LOST = hsc_pb2.RESULT_VERDICT_LOST_CLAIM


def claim_of(task, token=None):
    return hsc_pb2.Claim(task_id=task.task_id, token=token or getattr(task, "token", None) or os.urandom(16))


def proposal(task, lambda_name=LAMBDA, token=None):
    claim = hsc_pb2.Claim(task_id=task.task_id, token=token or os.urandom(16))
    return hsc_pb2.ClaimProposal(claim=claim, **{"lambda": lambda_name})


async def claim(hsc, *proposals, holder="host-1"):
    return await hsc.stub.ClaimTask(hsc_pb2.ClaimTaskRequest(proposals=proposals, holder=holder))


async def beat(hsc, *items):
    response = await hsc.stub.Heartbeat(hsc_pb2.HeartbeatRequest(items=items, holder="host-1"))
    return list(response.verdicts)


def beat_of(task, **told):
    return hsc_pb2.HeartbeatItem(claim=claim_of(task), **told)


def result_of(task, outcome=hsc_pb2.OUTCOME_SUCCESS, **details):
    return hsc_pb2.TaskResult(claim=claim_of(task), outcome=outcome, **details)


async def set_results(hsc, *results):
    response = await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=results))
    return list(response.verdicts)


async def release(hsc, *claims):
    return list((await hsc.stub.Release(hsc_pb2.ReleaseRequest(claims=claims))).verdicts)


async def test_claims_are_answered_one_by_one_with_the_terms_of_the_lease(hsc, task_states):
    free = await task_states.enqueued(payload=b"\x00\xff", priority=1)
    taken, waiting = await task_states.claimed(), await task_states.new()

    response = await claim(hsc, proposal(taken), asked := proposal(free), proposal(waiting))

    assert [answer.verdict for answer in response.answers] == [NOT_CLAIMED, CLAIMED, NOT_CLAIMED]
    task = response.answers[1].task
    assert (task.claim, getattr(task, "lambda"), task.payload) == (asked.claim, LAMBDA, b"\x00\xff")
    assert (task.priority, task.attempt, task.fence, task.crashes) == (task_pb2.PRIORITY_URGENT, 1, 1, 0)
    assert not response.answers[0].HasField("task")
    assert response.terms.claim_timeout.ToTimedelta() == TIMING.claim_timeout
    assert response.terms.heartbeat_timeout.ToTimedelta() == TIMING.heartbeat_timeout
    assert (await task_states.row(free.task_id))["holder"] == "host-1"


async def test_a_claim_asked_for_again_with_its_token_is_answered_in_the_same_way(hsc, enqueued_task):
    asked = proposal(enqueued_task)

    assert await claim(hsc, asked) == await claim(hsc, asked)


async def test_calls_that_claim_one_task_at_once_grant_it_once(hsc, task_states, enqueued_task):
    responses = await asyncio.gather(
        *(claim(hsc, proposal(enqueued_task), holder=f"h{n}") for n in range(30))
    )

    verdicts = [response.answers[0].verdict for response in responses]
    assert sorted(verdicts) == [CLAIMED] + [NOT_CLAIMED] * 29
    winner = verdicts.index(CLAIMED)
    assert (await task_states.row(enqueued_task.task_id))["holder"] == f"h{winner}"


async def test_claims_too_large_for_one_answer_are_sent_in_parts_to_the_same_tokens(hsc, task_states):
    await task_states.register(payload_limit=1024 * 1024)
    large = [await task_states.enqueued(payload=b"x" * 1024 * 1024) for _ in range(9)]
    left = [proposal(task) for task in large]

    sent = []
    while left:
        answers = (await claim(hsc, *left)).answers
        sent.append([answer.task.claim for answer in answers if answer.verdict == CLAIMED])
        left = [asked for asked, answer in zip(left, answers, strict=True) if answer.verdict == ASK_AGAIN]

    assert [len(part) for part in sent] == [3, 3, 3]
    assert {claim.task_id for part in sent for claim in part} == {task.task_id for task in large}
    assert {(await task_states.row(task.task_id))["fence"] for task in large} == {1}


async def test_heartbeats_are_answered_one_by_one(hsc, task_states):
    kept, lost, asked = (
        await task_states.claimed(),
        await task_states.claimed(),
        await task_states.processing(),
    )
    await release(hsc, claim_of(lost))
    await cancel_tasks(task_states.store, [asked.task_id])

    verdicts = await beat(
        hsc, beat_of(kept, progress=0.5, progress_note="half"), beat_of(lost), beat_of(asked)
    )

    assert verdicts == [KEPT, LOST_CLAIM, CANCEL_REQUESTED]
    row = await task_states.row(kept.task_id)
    assert (row["status"], row["progress"], row["progress_note"]) == ("processing", 0.5, "half")


async def test_a_claim_says_whether_a_task_crashed_alone_or_with_its_worker(hsc, task_states, clock):
    alone, with_worker = await task_states.processing(), await task_states.processing()
    crashed = hsc_pb2.OUTCOME_CRASHED

    await set_results(hsc, result_of(alone, crashed), result_of(with_worker, crashed, worker_died=True))
    await clock.tick(HOUR)
    room = {QueueKey(LAMBDA, priority): 10 for priority in Priority}
    await polling.enqueue(task_states.store, room, HOUR)
    answers = (await claim(hsc, proposal(alone), proposal(with_worker))).answers

    assert [(each.task.crashes, each.task.crashed_with_worker) for each in answers] == [(1, False), (1, True)]


async def test_a_heartbeat_says_which_of_the_cancelled_are_to_be_killed(hsc, task_states):
    asked, killed = await task_states.processing(), await task_states.processing()
    await cancel_tasks(task_states.store, [asked.task_id])
    await cancel_tasks(task_states.store, [killed.task_id], kill=True)

    request = hsc_pb2.HeartbeatRequest(items=[beat_of(asked), beat_of(killed)])
    response = await hsc.stub.Heartbeat(request)

    assert list(response.verdicts) == [CANCEL_REQUESTED, CANCEL_REQUESTED]
    assert list(response.kill_task_ids) == [killed.task_id]


@pytest.mark.parametrize("progress", [0.0, 1.0, 1e-60, 1e-320, 1 - 1e-16, 0.1 + 0.2])
async def test_any_progress_from_nothing_to_all_is_taken(hsc, task_states, claimed_task, progress):
    assert await beat(hsc, beat_of(claimed_task, progress=progress)) == [KEPT]
    assert (await task_states.row(claimed_task.task_id))["progress"] == pytest.approx(progress, abs=1e-6)


async def test_results_are_answered_one_by_one(hsc, task_states):
    done, gone = await task_states.claimed(), await task_states.claimed()
    await release(hsc, claim_of(gone))
    await claim(hsc, proposal(await task_states.enqueued()))

    success = result_of(done, result=b"1", started_at=Timestamp(seconds=1))
    answers = await set_results(hsc, success, result_of(await task_states.new()))
    again = await set_results(hsc, success)

    assert (answers, again) == ([APPLIED, LOST], [ALREADY_APPLIED])
    assert await task_states.status(done.task_id) == Status.SUCCESS


async def test_a_release_is_applied_once(hsc, task_states, claimed_task):
    assert await release(hsc, claim_of(claimed_task)) == [APPLIED]
    assert await release(hsc, claim_of(claimed_task)) == [ALREADY_APPLIED]
    assert await release(hsc, claim_of(claimed_task, token=b"x" * 16)) == [LOST]
    assert await task_states.status(claimed_task.task_id) == Status.NEW


async def test_a_release_may_say_when_the_callback_started_and_why_it_was_stopped(
    hsc, task_states, claimed_task
):
    stopped = hsc_pb2.StoppedRun(
        task_id=claimed_task.task_id, started_at=Timestamp(seconds=1), reason="its process was \0 killed"
    )
    request = hsc_pb2.ReleaseRequest(claims=[claim_of(claimed_task)], stopped=[stopped])

    assert list((await hsc.stub.Release(request)).verdicts) == [APPLIED]

    (line,) = (await get_attempts(task_states.store, [claimed_task.task_id]))[claimed_task.task_id]
    assert line.started_at == datetime.fromtimestamp(1, UTC)
    assert line.failure_message == "its process was \N{REPLACEMENT CHARACTER} killed"


async def test_a_failure_without_a_reason_gets_one(hsc, task_states):
    failed, crashed = await task_states.claimed(), await task_states.claimed()

    await set_results(
        hsc,
        result_of(failed, hsc_pb2.OUTCOME_RETRIABLE_FAILURE),
        result_of(crashed, hsc_pb2.OUTCOME_CRASHED, retry_after=Duration(seconds=30)),
    )

    assert (await task_states.row(failed.task_id))["failure_kind"] == task_pb2.FAILURE_KIND_CALLBACK
    assert (await task_states.row(crashed.task_id))["failure_kind"] == task_pb2.FAILURE_KIND_CRASH


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("x" * 5000, "x" * 4096),
        ("é" * 3000, "é" * 2048),
        ("x" + "é" * 3000, "x" + "é" * 2047),
        ("\x00" * 4096, "\N{REPLACEMENT CHARACTER}" * 1365),
    ],
    ids=["NUL", "long", "of two bytes each", "cut within a letter", "all NUL"],
)
@pytest.mark.parametrize("last", [False, True])
async def test_a_failure_message_is_mended_and_cut_never_refused(hsc, task_states, message, kept, last):
    await task_states.register(max_attempts=1 if last else 10)
    task = await task_states.claimed()
    result = result_of(task, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, failure_message=message)

    assert await set_results(hsc, result) == [APPLIED]

    written = (await task_states.row(task.task_id))["failure_message"]
    assert written == kept if not last else kept[:900] in written


@pytest.mark.parametrize(
    ("traceback", "kept"),
    [("one\ntwo", "one\ntwo"), ("", None), ("a\x00" + "é" * 9000, "a\N{REPLACEMENT CHARACTER}" + "é" * 4094)],
    ids=["lines", "none", "NUL, and too long"],
)
async def test_a_traceback_is_kept_with_its_attempt_cut_to_8_kib(hsc, task_states, traceback, kept):
    task = await task_states.claimed()
    result = result_of(task, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, traceback=traceback)

    assert await set_results(hsc, result) == [APPLIED]

    (attempt,) = (await get_attempts(task_states.store, [task.task_id]))[task.task_id]
    assert attempt.traceback == (kept or "")


async def test_claims_wait_for_neither_heartbeats_nor_results_and_all_come_through_at_once(hsc, task_states):
    held = [await task_states.claimed() for _ in range(10)]
    free = [await task_states.enqueued() for _ in range(10)]

    answers = await asyncio.gather(
        *(claim(hsc, proposal(task)) for task in free),
        *(beat(hsc, beat_of(task)) for task in held),
        *(set_results(hsc, result_of(task)) for task in held[:5]),
        *(release(hsc, claim_of(task)) for task in held[5:]),
    )

    assert [each.answers[0].verdict for each in answers[:10]] == [CLAIMED] * 10
    assert answers[20:] == [[APPLIED]] * 10


async def test_tasks_that_run_again_soon_are_hinted_at(hsc, task_states, dsn, claimed_task):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as listening:
        await listening.execute("listen duly_due")
        await set_results(
            hsc, result_of(claimed_task, hsc_pb2.OUTCOME_SNOOZED, retry_after=Duration(seconds=3))
        )

        (note_due,) = [each async for each in listening.notifies(timeout=5, stop_after=1)]

    assert abs(int(note_due.payload) - 3000) < 500


async def test_health_answers(store):
    async with serve_hsc(store) as hsc:
        health = health_pb2_grpc.HealthStub(hsc.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="duly.v1.HscService"))

        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("kind", ["heartbeat", "result", "release"])
async def test_a_sole_store_does_not_call_the_claim_of_a_cell_lost(hsc, task_states, kind):
    def ask(task, cell):
        claim = claim_of(task)
        claim.cell = cell
        calls = {
            "heartbeat": lambda: hsc.stub.Heartbeat(
                hsc_pb2.HeartbeatRequest(items=[hsc_pb2.HeartbeatItem(claim=claim)], holder="host-1")
            ),
            "result": lambda: hsc.stub.SetResults(
                hsc_pb2.SetResultsRequest(
                    results=[hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS)]
                )
            ),
            "release": lambda: hsc.stub.Release(hsc_pb2.ReleaseRequest(claims=[claim])),
        }
        return calls[kind]()

    held, elsewhere = await task_states.claimed(), await task_states.new()
    refused = await refusal(ask(elsewhere, "b"))
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "cell 'b'" in refused.message
    assert list((await ask(elsewhere, "")).verdicts) == [LOST_CLAIM if kind == "heartbeat" else LOST]
    # this store has become that cell since the HSC began
    assert list((await ask(held, "a")).verdicts) == [KEPT if kind == "heartbeat" else APPLIED]
