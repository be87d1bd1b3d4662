"""The tasks of the suite and their claims, in memory: the same verdicts as the store gives, by token."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from duly_wire.ids import TaskId, new_task_id
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2, task_pb2

HOUR = timedelta(hours=1)


@dataclass
class SuiteTask:
    """One task, and all that a worker ever said of it."""

    lambda_name: str
    payload: bytes
    encoding: int
    max_runtime: timedelta = HOUR
    crashes: int = 0
    checkpoint: bytes = b""
    task_id: TaskId = field(default_factory=lambda: new_task_id().bytes)
    failures: int = 0
    fence: int = 0
    token: bytes = b""
    """Of the claim that holds it; empty: nobody does."""
    last_token: bytes = b""
    tokens: set[bytes] = field(default_factory=set)
    """All that it was ever claimed under."""
    lease_until: float = 0
    due: bool = True
    result: hsc_pb2.TaskResult | None = None
    """The one that was applied last."""
    applied: list[hsc_pb2.TaskResult] = field(default_factory=list)
    sent: list[hsc_pb2.TaskResult] = field(default_factory=list)
    """All that were ever sent, repeats included."""
    released: int = 0
    beats: list[tuple[float, hsc_pb2.HeartbeatItem]] = field(default_factory=list)
    """The acknowledged ones, and when they came."""
    silent: int = 0
    """How often its holder fell silent."""
    verdict: int = hsc_pb2.HEARTBEAT_VERDICT_KEPT
    kill: bool = False

    @property
    def held(self) -> bool:
        """Whether a worker has it."""
        return bool(self.token)


class Tasks:
    """All tasks of a run. A waiter is woken by every change."""

    def __init__(self, lease: timedelta) -> None:
        self.lease = lease
        self.all: dict[TaskId, SuiteTask] = {}
        self.unknown_tokens: list[str] = []
        """Writes under tokens that no claim ever had."""

    def due(self, lambdas: Sequence[str], most: int) -> list[SuiteTask]:
        """Return the tasks that may be claimed now."""
        self.reclaim()
        wanted = frozenset(lambdas)
        return [each for each in self.all.values() if each.due and each.lambda_name in wanted][:most]

    def reclaim(self) -> None:
        """Take the claims of silent workers away, as a Store Consumer does."""
        now = time.monotonic()
        for task in self.all.values():
            if task.held and now > task.lease_until:
                task.last_token, task.token, task.due = task.token, b"", True
                task.crashes += 1
                task.silent += 1

    def claim(self, tasks: Sequence[SuiteTask], prefix: bytes) -> list[hsc_pb2.ClaimedTask]:
        """Claim these anew."""
        claimed = []
        for number, task in enumerate(tasks):
            task.token = prefix + number.to_bytes(2, "big")
            task.tokens.add(task.token)
            task.fence += 1
            task.due = False
            task.lease_until = time.monotonic() + self.lease.total_seconds()
            claimed.append(self._to_wire(task))
        return claimed

    def under(self, prefix: bytes) -> list[SuiteTask]:
        """Return what is held under a request's tokens, in their order."""
        held = [task for task in self.all.values() if task.token[:14] == prefix and task.held]
        return sorted(held, key=lambda task: task.token)

    def again(self, prefix: bytes) -> list[hsc_pb2.ClaimedTask]:
        """Answer a repeated request with what it has claimed."""
        return [self._to_wire(task) for task in self.under(prefix)]

    def _to_wire(self, task: SuiteTask) -> hsc_pb2.ClaimedTask:
        claimed = hsc_pb2.ClaimedTask(
            claim=hsc_pb2.Claim(task_id=task.task_id, token=task.token),
            priority=task_pb2.PRIORITY_NORMAL,
            payload=task.payload,
            payload_encoding=task_pb2.Encoding.ValueType(task.encoding),
            attempt=task.failures + task.crashes + 1,
            fence=task.fence,
            max_runtime=to_duration(task.max_runtime),
            crashes=task.crashes,
            checkpoint=task.checkpoint,
        )
        setattr(claimed, "lambda", task.lambda_name)  # a word of Python's own
        claimed.due_at.GetCurrentTime()
        return claimed

    def find(self, claim: hsc_pb2.Claim, call: str) -> SuiteTask | None:
        """Return the task of a claim; a token that no claim ever had is noted."""
        task = self.all.get(claim.task_id)
        if task is None or claim.token not in task.tokens:
            self.unknown_tokens.append(call)
            return None
        return task

    def beat(self, item: hsc_pb2.HeartbeatItem) -> "hsc_pb2.HeartbeatVerdict.ValueType":
        """Renew a lease."""
        task = self.find(item.claim, "Heartbeat")
        if task is None or task.token != item.claim.token:
            return hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM
        task.beats.append((time.monotonic(), item))
        task.lease_until = time.monotonic() + self.lease.total_seconds()
        task.checkpoint = item.checkpoint or task.checkpoint
        if task.kill:
            return hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED
        return hsc_pb2.HeartbeatVerdict.ValueType(task.verdict)

    def finish(self, result: hsc_pb2.TaskResult) -> "hsc_pb2.ResultVerdict.ValueType":
        """Write a result."""
        task = self.find(result.claim, "SetResults")
        if task is None:
            return hsc_pb2.RESULT_VERDICT_LOST_CLAIM
        task.sent.append(result)
        if task.token != result.claim.token:
            if task.last_token == result.claim.token and task.result is not None:
                return hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED
            return hsc_pb2.RESULT_VERDICT_LOST_CLAIM
        task.last_token, task.token = task.token, b""
        task.result = result
        task.applied.append(result)
        return hsc_pb2.RESULT_VERDICT_APPLIED

    def release(self, claim: hsc_pb2.Claim) -> "hsc_pb2.ResultVerdict.ValueType":
        """Let a task run elsewhere."""
        task = self.find(claim, "Release")
        if task is None:
            return hsc_pb2.RESULT_VERDICT_LOST_CLAIM
        if task.token != claim.token:
            if task.last_token == claim.token:
                return hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED
            return hsc_pb2.RESULT_VERDICT_LOST_CLAIM
        self._let_go(task)
        return hsc_pb2.RESULT_VERDICT_APPLIED

    def release_under(self, prefix: bytes) -> None:
        """Let all run elsewhere that a request claimed whose reply was lost."""
        for task in self.under(prefix):
            self._let_go(task)

    @staticmethod
    def _let_go(task: SuiteTask) -> None:
        task.last_token, task.token, task.due = task.token, b"", True
        task.released += 1

    def forget(self) -> None:
        """Let no task run any more: the next duty begins."""
        for task in self.all.values():
            task.due = False
            if task.held:
                task.last_token, task.token = task.token, b""


def payload_of(value: Any) -> tuple[bytes, int]:
    """Return a value as a client sends it."""
    if isinstance(value, bytes):
        return value, task_pb2.ENCODING_RAW
    return json.dumps(value, separators=(",", ":")).encode(), task_pb2.ENCODING_JSON
