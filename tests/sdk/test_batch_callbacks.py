"""What becomes of each task of a batch, by what its callback returns, raises and is told."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import duly
from duly import FailureKind, Outcome
from duly.testing import run, run_batch

TWO = duly.Batch(size=2)


@dataclass
class Mail:
    to: str


def ends_of(
    function: Any, payloads: list[object], **options: Any
) -> list[tuple[Outcome, FailureKind | None]]:
    app = duly.App(owner="tests")
    app.callback("mail.send", batch=TWO)(function)
    return [(each.outcome, each.failure_kind) for each in run_batch(app, "mail.send", payloads, **options)]


def returns(value: object) -> Any:
    def callback(payloads: list[object]) -> object:
        if isinstance(value, BaseException):
            raise value
        return value

    return callback


OK = (Outcome.SUCCESS, None)
BAD = (Outcome.FATAL_FAILURE, FailureKind.BAD_RESULT)
RAISED = (Outcome.RETRIABLE_FAILURE, FailureKind.EXCEPTION)
OWN = (Outcome.FATAL_FAILURE, FailureKind.CALLBACK)


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (None, [OK, OK]),
        (["a", "b"], [OK, OK]),
        (("a", None), [OK, OK]),
        (["a"], [BAD, BAD]),
        ("ab", [BAD, BAD]),
        ({"a": 1, "b": 2}, [BAD, BAD]),
        (["a", duly.FatalFailure("no")], [OK, OWN]),
        ([duly.Snooze(timedelta(1)), duly.RetriableFailure("not yet")], [(Outcome.SNOOZED, None), (Outcome.RETRIABLE_FAILURE, FailureKind.CALLBACK)]),
        ([ValueError("bad"), object()], [RAISED, BAD]),
        ([duly.CompleteLater(), duly.Success(1)], [BAD, OK]),
        (ValueError("bad"), [RAISED, RAISED]),
        (duly.FatalFailure("no"), [OWN, OWN]),
        (duly.Snooze(timedelta(1)), [(Outcome.SNOOZED, None)] * 2),
        (SystemExit(1), [RAISED, RAISED]),
    ],
)  # fmt: skip
def test_each_task_ends_as_its_place_in_the_list_says_and_all_as_what_was_raised(
    value: object, ends: list[object]
) -> None:
    assert ends_of(returns(value), ["first", "second"]) == ends


def test_a_payload_that_is_not_as_declared_fails_alone_and_the_call_is_without_it() -> None:
    seen: list[list[Mail]] = []

    def send(mails: list[Mail], ctxs: list[duly.TaskContext]) -> list[str]:
        seen.append(mails)
        return [f"{mail.to}{ctx.attempt}" for mail, ctx in zip(mails, ctxs, strict=True)]

    ends = ends_of(send, [{"to": "ann"}, {"from": "bob"}, {"to": "cy"}], attempt=2)

    assert ends == [OK, (Outcome.FATAL_FAILURE, FailureKind.BAD_PAYLOAD), OK]
    assert seen == [[Mail("ann"), Mail("cy")]]


def test_nothing_is_called_for_payloads_of_which_none_can_be_read() -> None:
    def send(mails: list[Mail]) -> None:
        raise AssertionError

    assert ends_of(send, [1, 2]) == [(Outcome.FATAL_FAILURE, FailureKind.BAD_PAYLOAD)] * 2


def test_an_async_callback_may_gather_what_each_task_raised() -> None:
    async def send_one(number: int) -> float:
        return 1 / number

    async def send(numbers: list[int]) -> list[float | BaseException]:
        return await asyncio.gather(*map(send_one, numbers), return_exceptions=True)

    assert ends_of(send, [0, 4]) == [RAISED, OK]


def test_who_obeys_a_cancel_of_one_task_cancels_that_one_and_the_others_run_again_uncharged() -> None:
    def send(_: list[int], ctxs: list[duly.TaskContext]) -> None:
        for ctx in ctxs:
            ctx.raise_if_cancelled()

    app = duly.App(owner="tests")
    app.callback("mail.send", batch=TWO)(send)

    first, second = run_batch(app, "mail.send", [1, 2], cancelled=[1])

    assert (first.outcome, first.retry_after) == (Outcome.SNOOZED, timedelta())
    assert second.outcome is Outcome.CANCELLED


def test_a_wait_for_an_event_is_refused_in_a_batch() -> None:
    def send(_: list[int], ctxs: list[duly.TaskContext]) -> None:
        ctxs[1].wait_for("approved")

    assert ends_of(send, [1, 2]) == [BAD, BAD]


def test_what_a_task_schedules_and_tells_is_its_own() -> None:
    app = duly.App(owner="tests")

    @app.callback("mail.send", batch=TWO)
    def send(numbers: list[int], ctxs: list[duly.TaskContext]) -> list[Any]:
        for number, ctx in zip(numbers, ctxs, strict=True):
            ctx.schedule("mail.sent", number)
            ctx.progress(number / 10)
            ctx.completion_token()
        return [None, duly.RetriableFailure("no"), duly.CompleteLater()]

    done, failed, later = run_batch(app, "mail.send", [1, 2, 3])

    assert [child.payload for child in done.scheduled] == [1]
    assert failed.scheduled == later.scheduled == ()
    assert [each.progress for each in (done, failed, later)] == [((0.1, ""),), ((0.2, ""),), ((0.3, ""),)]
    assert later.outcome is Outcome.COMPLETE_LATER


def test_one_run_is_a_batch_of_one() -> None:
    app = duly.App(owner="tests")
    app.callback("mail.send", batch=TWO)(lambda payloads: [2 * each for each in payloads])
    app.callback("mail.plain")(lambda payload: payload)

    assert run(app, "mail.send", 4).result == 8
    assert run_batch(app, "mail.send", []) == []
    with pytest.raises(ValueError, match="takes one task a call"):
        run_batch(app, "mail.plain", [1])


def of_one_mail(mail: Mail) -> None: ...


def of_nothing() -> None: ...


def of_bytes(data: list[bytes]) -> None: ...


def of_mails(mails: list[Mail]) -> None: ...


@pytest.mark.parametrize(
    ("batch", "function", "said"),
    [
        (TWO, of_one_mail, "takes a list of payloads"),
        (TWO, of_nothing, r"takes \(payloads\) or \(payloads, contexts\)"),
        (TWO, of_bytes, "needs raw=True"),
        (100, of_mails, "batch must be a duly.Batch, not int"),
    ],
)
def test_a_callback_that_cannot_take_batches_is_refused(batch: Any, function: Any, said: str) -> None:
    app = duly.App(owner="tests")

    with pytest.raises(duly.RegistrationError, match=said):
        app.callback("mail.send", batch=batch)(function)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": 1_001},
        {"size": True},
        {"size": 2, "wait": timedelta(seconds=-1)},
        {"size": 2, "wait": 5},
        {"size": 2, "wait": timedelta(minutes=2)},
    ],
)
def test_a_batch_of_impossible_size_or_wait_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(duly.RegistrationError, match="batch"):
        duly.Batch(**options)


def test_an_application_has_at_most_sixteen_such_lambdas() -> None:
    app = duly.App(owner="tests")
    for number in range(16):
        app.callback(f"mail.{number}", batch=TWO)(of_mails)

    with pytest.raises(duly.RegistrationError, match="at most 16"):
        app.callback("mail.16", batch=TWO)(of_mails)
    app.callback("mail.plain")(of_one_mail)


def test_the_registry_is_told_the_batch_of_each_version() -> None:
    app = duly.App(owner="tests", version="1", pinned=True)
    app.callback("mail.send", batch=duly.Batch(size=7, wait=timedelta(seconds=2)))(of_mails)

    assert [(each.name, each.batch.size) for each in app.lambdas()] == [("mail.send", 7), ("mail.send@1", 7)]
