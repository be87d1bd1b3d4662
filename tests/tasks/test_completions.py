"""Completing tasks by token from the wire, the SDK and the shell, against a Frontend that serves."""

import asyncio
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client import REGISTRY

import duly
from duly_core.results.store import set_results
from duly_core.tasks import polling
from duly_core.tasks.task import Result
from duly_wire.completion_tokens import new_completion_token, read_completion_token
from duly_wire.enums import AttemptOutcome, HistoryKind, Outcome, ReasonKind
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, SECOND
from tests.fixtures.waiting import until

HOUR = timedelta(hours=1)
LARGEST = 1024 * 1024
SUCCESS = {"result": b"{}"}


async def hand_over(task_states, task, within=HOUR):
    """End an attempt: somebody completes it with this token."""
    token = new_completion_token(task.task_id)
    _, token_hash = read_completion_token(token)
    await set_results(
        task_states.store,
        [
            Result(
                task.task_id,
                task.token,
                Outcome.COMPLETE_LATER,
                completion_hash=token_hash,
                complete_within=within,
            )
        ],
    )
    return token


async def complete(frontend, *completions):
    request = frontend_pb2.CompleteTasksRequest(completions=completions)
    return list((await frontend.stub.CompleteTasks(request)).results)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"token": ""}, "token", "64 characters"),
        ({"token": "x" * 63}, "token", "64 characters"),
        ({"token": "x" * 65_536}, "token", "64 characters"),
        ({"token": "\x00" * 64}, "token", "base64url"),
        ({"token": "é" * 64}, "token", "64 characters"),
        ({"token": "+" * 64}, "token", "base64url"),
        ({"token": "A" * 63 + "="}, "token", "base64url"),
        ({"success": None}, "", "success or failure"),
        ({"success": {"result": b"x" * (LARGEST + 1)}}, "success.result", "1,048,577 bytes"),
        ({"success": {"result_encoding": 99}}, "success.result_encoding", "ENCODING_JSON"),
        ({"success": {"result_encoding": 4}}, "success.result_encoding", "ENCODING_JSON"),
        ({"success": {"result_encoding": 3, "result": b"{}"}}, "success.result", "D0 01"),
        ({"failure": {"message": "no\x00"}}, "failure.message", "NUL"),
        ({"failure": {"message": "é" * 2_049}}, "failure.message", "4,096 bytes"),
        ({"failure": {"retry_after": Duration(seconds=-1)}}, "failure.retry_after", "from 0"),
        ({"failure": {"retry_after": Duration(seconds=2**62)}}, "failure.retry_after", ""),
        (
            {"failure": {"is_fatal": True, "retry_after": Duration(seconds=1)}},
            "failure.retry_after",
            "the task ends",
        ),
    ],
)
async def test_what_is_wrong_with_a_completion_is_named_and_changes_nothing(
    frontend, task_states, processing_task, changed, field, words
):
    token = await hand_over(task_states, processing_task)
    asked = {"token": token, "success": SUCCESS} | changed
    if "failure" in changed:
        del asked["success"]

    bad, good = await complete(
        frontend,
        frontend_pb2.Completion(**asked),
        frontend_pb2.Completion(token=new_completion_token(b"x" * 16), success=SUCCESS),
    )

    assert (bad.error.code, bad.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)
    assert words in bad.error.message
    assert token not in str(bad)
    assert good.error.code == task_pb2.ERROR_CODE_TOKEN_NOT_CURRENT
    assert await task_states.status(processing_task.task_id) == "waiting"


async def test_a_call_has_one_to_a_thousand_completions(frontend):
    one = frontend_pb2.Completion(token=new_completion_token(b"x" * 16), success=SUCCESS)

    for completions in [], [one] * 1_001:
        refused = await refusal(
            frontend.stub.CompleteTasks(frontend_pb2.CompleteTasksRequest(completions=completions))
        )

        assert "completions: there must be 1 to 1,000" in refused.message


async def test_many_are_completed_in_one_call_each_for_itself(frontend, task_states):
    tasks = [await task_states.processing() for _ in range(4)]
    tokens = [await hand_over(task_states, task) for task in tasks[:3]]
    early = new_completion_token(tasks[3].task_id)

    results = await complete(
        frontend,
        frontend_pb2.Completion(token=early, success=SUCCESS),
        frontend_pb2.Completion(token=tokens[1], failure={"message": "no", "is_fatal": True}),
        frontend_pb2.Completion(token=tokens[0], success=SUCCESS),
        frontend_pb2.Completion(token=tokens[2], failure={"message": "no"}),
        frontend_pb2.Completion(token=tokens[1], success=SUCCESS),
    )

    assert [task_pb2.TaskStatus.Name(each.status).removeprefix("TASK_STATUS_") for each in results] == [
        "UNSPECIFIED",
        "FATAL_FAILURE",
        "SUCCESS",
        "RETRIABLE_FAILURE",
        "FATAL_FAILURE",
    ]
    assert [task_pb2.ErrorCode.Name(each.error.code).removeprefix("ERROR_CODE_") for each in results] == [
        "TOKEN_TOO_EARLY",
        "UNSPECIFIED",
        "UNSPECIFIED",
        "UNSPECIFIED",
        "ALREADY_FINAL",
    ]


async def test_a_client_completes_a_task_and_reads_the_result(client, task_states, processing_task):
    token = await hand_over(task_states, processing_task)

    statuses = [await client.complete(token, {"parcel": 3}), await client.complete(token, {"parcel": 3})]

    task = await client.get(token_task(token))
    assert statuses == [duly.TaskStatus.SUCCESS] * 2
    assert (task.status, task.result) == (duly.TaskStatus.SUCCESS, {"parcel": 3})
    assert [each.outcome for each in task.attempts] == [AttemptOutcome.HANDED_OVER]
    with pytest.raises(duly.TaskFinalError):
        await client.complete(token, {"parcel": 4})
    with pytest.raises(duly.TaskFinalError):
        await client.fail(token, "too late")


def token_task(token):
    task_id, _ = read_completion_token(token)
    return task_id.hex()


async def until_a_completion_was_too_early():
    verdict = {"outcome": "success", "verdict": "too early"}
    await until(lambda: REGISTRY.get_sample_value("duly_completions_total", verdict))


async def test_a_client_waits_for_the_word_of_the_hand_over(client, task_states, processing_task):
    token = new_completion_token(processing_task.task_id)
    _, token_hash = read_completion_token(token)
    handed_over = Result(
        processing_task.task_id,
        processing_task.token,
        Outcome.COMPLETE_LATER,
        completion_hash=token_hash,
        complete_within=HOUR,
    )

    completing = asyncio.create_task(client.complete(token))
    await until_a_completion_was_too_early()
    await set_results(task_states.store, [handed_over])

    assert await completing is duly.TaskStatus.SUCCESS


async def test_a_client_fails_an_attempt_and_an_unknown_token_is_told(client, task_states, processing_task):
    token = await hand_over(task_states, processing_task)

    status = await client.fail(token, "no route", retry_after=HOUR)

    assert status is duly.TaskStatus.RETRIABLE_FAILURE
    with pytest.raises(duly.TokenNotCurrentError):
        await client.complete(token)
    with pytest.raises(duly.TokenNotCurrentError):
        await client.complete(new_completion_token(processing_task.task_id))
    with pytest.raises(duly.InvalidTaskError, match="token: not a completion token") as refused:
        await client.complete("secret" * 10)
    assert "secret" not in str(refused.value)


async def test_people_see_that_a_task_waits_for_its_completion_and_what_came_of_it(
    client, task_states, clock
):
    task = await task_states.processing()
    token = await hand_over(task_states, task)

    waiting = await client.explain(token_task(token))
    seen = await client.get(token_task(token))
    await client.complete(token)
    done = await client.explain(token_task(token))
    other = await task_states.processing()
    late = await hand_over(task_states, other)
    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)
    failed = await client.explain(token_task(late))

    (reason,) = waiting.reasons
    assert reason.kind is ReasonKind.COMPLETION
    assert reason.text.startswith(
        "its callback handed it over, and it waits to be completed by token; in 59 min"
    )
    assert abs(reason.until_at - reason.since_at - HOUR) < SECOND / 10
    assert (seen.status, seen.parked_on) == (duly.TaskStatus.WAITING, "completion:")
    kinds = [event.kind for event in done.history]
    assert kinds[-3:] == [HistoryKind.CLAIMED, HistoryKind.HANDED_OVER, HistoryKind.ENDED]
    assert (done.history[-1].service, done.history[-1].reason) == ("frontend", "completed by its token")
    last = failed.history[-1]
    assert [event.kind for event in failed.history][-2:] == [HistoryKind.HANDED_OVER, HistoryKind.RUN_ENDED]
    assert (last.outcome, last.failure_kind) == (
        AttemptOutcome.RETRIABLE_FAILURE,
        duly.FailureKind.COMPLETION_TIMEOUT,
    )
    for told in (waiting, done, failed, seen):
        assert token not in repr(told)
        assert read_completion_token(token)[1].hex() not in repr(told)


async def test_the_command_completes_a_task_by_a_token_that_is_in_no_command_line(
    run_duly, task_states, monkeypatch
):
    tokens = [await hand_over(task_states, await task_states.processing()) for _ in range(3)]

    monkeypatch.setenv("DULY_COMPLETION_TOKEN", tokens[0])
    by_variable = await run_duly("complete", '{"parcel": 3}')
    monkeypatch.delenv("DULY_COMPLETION_TOKEN")
    by_input = await run_duly("complete", "--token", "-", stdin=f"{tokens[1]}\n")
    failed = await run_duly("complete", "--token", tokens[2], "--fail", "no route", "--no-retry")
    nothing = await run_duly("complete", "{}")

    assert (by_variable.exit_code, by_variable.stdout) == (0, "completed, is success\n")
    assert (by_input.exit_code, by_input.stdout) == (0, "completed, is success\n")
    assert (failed.exit_code, failed.stdout) == (0, "failed, is fatal_failure\n")
    assert (nothing.exit_code, "DULY_COMPLETION_TOKEN" in nothing.stderr) == (2, True)
