"""What the Executor's log says of processes that it kills."""

from uuid import UUID

from structlog.testing import capture_logs

from duly_executor import events

TASK = UUID("019b5f0e-0000-7000-8000-000000000001")


def test_a_process_that_is_killed_is_told_with_the_task_and_the_lambda_that_are_the_reason() -> None:
    with capture_logs() as logs:
        events.process_killed(7, "max_runtime", TASK.bytes, "order.price")

    assert logs == [
        {
            "event": "callback process killed",
            "log_level": "warning",
            "pid": 7,
            "reason": "max_runtime",
            "task": str(TASK),
            "lambda": "order.price",
        }
    ]
