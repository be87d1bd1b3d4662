"""`duly explain`: what it prints fits 80 columns, and `--json` has all of it."""

import json
import os
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import duly
from duly_cli.explain import commands as explain
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.results.store import set_results
from duly_core.tasks import claims
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import Result
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.task_states import CLAIM_TIMEOUT

LONG = "a.lambda.whose.name.is.as.long.as.names.of.lambdas.may.be.in.a.large.company/" + "x" * 40


@pytest.fixture
async def failed(client, task_states):
    """A task of a long name that failed, on a host of a long name, and waits for its backoff."""
    await task_states.register(LONG.replace("/", "-"))
    task = await client.schedule(LONG.replace("/", "-"), session="s" * 100)
    picks = [Pick(QueueKey(LONG.replace("/", "-"), Priority.NORMAL), 1, 0)]
    caller = Caller("a-machine-with-a-long-name.of.a.company.example.org/1234/abcdef", os.urandom(14))
    (claimed,) = (await claims.claim_work(task_states.store, picks, [caller], 1, CLAIM_TIMEOUT)).tasks
    result = Result(
        claimed.task_id,
        claimed.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.EXCEPTION,
        failure_message="ConnectionRefusedError: " + "no route to host, " * 20,
        retry_after=timedelta(minutes=1),
    )
    await set_results(task_states.store, [result])
    return task


async def test_the_reasons_and_the_history_fit_80_columns(run_duly, failed):
    shown = await run_duly("explain", failed.task_id)

    lines = shown.stdout.splitlines()
    assert shown.exit_code == 0
    assert lines[0].startswith(failed.task_id)
    assert any(line.startswith(" 1. it failed 1 of") for line in lines)
    assert "    -> fix what fails" in shown.stdout
    assert lines.index("history:") > 1
    assert "run ended" in shown.stdout
    # words that have no place to break stay whole: they can be copied
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


@pytest.mark.parametrize(
    ("distance", "told"),
    [
        (timedelta(), "due at once"),
        (timedelta(milliseconds=370), "next in 0.4s"),
        (timedelta(seconds=75), "next in 1m15s"),
    ],
)
def test_the_history_says_when_duly_looks_again(distance, told):
    at = datetime(2026, 11, 23, 3, tzinfo=UTC)
    event = duly.HistoryEvent(
        kind=duly.HistoryKind.RUN_ENDED, happened_at=at, next_trigger_at=at + distance, status=None, service="",
        principal="", holder="", attempt=1, fence=1, outcome=None, failure_kind=None, reason="",
    )  # fmt: skip

    _, line = explain._event(event, 80, "")

    assert told in line


async def test_the_history_may_be_left_out(run_duly, failed):
    shown = await run_duly("explain", failed.task_id, "--no-history")

    assert shown.exit_code == 0
    assert "history:" not in shown.stdout


async def test_json_has_kinds_by_name_and_all_that_is_known(run_duly, failed):
    shown = await run_duly("explain", failed.task_id, "--json")

    told = json.loads(shown.stdout)
    assert told["task_id"] == failed.task_id
    assert told["status"] == "retriable_failure"
    reason = told["reasons"][0]
    assert (reason["kind"], reason["count"], reason["limit"]) == (
        "backoff",
        1,
        LambdaPolicy(LONG).max_attempts,
    )
    assert [event["kind"] for event in told["history"]] == ["scheduled", "claimed", "run_ended"]
    assert told["history"][-1]["outcome"] == "retriable_failure"


async def test_an_unknown_task_is_named_and_the_command_fails(run_duly, task_states):
    unknown = str(UUID(int=7 << 76 | 2 << 62))

    shown = await run_duly("explain", unknown)

    assert shown.exit_code == 1
    assert "there is no such task" in shown.stderr
