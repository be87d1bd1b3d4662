"""Decides which tasks gates hold. No I/O."""

import enum
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.lambdas import patterns as lambda_patterns
from duly_core.lambdas.names import ALL_PRIORITIES, QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_wire.enums import Priority


class Kind(enum.StrEnum):
    """What a gate does to the tasks that it hits, as the store spells it."""

    PAUSE = "pause"
    DROP = "drop"
    DELAY = "delay"
    UNKNOWN = "unknown"
    """Of a newer release. It holds as a pause does, and parks nothing: this release cannot tell when to release it."""


@dataclass(frozen=True, slots=True)
class GateScope:
    """Which tasks a gate hits: those that have all that is set."""

    pattern: str
    """A lambda, one of its versions, a prefix that ends with `*`, or `*`."""
    collection: str | None = None
    priority: Priority | None = None
    session: str | None = None
    """A session's key, in each namespace of which the pattern covers a lambda."""

    def covers(self, lambda_name: str) -> bool:
        """Whether tasks of this lambda, or of this version of one, may be hit."""
        return lambda_patterns.covers(self.pattern, lambda_name)

    def hits(self, lambda_name: str, priority: int, collection: str, session: str | None) -> bool:
        """Whether a task is hit; `session` is what the store calls its session (SessionId)."""
        return (
            self.covers(lambda_name)
            and self.priority in (None, priority)
            and self.collection in (None, collection)
            and (
                self.session is None or (session is not None and SessionId.parse(session).key == self.session)
            )
        )


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate."""

    gate_id: int
    name: str
    kind: Kind
    scope: GateScope
    delay: timedelta | None
    owner: str
    reason: str
    created_at: datetime
    expires_at: datetime | None
    probes_until: datetime | None = None
    """Of a breaker that is half open: its probes are due by then."""

    @property
    def is_on_queues(self) -> bool:
        """Whether it holds back whole queues (lambda, priority), with or without probes."""
        return (
            self.kind in (Kind.PAUSE, Kind.UNKNOWN)
            and self.scope.collection is None
            and self.scope.session is None
        )

    @property
    def holds_queues(self) -> bool:
        """Whether it holds all that is in a queue (lambda, priority), so that the queue is left out."""
        return self.is_on_queues and self.probes_until is None

    @property
    def sweeps(self) -> bool:
        """Whether something is done to single tasks that it hits when they are due."""
        return not self.holds_queues and self.probes_until is None and self.kind is not Kind.UNKNOWN

    def lets_pass(self, passed_gates: Collection[int] | None) -> bool:
        """Whether a task that has passed these gates is not held, although it is hit."""
        return self.gate_id in (passed_gates or ())


@dataclass(frozen=True, slots=True)
class LambdaGates:
    """The gates of one lambda."""

    closed: frozenset[Priority]
    """The priorities that are held as a whole."""
    of_rows: tuple[Gate, ...]
    """The gates that hold some of the tasks of its queues."""
    every: tuple[Gate, ...]


_NONE = LambdaGates(frozenset(), (), ())
_REMEMBERED = 20_000
"""Lambdas: names come from callers."""


class GateSet:
    """The gates that are in force. Immutable; made again when one comes or goes."""

    def __init__(self, gates: Iterable[Gate] = ()) -> None:
        self.gates = tuple(gates)
        self._by_lambda: dict[str, LambdaGates] = {}

    def __bool__(self) -> bool:
        return bool(self.gates)

    def of(self, lambda_name: str) -> LambdaGates:
        """Return the gates of a lambda, or of a version of one."""
        if not self.gates:
            return _NONE
        found = self._by_lambda.get(lambda_name)
        if found is None:
            if len(self._by_lambda) >= _REMEMBERED:
                self._by_lambda.clear()
            found = self._by_lambda[lambda_name] = self._look_up(lambda_name)
        return found

    def _look_up(self, lambda_name: str) -> LambdaGates:
        every = tuple(gate for gate in self.gates if gate.scope.covers(lambda_name))
        if not every:
            return _NONE
        closed = {
            priority
            for gate in every
            if gate.holds_queues
            for priority in (ALL_PRIORITIES if gate.scope.priority is None else {gate.scope.priority})
        }
        return LambdaGates(frozenset(closed), tuple(gate for gate in every if not gate.holds_queues), every)

    def is_closed(self, queue: QueueKey) -> bool:
        """Whether a queue is held as a whole."""
        return bool(self.gates) and queue.priority in self.of(queue.lambda_name).closed

    def holds_back(self, queue: QueueKey) -> bool:
        """Whether a queue is held as a whole, but for the probes of a breaker: on purpose, or until its runs succeed."""
        return bool(self.gates) and any(
            gate.is_on_queues and gate.scope.priority in (None, queue.priority)
            for gate in self.of(queue.lambda_name).every
        )

    def open_among(self, lambdas: frozenset[str], priorities: frozenset[Priority]) -> frozenset[str]:
        """Return the lambdas of which some of these priorities are not held as a whole."""
        if not self.gates:
            return lambdas
        return frozenset(name for name in lambdas if not priorities <= self.of(name).closed)

    def holds_rows(self, lambdas: Iterable[str]) -> bool:
        """Whether some tasks of these lambdas are held, and others of their queues are not."""
        return bool(self.gates) and any(self.of(name).of_rows for name in lambdas)

    def hold_any(self, lambdas: Iterable[str]) -> bool:
        """Whether any task of these lambdas may be held."""
        return bool(self.gates) and any(self.of(name).every for name in lambdas)

    def of_rows(self, lambdas: Iterable[str]) -> Iterator[tuple[str, tuple[Gate, ...]]]:
        """Yield each lambda that has gates which hold some of its tasks, with these."""
        return ((name, gates) for name in lambdas if (gates := self.of(name).of_rows))

    def all_of(self, lambdas: Iterable[str]) -> Iterator[tuple[str, tuple[Gate, ...]]]:
        """Yield each lambda that has gates, with these."""
        return ((name, gates) for name in lambdas if (gates := self.of(name).every))

    def holding(
        self,
        lambda_name: str,
        priority: int,
        collection: str,
        session: str | None,
        passed_gates: Collection[int] | None = None,
    ) -> list[Gate]:
        """Return the gates that hold a task."""
        return [
            gate
            for gate in self.of(lambda_name).every
            if gate.scope.hits(lambda_name, priority, collection, session)
            and not gate.lets_pass(passed_gates)
        ]


NO_GATES = GateSet()
