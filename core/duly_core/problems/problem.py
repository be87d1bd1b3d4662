"""A problem that was found: its facts, its fingerprint, its rank, and what of it a caller may see. No I/O."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Self

from duly_core.access.grants import Scope
from duly_core.lambdas import patterns as lambda_patterns
from duly_core.lambdas.names import base_name
from duly_core.problems.kinds import CAUSES_FIRST, Kind, Severity
from duly_core.process.newer_values import known

MOST_LAMBDAS = 200
"""Of one problem so many names are kept: those with most tasks."""
MOST_SHOWN = 20
"""Hosts and tasks of one problem."""
MOST_SESSIONS = 100
"""Of one problem: one click unblocks them."""
LONGEST_VALUE = 500
PATTERN = "pattern"
"""Of the values: the lambdas that a gate is for."""
_OF_ALL = {Kind.LATE: "why", Kind.POOL_DRIVER_FAILS: "failure"}
"""Values that may name lambdas, keys and machines of others."""
_OF_ALL_TASKS = {Kind.SESSIONS_BLOCKED: ("count", "session", "sessions")}
"""Values about all tasks of the subject, of any principal."""
_PLACES = {kind: place for place, kind in enumerate(CAUSES_FIRST)}


@dataclass(frozen=True, slots=True)
class AboutHost:
    """A host, or a process of a service, that a problem is about."""

    host_id: str
    """Empty: of a service."""
    name: str
    service: str = ""
    reported_at: datetime | None = None
    clock_ahead: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AboutTask:
    """A task that causes a problem, such as one that holds a slot."""

    task_id: str
    lambda_name: str
    status: str
    held_since_at: datetime | None = None
    holder: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True)
class AboutSession:
    """A session that a failed task blocks."""

    key: str
    blocked_by: str
    """The id of the task."""
    blocked_at: datetime
    length: int
    """Tasks that wait in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProblem:
    """One thing that is wrong, however many tasks it hits."""

    kind: Kind
    severity: Severity
    since_at: datetime
    subject: str = ""
    """What it is about: a gate, a lambda, a resource. Empty: several things."""
    key: str = ""
    """Tells problems of one kind and subject apart, such as the cause of dead letters."""
    lambdas: Mapping[str, int]
    """The lambdas that it hits, each with its tasks as far as they were counted."""
    lambda_count: int
    """With those whose names are not kept."""
    tasks: int = 0
    at_least: bool = False
    """There are more tasks, which were not counted."""
    hosts: Sequence[AboutHost] = ()
    host_count: int = 0
    holders: Sequence[AboutTask] = ()
    sessions: Sequence[AboutSession] = ()
    values: Mapping[str, str]
    """What its sentence needs beside these: whose gate, why, how many."""

    @property
    def fingerprint(self) -> str:
        """The same while it lasts, and when it comes back."""
        return fingerprint_of(self.kind, self.subject, self.key)

    @property
    def rank(self) -> tuple[int, int, int, datetime]:
        """The order of the board: the worst, then causes before what follows from them, then what hits most."""
        return -self.severity, _PLACES[self.kind], -self.tasks, self.since_at

    def concerns(self, lambda_name: str) -> bool:
        """Whether it hits this lambda."""
        pattern = self.values.get(PATTERN)
        return (
            lambda_name in self.lambdas
            or (pattern is not None and lambda_patterns.covers(pattern, lambda_name))
            or (self.kind is Kind.SLOTS_HELD and self.subject == lambda_name)
        )

    def is_about(self, host: str) -> bool:
        """Whether it is about this host, by its id or its name, or about tasks that it holds."""
        return any(host in (each.host_id, each.name) for each in self.hosts)

    def seen_by(self, scope: Scope | None) -> "FoundProblem | None":
        """Return what a caller may see of it, whose roles reach the lambdas of `scope` (None: all); None: nothing."""
        if scope is None:
            return self
        # of lambdas of which the caller sees some tasks only, nothing is counted
        lambdas = {
            name: tasks if scope.covers_all_of(name) else 0
            for name, tasks in self.lambdas.items()
            if scope.covers(name)
        }
        pattern = self.values.get(PATTERN)
        if not lambdas and (pattern is None or not _overlap(pattern, scope)):
            return None
        is_own = self.kind is not Kind.SLOTS_HELD or scope.covers_all_of(self.subject)
        return replace(
            self,
            subject=self.subject if is_own else "",
            lambdas=lambdas,
            lambda_count=len(lambdas),
            tasks=sum(lambdas.values()),
            holders=[each for each in self.holders if scope.covers_all_of(each.lambda_name)],
            sessions=self.sessions if scope.covers_all_of(self.subject) else (),
            values=self._values_seen_by(scope),
        )

    def _values_seen_by(self, scope: Scope) -> Mapping[str, str]:
        """Return the values, of which those that are about others are empty."""
        hidden = {_OF_ALL[self.kind]} if self.kind in _OF_ALL else set()
        if not scope.covers_all_of(self.subject):
            hidden.update(_OF_ALL_TASKS.get(self.kind, ()))
        return {name: "" if name in hidden else value for name, value in self.values.items()}

    def to_facts(self) -> dict[str, Any]:
        """Return what the store keeps of it as JSON."""
        return {
            "key": self.key,
            "lambdas": dict(self.lambdas),
            "lambda_count": self.lambda_count,
            "tasks": self.tasks,
            "at_least": self.at_least,
            "hosts": [
                [
                    each.host_id,
                    each.name,
                    each.service,
                    _text(each.reported_at),
                    None if each.clock_ahead is None else each.clock_ahead.total_seconds(),
                ]
                for each in self.hosts
            ],
            "host_count": self.host_count,
            "holders": [
                [
                    each.task_id,
                    each.lambda_name,
                    each.status,
                    _text(each.held_since_at),
                    each.holder,
                    each.units,
                ]
                for each in self.holders
            ],
            "sessions": [
                [each.key, each.blocked_by, _text(each.blocked_at), each.length] for each in self.sessions
            ],
            "values": dict(self.values),
        }

    @classmethod
    def from_facts(
        cls, kind: int, severity: int, subject: str, since_at: datetime, facts: Mapping[str, Any]
    ) -> Self | None:
        """Return it as it was kept; None: only a newer release knows its kind."""
        of_kind, how_bad = known(Kind, kind), known(Severity, severity)
        if of_kind is None or how_bad is None:
            return None
        return cls(
            kind=of_kind,
            severity=how_bad,
            since_at=since_at,
            subject=subject,
            key=facts["key"],
            lambdas=facts["lambdas"],
            lambda_count=facts["lambda_count"],
            tasks=facts["tasks"],
            at_least=facts["at_least"],
            hosts=[
                AboutHost(
                    host_id,
                    name,
                    service,
                    _instant(reported_at),
                    None if ahead is None else timedelta(seconds=ahead),
                )
                for host_id, name, service, reported_at, ahead in facts["hosts"]
            ],
            host_count=facts["host_count"],
            holders=[
                AboutTask(task_id, name, status, _instant(since), holder, units)
                for task_id, name, status, since, holder, units in facts["holders"]
            ],
            sessions=[
                AboutSession(key, blocked_by, datetime.fromisoformat(blocked_at), length)
                # a Frontend of the release before writes none
                for key, blocked_by, blocked_at, length in facts.get("sessions", ())
            ],
            values=facts["values"],
        )


def fingerprint_of(kind: Kind, subject: str, key: str = "") -> str:
    """Return what tells problems apart: of a kind, a subject, and what tells problems of both apart."""
    return hashlib.sha256(f"{kind.name}\0{subject}\0{key}".encode()).hexdigest()[:16]


def found(
    kind: Kind,
    severity: Severity,
    since_at: datetime,
    subject: str = "",
    key: str = "",
    *,
    lambdas: Mapping[str, int] | None = None,
    tasks: int | None = None,
    at_least: bool = False,
    hosts: Sequence[AboutHost] = (),
    holders: Iterable[AboutTask] = (),
    sessions: Sequence[AboutSession] = (),
    **values: object,
) -> FoundProblem:
    """Return a problem whose facts are bounded: names of queues become those of their lambdas, texts are cut."""
    of_lambdas: dict[str, int] = {}
    for name, count in (lambdas or {}).items():
        base = base_name(name)
        of_lambdas[base] = of_lambdas.get(base, 0) + count
    most = sorted(of_lambdas, key=lambda name: (-of_lambdas[name], name))[:MOST_LAMBDAS]
    return FoundProblem(
        kind=kind,
        severity=severity,
        since_at=since_at,
        subject=subject[:LONGEST_VALUE],
        key=key[:LONGEST_VALUE],
        lambdas={name: of_lambdas[name] for name in most},
        lambda_count=len(of_lambdas),
        tasks=sum(of_lambdas.values()) if tasks is None else tasks,
        at_least=at_least,
        hosts=hosts[:MOST_SHOWN],
        host_count=len(hosts),
        holders=[*islice(holders, MOST_SHOWN)],
        sessions=sessions[:MOST_SESSIONS],
        values={name: clean(str(value)) for name, value in values.items()},
    )


def clean(text: str) -> str:
    """Return a text that others wrote on one line, of characters that can be shown, and not longer than people read.

    >>> clean("deploy" + chr(27) + "[2J" + chr(10) + " of  ann")
    'deploy?[2J of ann'
    """
    line = " ".join(text[: 4 * LONGEST_VALUE].split())
    shown = "".join(each if each.isprintable() else "?" for each in line)
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[: LONGEST_VALUE - 1]}…"


def ranked(problems: Iterable[FoundProblem]) -> list[FoundProblem]:
    """Return problems in the order of the board."""
    return sorted(problems, key=lambda each: each.rank)


def _overlap(pattern: str, scope: Scope) -> bool:
    """Whether a pattern and the roles of a caller have lambdas in common."""
    return any(
        lambda_patterns.shared(pattern, each) is not None for each in (*scope.all_tasks, *scope.own_tasks)
    )


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
