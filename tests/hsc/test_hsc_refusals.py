"""What the HSC refuses: one bad request is answered for itself, and spoils no other's group."""

import asyncio
import os

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from duly_wire.v1 import hsc_pb2
from tests.fixtures.services import refusal, serve_hsc
from tests.fixtures.task_states import LAMBDA

ID = os.urandom(16)
LARGEST = 1024 * 1024
NAN = float("nan")
SNOOZED, FAILED = hsc_pb2.OUTCOME_SNOOZED, hsc_pb2.OUTCOME_RETRIABLE_FAILURE
LATER = hsc_pb2.OUTCOME_COMPLETE_LATER


def claim(task_id=ID, token=ID):
    return hsc_pb2.Claim(task_id=task_id, token=token)


def claim_task(*claims, holder="host", lambda_name=LAMBDA):
    proposals = [hsc_pb2.ClaimProposal(claim=each, **{"lambda": lambda_name}) for each in claims]
    return "ClaimTask", hsc_pb2.ClaimTaskRequest(proposals=proposals, holder=holder)


def heartbeat(*claims, **told):
    items = [hsc_pb2.HeartbeatItem(claim=each, **told) for each in claims]
    return "Heartbeat", hsc_pb2.HeartbeatRequest(items=items)


def set_results(*claims, outcome=hsc_pb2.OUTCOME_SUCCESS, **details):
    results = [hsc_pb2.TaskResult(claim=each, outcome=outcome, **details) for each in claims]
    return "SetResults", hsc_pb2.SetResultsRequest(results=results)


def release(*claims):
    return "Release", hsc_pb2.ReleaseRequest(claims=claims)


def others(count):
    return [claim(task_id=os.urandom(16)) for _ in range(count)]


ITEMS = {claim_task: "proposals", heartbeat: "items", set_results: "results", release: "claims"}
BAD_REQUESTS = {
    **{f"{field}: none": (call(), field, "1 to 3") for call, field in ITEMS.items()},
    **{f"{field}: too many": (call(*others(4)), field, "not 4") for call, field in ITEMS.items()},
    **{f"{field}: short id": (call(claim(task_id=b"x")), field, "16 bytes") for call, field in ITEMS.items()},
    **{f"{field}: no token": (call(claim(token=b"")), field, "16 bytes") for call, field in ITEMS.items()},
    **{
        f"{field}: long token": (call(claim(token=ID * 2)), field, "16 bytes")
        for call, field in ITEMS.items()
    },
    **{f"{field}: no claim": (call(hsc_pb2.Claim()), field, "16 bytes") for call, field in ITEMS.items()},
    **{f"{field}: a task twice": (call(claim(), claim()), field, "twice") for call, field in ITEMS.items()},
    "no holder": (claim_task(claim(), holder=""), "holder", "1 to 128"),
    "long holder": (claim_task(claim(), holder="h" * 129), "holder", "1 to 128"),
    "NUL in the holder": (claim_task(claim(), holder="h\x00"), "holder", "NUL"),
    "no lambda": (claim_task(claim(), lambda_name=""), "proposals.lambda", "lambda"),
    "NUL in the lambda": (claim_task(claim(), lambda_name="mail\x00"), "proposals.lambda", "lambda"),
    "upper case lambda": (claim_task(claim(), lambda_name="Mail"), "proposals.lambda", "lambda"),
    "progress beyond all": (heartbeat(claim(), progress=1.01), "items.progress", "from 0 to 1"),
    "progress below nothing": (heartbeat(claim(), progress=-0.01), "items.progress", "from 0 to 1"),
    "progress that is not a number": (heartbeat(claim(), progress=NAN), "items.progress", "from 0 to 1"),
    "NUL in the note": (heartbeat(claim(), progress_note="n\x00"), "items.progress_note", "NUL"),
    "long note": (heartbeat(claim(), progress_note="é" * 513), "items.progress_note", "1024 bytes"),
    "no outcome": (set_results(claim(), outcome=0), "results.outcome", "0 is not an outcome"),
    "unknown outcome": (set_results(claim(), outcome=99), "results.outcome", "99 is not an outcome"),
    "result too large": (set_results(claim(), result=b"x" * (LARGEST + 1)), "results.result", "1,048,576"),
    "unknown encoding": (set_results(claim(), result_encoding=9), "results.result_encoding", "9"),
    "no hash of a completion token": (
        set_results(claim(), outcome=LATER, complete_within=Duration(seconds=1)),
        "results.completion_hash",
        "32 bytes",
    ),
    "no time for a completion": (
        set_results(claim(), outcome=LATER, completion_hash=b"h" * 32),
        "results.complete_within",
        "by when",
    ),
    **{
        f"{name} for a completion": (
            set_results(claim(), outcome=LATER, completion_hash=b"h" * 32, complete_within=duration),
            "results.complete_within",
            "from 1s to 7d",
        )
        for name, duration in (("no time", Duration()), ("ages", Duration(seconds=7 * 86_400 + 1)))
    },
    "snoozed for ever": (set_results(claim(), outcome=SNOOZED), "results.retry_after", "how long"),
    "unknown failure": (
        set_results(claim(), outcome=FAILED, failure_kind=99),
        "results.failure_kind",
        "99 is not a failure kind",
    ),
    **{
        f"retry after {name}": (
            set_results(claim(), outcome=outcome, retry_after=duration),
            "results.retry_after",
            words,
        )
        for outcome in (SNOOZED, FAILED)
        for name, duration, words in (
            ("less than nothing", Duration(seconds=-1), "from 0 to 365d"),
            ("years", Duration(seconds=366 * 86400), "from 0 to 365d"),
            ("a contradiction", Duration(seconds=1, nanos=-1), "contradict"),
            ("all time", Duration(seconds=2**63 - 1), ""),
        )
    },
    "started in the year 10000": (
        set_results(claim(), started_at=Timestamp(seconds=253402300800)),
        "results.started_at",
        "year",
    ),
    "started at no instant": (
        set_results(claim(), outcome=FAILED, started_at=Timestamp(nanos=-1)),
        "results.started_at",
        "nanos",
    ),
}


async def test_each_bad_request_is_refused_by_its_field(store, task_states):
    async with serve_hsc(store, max_items_per_call=3) as hsc:
        for name, ((method, request), field, words) in BAD_REQUESTS.items():
            refused = await refusal(getattr(hsc.stub, method)(request))

            assert (name, refused.code, refused.field) == (name, grpc.StatusCode.INVALID_ARGUMENT, field)
            assert words in refused.message, name


async def test_bad_requests_at_the_same_moment_spoil_nobody_elses(store, task_states):
    held = [await task_states.processing() for _ in range(5)]
    async with serve_hsc(store, max_items_per_call=3) as hsc:
        bad = [getattr(hsc.stub, method)(request) for (method, request), _, _ in BAD_REQUESTS.values()]
        good = [
            getattr(hsc.stub, method)(request)
            for task in held
            for method, request in (heartbeat(claim(task.task_id, task.token)), claim_task(*others(1)))
        ]

        answers = await asyncio.gather(*good)
        refused = await asyncio.gather(*(refusal(each) for each in bad))

    assert [answer.verdicts[0] for answer in answers[::2]] == [hsc_pb2.HEARTBEAT_VERDICT_KEPT] * 5
    assert {each.code for each in refused} == {grpc.StatusCode.INVALID_ARGUMENT}


async def test_nothing_of_a_refused_request_is_written(store, task_states):
    good, other = await task_states.processing(), await task_states.processing()
    before = [await task_states.row(task.task_id) for task in (good, other)]
    fine = hsc_pb2.TaskResult(claim=claim(good.task_id, good.token), outcome=hsc_pb2.OUTCOME_SUCCESS)
    bad = hsc_pb2.TaskResult(claim=claim(other.task_id, other.token), outcome=99)
    async with serve_hsc(store) as hsc:
        refused = await refusal(hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[fine, bad])))

    assert refused.field == "results.outcome"
    assert [await task_states.row(task.task_id) for task in (good, other)] == before


async def test_a_result_of_the_largest_size_is_taken(hsc, task_states, claimed_task):
    method, request = set_results(claim(claimed_task.task_id, claimed_task.token), result=b"x" * LARGEST)

    answer = await getattr(hsc.stub, method)(request)

    assert list(answer.verdicts) == [hsc_pb2.RESULT_VERDICT_APPLIED]
    assert len((await task_states.row(claimed_task.task_id))["result"]) == LARGEST


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        claim_task(claim(), holder="@@"),
        claim_task(claim(), lambda_name="@@"),
        heartbeat(claim(), progress_note="@@"),
    ],
    ids=["holder", "lambda", "note"],
)
async def test_text_that_is_not_utf_8_is_refused(hsc, method, request_message):
    body = request_message.SerializeToString().replace(b"@@", b"\xff\xfe")

    refused = await refusal(hsc.channel.unary_unary(f"/duly.v1.HscService/{method}")(body))

    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
