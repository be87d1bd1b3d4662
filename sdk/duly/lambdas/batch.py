"""How many tasks of a lambda one call of its callback takes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from duly.errors import RegistrationError
from duly.lambdas.policy import check_count, check_positive, unknown_option
from duly.tasks.arguments import named_fields
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import registry_pb2

MOST_TASKS = 1_000
LONGEST_WAIT = timedelta(minutes=1)


@named_fields(unknown_option)
@dataclass(frozen=True, slots=True)
class Batch:
    """One call takes up to `size` tasks; the first of them waits up to `wait` for others.

    >>> Batch(size=100, wait=timedelta(milliseconds=50)).size
    100
    """

    # The most tasks of one call.
    size: int
    # How long the first task waits for others; zero: it does not.
    wait: timedelta = timedelta(milliseconds=50)

    def __post_init__(self) -> None:
        check_count("batch.size", self.size, MOST_TASKS)
        if self.wait != timedelta():
            check_positive("batch.wait", self.wait)
        if self.wait > LONGEST_WAIT:
            raise RegistrationError(f"batch.wait must be at most 1 minute, not {self.wait}")

    def declare(self) -> registry_pb2.Batch:
        """Return it as the registry is told."""
        return registry_pb2.Batch(size=self.size, wait=to_duration(self.wait))
