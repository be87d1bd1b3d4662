"""What the Executor's log and metrics say."""

from uuid import UUID

from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from duly_executor import events
from duly_executor.slots.reservations import Reservation
from duly_executor.slots.use import SlotUse
from duly_wire.enums import Priority

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
