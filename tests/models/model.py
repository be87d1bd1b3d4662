"""A task's life in plain Python: what the store must answer, and what its rows must say, after each move.

The model knows no SQL. Where the store chooses at random (a backoff, the spread of `put_back`) the model says
`Between`, and takes over what the store chose once that was found to lie there.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from duly_core.lambdas.policy import LambdaPolicy
from duly_core.tasks.lifecycle import FINAL, HELD, READY, Status
from duly_core.tasks.task import NewTask, TaskChange, Token
from duly_wire.enums import FailureKind
from duly_wire.ids import TaskId

WAITING = READY | {Status.ENQUEUED}
"""Statuses in which nobody holds the task."""


@dataclass(frozen=True, slots=True)
class Between:
    """An instant that the store chooses, both ends included."""

    earliest: datetime
    latest: datetime


@dataclass(slots=True)
class Row:
    """What the store must say of a task; a final task has neither trigger nor due time nor holder."""

    lambda_name: str
    status: Status
    next_trigger_at: datetime | Between | None
    due_at: datetime | Between | None
    expires_at: datetime | None
    fence: int = 0
    failures: int = 0
    crashes: int = 0
    token: Token | None = None
    last_token: Token | None = None
    holder: str | None = None
    cancel_requested: bool = False
    kill_requested: bool = False
    progress: float | None = None
    note: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: bytes | None = None
    failure_kind: FailureKind | None = None
    failed_at: datetime | None = None
    crashed_at: tuple[datetime, ...] = ()
    """The crashes that count against the lambda's limit, as long as they are within its window."""
    redrives: int = 0


@dataclass
class ModelTask:
    """One task, and everything that was ever asked of it under a token."""

    asked: NewTask
    row: Row
    tokens: list[Token] = field(default_factory=list)
    """Every token that ever held it, oldest first."""
    hashes: list[bytes] = field(default_factory=list)
    """Those of every token by which somebody was to complete it, oldest first."""
    late_hashes: set[bytes] = field(default_factory=set)
    """Those of the tokens by which nobody completed it in time."""
    is_completed: bool = False
    """Its success came by such a token."""
    first: NewTask | None = None
    """Once it was changed: what it was scheduled as. `asked` is what it is now."""

    @property
    def scheduled_as(self) -> NewTask:
        """What a repeat of its Schedule is compared with."""
        return self.first or self.asked


class Model:
    """Every task by its id, the registry, and the clock."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.tasks: dict[TaskId, ModelTask] = {}
        self.keys: dict[tuple[str, str], TaskId] = {}
        self.lambdas: dict[str, LambdaPolicy] = {}

    def in_status(self, statuses: Iterable[Status]) -> list[ModelTask]:
        """Tasks that stand in one of these, oldest id first."""
        wanted = frozenset(statuses)
        return [task for _, task in sorted(self.tasks.items()) if task.row.status in wanted]

    def schedule(self, asked: NewTask) -> ModelTask:
        """A new task."""
        at = asked.scheduled_at or self.now + (asked.delay or timedelta())
        at = max(at, self.now)
        task = ModelTask(asked, Row(asked.lambda_name, Status.NEW, at, at, asked.expires_at))
        self.tasks[asked.task_id] = task
        if asked.idempotency_key:
            self.keys[asked.lambda_name, asked.idempotency_key] = asked.task_id
        return task

    def expired(self, row: Row) -> bool:
        return row.expires_at is not None and row.expires_at <= self.now

    def triggered(self, row: Row) -> bool:
        assert isinstance(row.next_trigger_at, datetime)
        return row.next_trigger_at <= self.now

    def due(self, lambda_name: str, priority: int) -> list[ModelTask]:
        """What `enqueue` may take of one queue, oldest first."""
        found = [
            task
            for task in self.in_status(READY)
            if (task.row.lambda_name, task.asked.priority) == (lambda_name, priority)
            and self.triggered(task.row)
            and not self.expired(task.row)
        ]
        return sorted(found, key=lambda task: task.row.next_trigger_at)

    def silent(self, statuses: Iterable[Status]) -> list[ModelTask]:
        """What is watched and whose next trigger has passed, oldest first."""
        found = [task for task in self.in_status(statuses) if self.triggered(task.row)]
        return sorted(found, key=lambda task: task.row.next_trigger_at)

    def recent_crashes(self, task: ModelTask) -> tuple[datetime, ...]:
        """Crashes that count against the lambda's limit now, oldest first."""
        since = self.now - self.lambdas[task.row.lambda_name].crash_window
        return tuple(sorted(instant for instant in task.row.crashed_at if instant > since))

    def last_crash(self, task: ModelTask) -> bool:
        """Whether one more crash now is the last that the lambda allows."""
        return len(self.recent_crashes(task)) + 1 >= self.lambdas[task.row.lambda_name].max_crashes

    def charge(self, task: ModelTask, *, crash: bool) -> None:
        """Count an attempt that did not succeed; crashes that are too old are forgotten on the way."""
        recent = self.recent_crashes(task)
        task.row.crashed_at = (*recent, self.now) if crash else recent
        task.row.crashes += crash
        task.row.failures += not crash

    def claim(self, task: ModelTask, token: Token, holder: str, lease: timedelta) -> None:
        row = task.row
        row.status, row.token, row.holder = Status.CLAIMED, token, holder
        row.fence += 1
        row.next_trigger_at = self.now + lease
        task.tokens.append(token)

    def let_go(
        self, task: ModelTask, status: Status, trigger: datetime | Between, *, remember: bool = True
    ) -> None:
        """Nobody holds it any more, and it lives on; what was asked while it ran takes effect now."""
        row = task.row
        row.status, row.next_trigger_at = status, trigger
        row.last_token = row.token if remember else None
        row.token = row.holder = row.progress = row.note = None
        if row.cancel_requested:
            self.end(task, Status.CANCELLED)

    def end(
        self, task: ModelTask, status: Status, kind: FailureKind | None = None, *, remember: bool = True
    ) -> None:
        """The assoc goes."""
        row = task.row
        if row.token is not None:
            row.last_token = row.token if remember else None
        row.status, row.finished_at = status, self.now
        row.next_trigger_at = row.due_at = row.token = row.holder = row.progress = row.note = None
        row.cancel_requested = row.kill_requested = False
        row.crashed_at = ()
        if kind is not None:
            row.failure_kind, row.failed_at = kind, self.now

    def hand_over(self, task: ModelTask, token_hash: bytes, within: timedelta) -> None:
        """Somebody is to complete it."""
        task.hashes.append(token_hash)
        self.let_go(task, Status.WAITING, self.now + within)
        if task.row.status is Status.CANCELLED:
            task.row.last_token = token_hash[:16]

    def fail_handed_over(
        self, task: ModelTask, kind: FailureKind, wait: datetime | Between, *, is_fatal: bool = False
    ) -> None:
        """Nobody completed it in time, or somebody says that the work failed."""
        row = task.row
        row.last_token = task.hashes[-1][:16]
        if kind is FailureKind.COMPLETION_TIMEOUT:
            task.late_hashes.add(task.hashes[-1])
        row.failures += 1
        if is_fatal or row.failures >= self.lambdas[row.lambda_name].max_attempts:
            self.end(task, Status.FATAL_FAILURE, kind if is_fatal else FailureKind.ATTEMPTS_EXHAUSTED)
            return
        row.status, row.failure_kind, row.failed_at = Status.RETRIABLE_FAILURE, kind, self.now
        row.next_trigger_at = row.due_at = wait

    def redrive(self, task: ModelTask) -> None:
        """A dead letter starts again; its fence and its last token go on."""
        row = task.row
        row.status, row.started_at, row.finished_at = Status.NEW, None, None
        row.next_trigger_at = row.due_at = self.now
        row.failures = row.crashes = 0
        row.redrives += 1
        if self.expired(row):
            row.expires_at = None

    def change(self, task: ModelTask, change: TaskChange) -> None:
        """Nobody runs it: it becomes what is asked for, and one that was enqueued waits again."""
        row = task.row
        task.first = task.scheduled_as
        if change.payload is not None:
            task.asked = task.asked._replace(payload=change.payload)
        if change.priority is not None:
            task.asked = task.asked._replace(priority=change.priority)
        if row.status is Status.ENQUEUED:
            row.next_trigger_at = self.now
        row.status = Status.NEW
        if change.delay is not None:
            row.next_trigger_at = row.due_at = self.now + change.delay

    def backoff(self, task: ModelTask) -> Between:
        """The bounds of the wait before the next attempt, by the counts before this failure."""
        policy = self.lambdas[task.row.lambda_name]
        exponent = min(task.row.failures + task.row.crashes, 60)
        longest = min(policy.backoff_max, policy.backoff_initial * policy.backoff_factor**exponent)
        return Between(self.now, self.now + longest + timedelta(microseconds=1))

    def compare(self, rows: dict[TaskId, Row], ended: Mapping[TaskId, int], dead: Collection[TaskId]) -> None:
        """The store's rows are the model's; what the store chose at random is taken over.

        `ended` is how many attempts of each task the history holds, `dead` are the dead letters that are listed.

        Raises:
            AssertionError: they are not; names the task and the column.
        """
        assert dead == {task.asked.task_id for task in self.in_status({Status.FATAL_FAILURE})}, (
            "other dead letters"
        )
        assert rows.keys() == self.tasks.keys(), "the store has other tasks than the model"
        for task_id, task in self.tasks.items():
            found = rows[task_id]
            _settle(task.row, found)
            for column in fields(Row):
                name = column.name
                expected, got = getattr(task.row, name), getattr(found, name)
                assert got == expected, f"{task_id.hex()}: {name} is {got!r}, not {expected!r}"
            _check_invariants(task_id, task, found)
            without_a_record = (found.status in HELD) + (
                found.status is Status.SUCCESS and not task.is_completed
            )
            assert ended.get(task_id, 0) == found.fence - without_a_record, (
                f"{task_id.hex()}: attempts are missing"
            )


def _settle(row: Row, found: Row) -> None:
    bounds = row.next_trigger_at
    if not isinstance(bounds, Between):
        return
    assert found.next_trigger_at is not None, "a live task is never looked at again"
    assert bounds.earliest <= found.next_trigger_at <= bounds.latest, f"{found.next_trigger_at} not {bounds}"
    if row.due_at is bounds:
        row.due_at = found.next_trigger_at
    row.next_trigger_at = found.next_trigger_at


def _check_invariants(task_id: TaskId, task: ModelTask, found: Row) -> None:
    what = task_id.hex()
    assert (found.status in FINAL) == (found.next_trigger_at is None), f"{what}: live means looked at again"
    assert (found.status in FINAL) == (found.finished_at is not None), f"{what}: final means finished"
    assert (found.status in HELD) == (found.token is not None), f"{what}: held means one token"
    assert found.fence == len(task.tokens), f"{what}: the fence counts claims"
    assert found.failures + found.crashes <= found.fence, f"{what}: more failures than claims"
    assert found.status in HELD or not found.cancel_requested, f"{what}: nobody is left to ask"
