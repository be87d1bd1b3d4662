"""What the Executor's log and metrics say."""

from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from duly_executor import events
from duly_executor.slots.reservations import Reservation
from duly_executor.slots.use import SlotUse
from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2, task_pb2

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


def test_metrics_show_reserved_slots_and_how_many_are_used() -> None:
    whole, high = Reservation("order.price", None, 2), Reservation("mail.send", Priority.HIGH, 1)
    use = SlotUse(8, (whole, high))
    for taker in (whole, whole, whole, None):
        use.take(taker)

    events.slots_used(use)

    def values(name: str, priority: str) -> list[float | None]:
        labels = {"lambda": name, "priority": priority}
        metrics = ("duly_reserved_slots", "duly_reserved_slots_used")
        return [REGISTRY.get_sample_value(metric, labels) for metric in metrics]

    assert values("order.price", "any") == [2, 2]
    assert values("mail.send", "high") == [1, 0]


def test_time_in_which_something_held_a_run_back_is_no_lateness() -> None:
    held = hsc_pb2.ClaimedTask(
        priority=task_pb2.PRIORITY_NORMAL,
        due_at=Timestamp(seconds=1_000),
        startable_at=Timestamp(seconds=4_600),
    )
    setattr(held, "lambda", "held.back")
    result = hsc_pb2.TaskResult(started_at=Timestamp(seconds=4_602))

    events.attempts_ended([(held, result)])

    labels = {"lambda": "held.back", "priority": "normal"}
    assert REGISTRY.get_sample_value("duly_start_lateness_seconds_sum", labels) == 2
