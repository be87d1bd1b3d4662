"""Which queue a task goes through: one per (lambda, priority)."""

import enum
import re
from typing import NamedTuple

LAMBDA_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")


class Priority(enum.IntEnum):
    """Best first; the numbers are those of the wire and of the store."""

    URGENT = 1
    HIGH = 2
    NORMAL = 3
    LOW = 4


class QueueKey(NamedTuple):
    """The name of a queue, free of any backend's rules for names."""

    lambda_name: str
    priority: Priority

    def __str__(self) -> str:
        return f"{self.lambda_name}/{self.priority.name.lower()}"
