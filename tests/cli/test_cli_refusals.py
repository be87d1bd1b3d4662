"""A command that cannot do what it is told says so in one line, with an exit code, and without a traceback."""

import pytest

from tests.fixtures.command_line import RunDuly
from tests.fixtures.task_states import TaskStates


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["schedule", "test.unheard"], 1, "test.unheard"),
        (["schedule", "test.echo", "{not json"], 2, "the payload is invalid JSON"),
        (["schedule", "test.echo", "NaN"], 1, "JSON cannot carry"),
        (
            ["schedule", "test.echo", "--priority", "soon"],
            2,
            "'soon' is not a priority: urgent, high, normal or low",
        ),
        (["schedule", "test.echo", "--delay", "1"], 2, "'1' is not a duration"),
        (["schedule", "test.echo", "--at", "tomorrow"], 2, "'tomorrow' is not an instant"),
        (["schedule", "test.echo", "--at", "2030-01-01"], 2, "no time zone"),
        (["schedule", "test.echo", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"], 2, "cannot be combined"),
        (["get", "no-id"], 1, "'no-id': not a task id"),
        (["get", "0190a8a0-0000-7000-8000-000000000000"], 1, "there is no task"),
        (["wait", "no-id"], 1, "'no-id': not a task id"),
        (["cancel", "no-id"], 1, "no-id"),
        (["cancel", "0190a8a0-0000-7000-8000-000000000000"], 1, "0190a8a0-0000-7000-8000-000000000000"),
        (["list", "--status", "asleep"], 2, "'asleep' is not a status"),
        (["list", "--limit", "0"], 2, "'--limit': must be at least 1, not '0'"),
        (["list", "--limit", "many"], 2, "'--limit': must be a whole number, not 'many'"),
        (["sessions", "show", "k", "--max-tasks", "5000"], 2, "must be at most 1000, not '5000'"),
        (["breakers", "set", "l", "--failure-rate", "half"], 2, "must be a number, not 'half'"),
        (["health", "127.0.0.1:1", "--timeout", "soon"], 2, "'soon' is not a duration"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_line(
    run_duly: RunDuly, task_states: TaskStates, arguments: list[str], code: int, complaint: str
) -> None:
    await task_states.register("test.echo")

    result = await run_duly(*arguments)

    assert result.exit_code == code, result.output
    assert complaint in result.stderr
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
