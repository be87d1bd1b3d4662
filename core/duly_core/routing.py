"""Which queue a task goes through: one per (lambda, priority)."""

import re
from typing import NamedTuple

from duly.enums import Priority

ALL_PRIORITIES = frozenset(Priority)
LAMBDA_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")


class QueueKey(NamedTuple):
    """The name of a queue, free of any backend's rules for names."""

    lambda_name: str
    priority: Priority

    def __str__(self) -> str:
        return f"{self.lambda_name}/{self.priority.name.lower()}"
