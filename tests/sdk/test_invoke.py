import asyncio
import concurrent.futures
import dataclasses
import logging
import time
from datetime import timedelta
from uuid import UUID

import pytest

import duly
from duly import FailureKind, Outcome
from duly.callbacks import invoke
from duly.errors import PayloadError
from duly.testing import run
from duly_wire.completion_tokens import read_completion_token
from duly_wire.v1 import hsc_pb2, task_pb2

SECOND = timedelta(seconds=1)


@dataclasses.dataclass
class Mail:
    to: list[str]


@pytest.fixture
def app():
    return duly.App()


def raising(error):
    def callback():
        raise error

    return callback


def test_a_plain_value_is_the_result_of_a_success(app):
    app.callback("mail.send")(lambda payload: {"sent": payload})

    attempt = run(app, "mail.send", [1])

    assert (attempt.outcome, attempt.result) == (Outcome.SUCCESS, {"sent": [1]})
    assert (attempt.failure_kind, attempt.failure_message) == (None, "")


def test_a_result_may_be_nothing_bytes_or_said_to_be_a_success(app):
    app.callback("nothing")(lambda: None)
    app.callback("bytes")(lambda: b"\x00")
    app.callback("said")(lambda: duly.Success(5))

    assert [run(app, name).result for name in ("nothing", "bytes", "said")] == [None, b"\x00", 5]


def test_an_async_callback_is_run_to_its_end(app):
    @app.callback("mail.send")
    async def send(payload: Mail, ctx: duly.TaskContext) -> int:
        await asyncio.sleep(0)
        return len(payload.to)

    assert run(app, "mail.send", Mail(["a", "b"])).result == 2


@pytest.mark.parametrize("raised", [True, False])
@pytest.mark.parametrize(
    ("outcome", "name", "kind", "message", "retry_after"),
    [
        (duly.RetriableFailure("busy"), Outcome.RETRIABLE_FAILURE, FailureKind.CALLBACK, "busy", None),
        (
            duly.RetriableFailure("busy", SECOND),
            Outcome.RETRIABLE_FAILURE,
            FailureKind.CALLBACK,
            "busy",
            SECOND,
        ),
        (duly.FatalFailure("gone"), Outcome.FATAL_FAILURE, FailureKind.CALLBACK, "gone", None),
        (duly.Snooze(SECOND), Outcome.SNOOZED, None, "", SECOND),
    ],
)
def test_an_outcome_may_be_returned_or_raised(app, raised, outcome, name, kind, message, retry_after):
    app.callback("mail.send")(raising(outcome) if raised else lambda: outcome)

    attempt = run(app, "mail.send")

    assert (attempt.outcome, attempt.failure_kind) == (name, kind)
    assert (attempt.failure_message, attempt.retry_after) == (message, retry_after)


@pytest.mark.parametrize("raised", [True, False])
def test_a_task_is_handed_over_to_whoever_has_its_token(app, raised):
    given = []

    @app.callback("mail.send")
    def hand_over(_, ctx):
        given.extend((ctx.completion_token(), ctx.completion_token(), ctx.task_id))
        outcome = duly.CompleteLater(timedelta(minutes=5))
        if raised:
            raise outcome
        return outcome

    attempt = run(app, "mail.send")

    token, again, task_id = given
    assert (attempt.outcome, attempt.complete_within) == (Outcome.COMPLETE_LATER, timedelta(minutes=5))
    assert token == again == attempt.completion_token
    assert read_completion_token(token)[0] == UUID(task_id).bytes
    assert token not in repr(attempt)


def test_a_callback_that_gave_its_token_to_nobody_has_failed(app):
    @app.callback("mail.send")
    def forget() -> object:
        return duly.CompleteLater()

    attempt = run(app, "mail.send")

    assert (attempt.outcome, attempt.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.BAD_RESULT)
    assert "ctx.completion_token()" in attempt.failure_message


@pytest.mark.parametrize("timeout", [timedelta(), timedelta(days=8)])
def test_a_completion_has_a_second_to_a_week(timeout):
    with pytest.raises(ValueError, match="between 1 s and 7 days"):
        duly.CompleteLater(timeout)


@pytest.mark.parametrize(
    ("policy", "error", "outcome"),
    [
        ({}, ValueError("no"), Outcome.RETRIABLE_FAILURE),
        ({"fatal_exceptions": (ValueError,)}, ValueError("no"), Outcome.FATAL_FAILURE),
        ({"fatal_exceptions": (ValueError,)}, KeyError("no"), Outcome.RETRIABLE_FAILURE),
        ({"fatal_exceptions": (LookupError,)}, KeyError("no"), Outcome.FATAL_FAILURE),
        ({"on_exception": "fatal"}, KeyError("no"), Outcome.FATAL_FAILURE),
        ({}, SystemExit(3), Outcome.RETRIABLE_FAILURE),
        ({}, KeyboardInterrupt(), Outcome.RETRIABLE_FAILURE),
        ({}, GeneratorExit(), Outcome.RETRIABLE_FAILURE),
        ({}, asyncio.CancelledError(), Outcome.RETRIABLE_FAILURE),
    ],
)
def test_an_exception_is_retried_unless_the_owner_says_otherwise(app, policy, error, outcome):
    app.callback("mail.send", **policy)(raising(error))

    attempt = run(app, "mail.send")

    assert (attempt.outcome, attempt.failure_kind) == (outcome, FailureKind.EXCEPTION)
    assert attempt.failure_message.startswith(type(error).__name__)


def test_an_exception_is_told_in_one_line_and_logged_with_its_traceback(app, caplog):
    app.callback("mail.send")(raising(ValueError("one\ntwo\x00" + "ä" * 5000)))

    with caplog.at_level(logging.WARNING, "duly.callback"):
        message = run(app, "mail.send").failure_message

    assert message.startswith("ValueError: one two\\0ää")
    assert 4000 < len(message.encode()) <= 4096
    assert "in callback" in caplog.text


class Mute:
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "error", [ValueError(Mute()), duly.FatalFailure(Mute()), duly.RetriableFailure(Mute())]
)
def test_an_error_that_cannot_say_what_it_is_is_told_all_the_same(app, error):
    app.callback("mail.send")(raising(error))

    assert "message cannot be shown" in run(app, "mail.send").failure_message


def test_a_payloads_own_check_may_not_end_the_process(app):
    @dataclasses.dataclass
    class Exiting:
        def __post_init__(self):
            raise SystemExit

    def send(payload):
        pass

    send.__annotations__["payload"] = Exiting
    app.callback("mail.send")(send)

    assert run(app, "mail.send", {}).failure_message == "payload: could not be checked: SystemExit"


@pytest.mark.parametrize(
    "error", [duly.Cancelled(), asyncio.CancelledError(), concurrent.futures.CancelledError()]
)
def test_a_callback_that_stops_because_it_was_asked_to_is_cancelled(app, error):
    app.callback("mail.send")(raising(error))

    assert run(app, "mail.send", cancelled=True).outcome is Outcome.CANCELLED


def test_except_exception_does_not_swallow_a_cancellation(app):
    @app.callback("mail.send")
    def send(payload, ctx):
        try:
            ctx.raise_if_cancelled()
        except Exception:  # noqa: BLE001 (the point)
            return "swallowed"

    assert run(app, "mail.send", cancelled=True).outcome is Outcome.CANCELLED


def test_a_payload_that_is_not_as_declared_ends_the_task_before_the_callback_runs(app):
    ran = []

    @app.callback("mail.send")
    def send(payload: Mail):
        ran.append(payload)

    attempt = run(app, "mail.send", {"to": ["ann", 3]})

    assert (attempt.outcome, attempt.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.BAD_PAYLOAD)
    assert attempt.failure_message == "payload.to[1]: expected str, got int"
    assert ran == []


def test_bytes_and_json_are_not_mistaken_for_each_other(app):
    @app.callback("raw", raw=True)
    def take(payload: bytes):
        return payload[::-1]

    app.callback("json")(lambda payload: payload)

    assert run(app, "raw", b"ab").result == b"ba"
    assert run(app, "raw", "ab").failure_kind is FailureKind.BAD_PAYLOAD
    assert run(app, "json", b"ab").failure_kind is FailureKind.BAD_PAYLOAD


def test_a_validator_that_breaks_is_a_bad_payload_and_not_a_broken_process(app):
    class Model:
        @classmethod
        def model_validate(cls, value):
            raise RuntimeError("boom")

    def send(payload):
        pass

    send.__annotations__["payload"] = Model
    app.callback("mail.send")(send)

    attempt = run(app, "mail.send")

    assert attempt.failure_kind is FailureKind.BAD_PAYLOAD
    assert "RuntimeError: boom" in attempt.failure_message


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({1j}, "the result, a set, cannot be encoded"),
        (ValueError("returned, not raised"), "the result, a ValueError, cannot be encoded"),
    ],
)
def test_a_result_that_cannot_be_kept_ends_the_task_and_names_its_type(app, result, message):
    app.callback("mail.send")(lambda: result)

    attempt = run(app, "mail.send")

    assert (attempt.outcome, attempt.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.BAD_RESULT)
    assert attempt.failure_message.startswith(message)


def test_an_owner_may_allow_larger_results(app):
    app.callback("mail.send", result_limit=2**20)(lambda: b"x" * 2**20)

    assert run(app, "mail.send").outcome is Outcome.SUCCESS


def test_the_report_carries_the_claim_and_when_it_started(app):
    app.callback("mail.send")(lambda: None)
    claim = hsc_pb2.Claim(task_id=bytes(range(16)), token=bytes(range(16, 32)))
    task = hsc_pb2.ClaimedTask(claim=claim, attempt=1, fence=3)
    before = time.time_ns()

    result = invoke.run(app.callbacks["mail.send"], task, duly.TaskContext.for_task(task), asyncio.run)

    assert result.claim == claim
    assert before <= result.started_at.ToNanoseconds() <= time.time_ns()
    assert (result.outcome, result.result_encoding) == (hsc_pb2.OUTCOME_SUCCESS, task_pb2.ENCODING_JSON)


def test_a_payload_error_raised_by_the_callback_itself_is_its_own_exception(app):
    app.callback("mail.send")(raising(PayloadError("of another task")))

    assert run(app, "mail.send").failure_kind is FailureKind.EXCEPTION


def test_an_interrupted_callback_has_run_too_long_whatever_its_lambda_says_of_exceptions(app):
    app.callback("mail.send", on_exception="fatal", max_runtime=3 * SECOND)(raising(duly.Interrupted()))

    attempt = run(app, "mail.send")

    assert (attempt.outcome, attempt.failure_kind) == (Outcome.RETRIABLE_FAILURE, FailureKind.MAX_RUNTIME)
    assert attempt.failure_message == "ran longer than its max_runtime of 3 s and was interrupted"


def test_an_interrupted_callback_that_was_to_be_cancelled_is_cancelled(app):
    app.callback("mail.send")(raising(duly.Interrupted()))

    assert run(app, "mail.send", cancelled=True).outcome is Outcome.CANCELLED
