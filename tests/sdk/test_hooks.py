"""What an application has called when a run of one of its callbacks has ended."""

import logging
from datetime import timedelta
from typing import Any

import pytest

import duly
from duly import FailureKind, Outcome
from duly.testing import run, run_batch

ENDS: dict[str, Any] = {
    "fine": None,
    "bad": ValueError("bad"),
    "fatal": duly.FatalFailure("no"),
    "later": duly.Snooze(timedelta(minutes=1)),
}


@pytest.fixture
def app() -> duly.App:
    app = duly.App(owner="tests")

    @app.callback("mail.send")
    def send(how: str) -> str:
        if isinstance(ENDS[how], Exception):
            raise ENDS[how]
        return how

    app.callback("mail.other")(send)
    return app


def noted(app: duly.App) -> list[tuple[str, str, duly.RunEnd]]:
    """What hooks of each kind are told."""
    told: list[tuple[str, str, duly.RunEnd]] = []
    for kind in ("on_end", "on_success", "on_failure"):

        def note(ctx: duly.TaskContext, end: duly.RunEnd, kind: str = kind) -> None:
            told.append((kind, ctx.lambda_name, end))

        getattr(app, kind)()(note)
    return told


@pytest.mark.parametrize(
    ("how", "kinds", "end"),
    [
        ("fine", ["on_end", "on_success"], duly.RunEnd(Outcome.SUCCESS, None, "", None)),
        (
            "bad",
            ["on_end", "on_failure"],
            duly.RunEnd(Outcome.RETRIABLE_FAILURE, FailureKind.EXCEPTION, "ValueError: bad", None),
        ),
        (
            "fatal",
            ["on_end", "on_failure"],
            duly.RunEnd(Outcome.FATAL_FAILURE, FailureKind.CALLBACK, "no", None),
        ),
        ("later", ["on_end"], duly.RunEnd(Outcome.SNOOZED, None, "", timedelta(minutes=1))),
    ],
)
def test_a_hook_is_called_for_the_ends_that_it_is_for(
    app: duly.App, how: str, kinds: list[str], end: duly.RunEnd
) -> None:
    told = noted(app)

    run(app, "mail.send", how)

    assert told == [(kind, "mail.send", end) for kind in kinds]


def test_a_payload_that_cannot_be_read_is_a_failure_too(app: duly.App) -> None:
    told = noted(app)

    run(app, "mail.send", 7)

    assert [(kind, end.failure_kind) for kind, _, end in told] == [
        ("on_end", FailureKind.BAD_PAYLOAD),
        ("on_failure", FailureKind.BAD_PAYLOAD),
    ]


def test_a_hook_of_one_lambda_is_called_for_no_other(app: duly.App) -> None:
    told: list[str] = []

    @app.on_success("mail.other")
    async def note(ctx: duly.TaskContext, end: duly.RunEnd) -> None:
        told.append(f"{ctx.lambda_name} {end.outcome.name}")

    run(app, "mail.send", "fine")
    run(app, "mail.other", "fine")

    assert told == ["mail.other SUCCESS"]


@pytest.mark.parametrize("raised", [ValueError("broken"), SystemExit(1), duly.FatalFailure("no")])
def test_what_a_hook_raises_is_logged_and_changes_nothing(
    app: duly.App, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    @app.on_end()
    def fail(ctx: duly.TaskContext, end: duly.RunEnd) -> None:
        ctx.schedule("mail.other", "fine")
        raise raised

    told = noted(app)
    with caplog.at_level(logging.ERROR):
        ended = run(app, "mail.send", "fine")

    assert (ended.outcome, ended.result, ended.scheduled) == (Outcome.SUCCESS, "fine", ())
    assert "fail raised" in caplog.text
    assert [kind for kind, _, _ in told] == ["on_end", "on_success"]


def test_each_task_of_a_batch_has_its_end() -> None:
    app = duly.App(owner="tests")
    ends: list[tuple[int, str]] = []

    @app.on_end()
    def note(ctx: duly.TaskContext, end: duly.RunEnd) -> None:
        ends.append((ctx.attempt, end.outcome.name))

    app.callback("mail.send", batch=duly.Batch(size=2))(lambda payloads: [1, duly.FatalFailure("no")])

    run_batch(app, "mail.send", ["a", "b"], attempt=3)

    assert ends == [(3, "SUCCESS"), (3, "FATAL_FAILURE")]


def test_a_hook_of_a_lambda_that_is_not_declared_is_refused(app: duly.App) -> None:
    with pytest.raises(duly.RegistrationError, match="declare the callback before it"):
        app.on_end("mail.sned")


def test_a_hook_without_parentheses_is_refused_with_the_remedy(app: duly.App) -> None:
    with pytest.raises(duly.RegistrationError, match=r"write @app.on_end\(\)"):

        @app.on_end
        def note(ctx: duly.TaskContext, end: duly.RunEnd) -> None: ...
