"""Errors of commands name the options that were given."""

import pytest
from typer.testing import CliRunner

import duly
from duly_cli.__main__ import app
from duly_cli.output.error_text import error_text

PAST = duly.InvalidTaskError("expires_at: is in the past: the task could never run", "expires_at")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PAST, "--expires-at: is in the past: the task could never run"),
        (
            duly.InvalidTaskError("scheduled_at: may be at most 30d ahead", "scheduled_at"),
            "--at: may be at most 30d ahead",
        ),
        (duly.InvalidTaskError("delay: must not be at 0", "delay"), "--delay: must not be at 0"),
        (
            duly.InvalidTaskError("finished_before: must be later than finished_after", "finished_before"),
            "--until: must be later than --since",
        ),
        (
            duly.UnknownLambdaError("no lambda 'expires_at' is registered"),
            "no lambda 'expires_at' is registered",
        ),
        (
            duly.ScheduleManyError([PAST]),
            "1 of 1 tasks were not scheduled; the first: --expires-at: is in the past: the task could never run",
        ),
    ],
)
def test_an_error_names_the_option_and_not_the_field(error: Exception, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["schedule", "a", "--at", "2026-12-24T18:00:00"], "'--at'"),
        (["schedule", "a", "--expires-at", "later"], "'--expires-at'"),
        (["schedule", "a", "--delay", "1"], "'--delay'"),
        (["schedule", "a", "--timeout", "1"], "'--timeout'"),
        (["schedule", "a", "--priority", "soon"], "'--priority'"),
        (["schedule", "a", "--at", "2026-12-24T18:00:00Z", "--delay", "1s"], "--at and --delay"),
        (["list", "--status", "asleep"], "'--status'"),
        (["dead-letters", "--until", "later"], "'--until'"),
        (["redrive", "--all", "--rate", "0"], "'--rate'"),
    ],
)
def test_an_invalid_value_is_refused_with_its_option(arguments: list[str], option: str) -> None:
    refused = CliRunner().invoke(app, arguments)

    assert refused.exit_code == 2
    assert option in refused.stderr
