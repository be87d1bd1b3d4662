"""What is wrong now, as clients see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.explain.views import RelatedTask
from duly.transport.message_fields import view
from duly_wire.enums import ProblemActionKind, ProblemKind, ProblemSeverity, ProblemStatus

if TYPE_CHECKING:
    from duly_wire.v1 import problems_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemHost:
    """A host, or a process of a service, that a problem is about."""

    # Empty: of a service.
    host_id: str
    name: str
    # Of a service: which.
    service: str
    reported_at: datetime | None
    # By how much its clock is ahead of Postgres's; negative: behind.
    clock_ahead: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCommand:
    """A command that ends a problem, or shows more of it."""

    # As it is typed.
    command: str
    # What it does, in a few words.
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemAction:
    """What a page offers to do about a problem."""

    kind: ProblemActionKind | None
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCause:
    """What dead letters have in common."""

    fingerprint: str
    # A FailureKind.
    failure_kind: int
    # The type of the exception; empty: there was none.
    exception: str
    # Without ids, numbers and what is quoted; empty for those who may not read payloads.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSession:
    """A session that a failed task blocks."""

    key: str
    # Empty: the default one.
    namespace: str
    blocked_by_task_id: str
    blocked_at: datetime
    # Tasks that wait in it.
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, however many tasks it hits. What you may not see of it is left out."""

    # The same while it lasts, and when it comes back.
    fingerprint: str
    kind: ProblemKind
    severity: ProblemSeverity
    # What it is about, such as a gate or a lambda. Empty: several things.
    subject: str
    since_at: datetime
    # For people: one sentence; and whom it hits, with counts.
    text: str
    hits: str
    # Tasks that it hits, as far as they were counted; with `at_least` there are more.
    task_count: int
    at_least: bool
    # At most 20 names, those with most tasks.
    lambda_count: int
    lambdas: tuple[str, ...]
    host_count: int
    hosts: tuple[ProblemHost, ...]
    # Tasks that cause it, such as those that hold the slots.
    tasks: tuple[RelatedTask, ...]
    # What ends it, or shows more: the best first.
    commands: tuple[ProblemCommand, ...]
    action: ProblemAction | None
    # Of dead letters.
    cause: ProblemCause | None
    # Of blocked sessions: at most 100, those that were blocked first.
    sessions: tuple[ProblemSession, ...]
    session_count: int
    # The cells that it is of; none: the installation has no cells.
    cells: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, problem: problems_pb2.Problem) -> Problem:
        """Return the view of a problem as it came over the wire."""
        return view(
            cls,
            problem,
            hosts=tuple(view(ProblemHost, each) for each in problem.hosts),
            tasks=tuple(view(RelatedTask, each) for each in problem.tasks),
            commands=tuple(view(ProblemCommand, each) for each in problem.commands),
            action=view(ProblemAction, problem.action) if problem.HasField("action") else None,
            sessions=tuple(view(ProblemSession, each) for each in problem.sessions),
            cause=view(ProblemCause, problem.cause) if problem.HasField("cause") else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """How a cell stands."""

    name: str
    # False: its Postgres does not answer, and no task of its namespaces runs.
    is_answering: bool
    # Warnings and what is critical of this cell.
    problem_count: int
    # How old that is; None: not known.
    age: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """What is wrong now."""

    status: ProblemStatus
    # When it was found, by the store's clock; None: no Frontend has looked yet.
    as_of: datetime | None
    # It is older than a minute, or Postgres does not answer: things may stand differently.
    is_stale: bool
    # The worst first; at most 200.
    problems: tuple[Problem, ...]
    # Warnings and what is critical, those left out among them. Information does not count.
    problem_count: int
    left_out: int
    # How long a Frontend took to find it, and which: its host and process.
    took: timedelta | None
    computed_by: str
    # How each cell stands, by name; none: the installation has no cells.
    cells: tuple[CellStatus, ...] = ()
    # How old that is, by the store's clock; of several cells: the oldest. None: not known.
    age: timedelta | None = None

    @classmethod
    def from_proto(cls, response: problems_pb2.ListProblemsResponse) -> Problems:
        """Return the view of an answer as it came over the wire."""
        return view(
            cls,
            response,
            problems=tuple(map(Problem.from_proto, response.problems)),
            cells=tuple(view(CellStatus, each) for each in response.cells),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTarget:
    """Somebody who is told of problems, and how the last deliveries went. Addresses and secrets are not shown."""

    name: str
    # webhook, slack or email.
    kind: str
    # Problems of a lower severity are not told.
    severity: ProblemSeverity
    # What else limits it: kinds of problems, patterns of lambdas. Empty: all.
    kinds: tuple[ProblemKind, ...]
    lambdas: tuple[str, ...]
    # A problem is told once it has stood for so long.
    delay: timedelta
    # It is told again after this time. None: never.
    repeat: timedelta | None
    # Ends are told, too.
    resolved: bool
    # When a message or a test last arrived, and when one last failed. None: none did.
    last_success_at: datetime | None
    last_failure_at: datetime | None
    # Why the last one failed that did.
    failure: str
    # Deliveries that failed in a row until now, and since when.
    failures: int
    failing_since: datetime | None
    # A message waits for its delivery.
    is_message_under_way: bool
    # It is not sent again before, unless a test arrives. None: no delivery failed, or none waits.
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTest:
    """What came of a test."""

    name: str
    # Why it did not arrive. Empty: it did.
    failure: str
    took: timedelta
    # The receiver got it as the id of the message.
    message_id: str
