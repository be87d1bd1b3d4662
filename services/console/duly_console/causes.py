"""Groups failures by their cause: a lambda, a kind of failure, an exception and a message. No I/O."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from duly_wire.v1 import task_pb2

_LONGEST = 300
_EXHAUSTED = re.compile(r"failed \d+ times?; the last: ")
"""Heads what the last attempt said of a task that has no other."""
_EXCEPTION = re.compile(r"((?:\w+\.)*[A-Z]\w*)(?:: (.*))?")
_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "…"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\b0x[0-9a-f]+\b", re.IGNORECASE), "…"),
    (re.compile(r"'[^']{1,200}'"), "'…'"),
    (re.compile(r'"[^"]{1,200}"'), '"…"'),
    (re.compile(r"\d+(?:[.,]\d+)*"), "…"),
)
"""What differs from one failure to the next of the same cause: ids, numbers, what is quoted."""


class Cause(NamedTuple):
    """What failures have in common."""

    lambda_name: str
    kind: int
    exception: str
    """The type that the callback raised; empty: it raised nothing."""
    message: str
    """Without what varies."""

    @property
    def fingerprint(self) -> str:
        """What an address and a form name it by."""
        joined = "\0".join((self.lambda_name, str(self.kind), self.exception, self.message))
        return hashlib.sha256(joined.encode()).hexdigest()[:16]


@dataclass
class Group:
    """The tasks that failed by one cause."""

    cause: Cause
    tasks: list[task_pb2.Task] = field(default_factory=list)

    @property
    def last_failed_at(self) -> Timestamp:
        """When the last of them failed."""
        return max((task.last_failure.failed_at for task in self.tasks), key=_order)

    @property
    def first_failed_at(self) -> Timestamp:
        """When the first of them failed."""
        return min((task.last_failure.failed_at for task in self.tasks), key=_order)


def cause_of(task: task_pb2.Task) -> Cause:
    """Return the cause of the last failure of a task."""
    failure = task.last_failure
    line = _EXHAUSTED.sub("", failure.message.partition("\n")[0], count=1)
    found = _EXCEPTION.fullmatch(line)
    exception, text = (found[1], found[2] or "") if found else ("", line)
    return Cause(getattr(task, "lambda"), failure.kind, exception, normalised(text))


def normalised(message: str) -> str:
    """Return a message without what varies from one failure to the next.

    >>> normalised("row 17 of 'ann' (0190a8a0-0000-7000-8000-000000000000) is gone")
    "row … of '…' (…) is gone"
    """
    for pattern, mark in _VARYING:
        message = pattern.sub(mark, message)
    return message[:_LONGEST]


def grouped(tasks: Iterable[task_pb2.Task]) -> Sequence[Group]:
    """Group tasks that failed, the largest group first."""
    groups: dict[Cause, Group] = {}
    for task in tasks:
        cause = cause_of(task)
        groups.setdefault(cause, Group(cause)).tasks.append(task)
    return sorted(groups.values(), key=lambda group: (-len(group.tasks), group.cause))


def _order(stamp: Timestamp) -> tuple[int, int]:
    return stamp.seconds, stamp.nanos
