"""Grants: which role a principal has, and for which lambdas; and what follows from all of its grants."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from duly_core.access.roles import ALLOWED, OWN_TASKS_ONLY, Action, Role
from duly_core.lambdas import patterns as lambda_patterns
from duly_core.lambdas.names import LAMBDA_NAME, NAMESPACE_MARK, namespace_of
from duly_core.lambdas.patterns import EVERYTHING

MOST_GRANTS = 100
"""Of one principal in one namespace. Lists search for the lambdas of all patterns of their caller, and an operator of a
namespace may grant to anybody: without a bound it could make another's lists fail. Patterns cover many lambdas."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the lambdas of a pattern (lambda_patterns)."""

    principal: str
    role: Role
    pattern: str

    def covers(self, lambda_name: str) -> bool:
        """Whether the pattern has this lambda."""
        return lambda_patterns.covers(self.pattern, lambda_name)


@dataclass(frozen=True, slots=True)
class Scope:
    """The lambdas for which an action is allowed."""

    all_tasks: tuple[str, ...]
    """Patterns of lambdas whose tasks may all be reached."""
    own_tasks: tuple[str, ...]
    """Patterns of lambdas of which only tasks that the principal scheduled may be reached."""
    principal: str = ""

    @property
    def is_everything(self) -> bool:
        """Whether nothing has to be checked."""
        return EVERYTHING in self.all_tasks

    @property
    def is_empty(self) -> bool:
        """Whether the action is never allowed."""
        return not self.all_tasks and not self.own_tasks

    def covers(self, lambda_name: str) -> bool:
        """Whether the action is allowed for some tasks of this lambda."""
        return _matches(self.all_tasks, lambda_name) or _matches(self.own_tasks, lambda_name)

    def covers_all_of(self, lambda_name: str) -> bool:
        """Whether the action is allowed for all tasks of this lambda, and for what else belongs to it."""
        return _matches(self.all_tasks, lambda_name)

    def covers_all_that_match(self, pattern: str) -> bool:
        """Whether the action is allowed for each lambda that a pattern (a name, or a prefix and `*`) may have."""
        return any(lambda_patterns.covers_all_of(each, pattern) for each in self.all_tasks)

    def covers_some_of(self, namespace: str) -> bool:
        """Whether the action is allowed for some tasks of some lambda of a namespace, which has a name."""
        patterns = (*self.all_tasks, *self.own_tasks)
        return any(each == EVERYTHING or namespace_of(each) == namespace for each in patterns)

    @property
    def namespaces(self) -> list[str]:
        """The namespaces with names for all of whose tasks the action is allowed by a pattern of their own, sorted."""
        named = {namespace_of(each) for each in self.all_tasks} - {""}
        return sorted(each for each in named if self.covers_namespace(each))

    def covers_namespace(self, namespace: str) -> bool:
        """Whether the action is allowed for all tasks of a namespace; empty: of the default one."""
        return self.covers_all_that_match(lambda_patterns.pattern_of_namespace(namespace))

    def covers_event_key(self, namespace: str, key: str) -> bool:
        """Whether the action is allowed for a key of events: all of its namespace, or a pattern that covers the key as the name of a lambda."""
        if self.covers_namespace(namespace):
            return True
        name = f"{namespace}{NAMESPACE_MARK}{key}" if namespace else key
        # a slash in the key would pass for the end of another namespace
        return NAMESPACE_MARK not in key and self.covers(name)

    def reaches(self, lambda_name: str, scheduled_by: str | None) -> bool:
        """Whether the action is allowed for a task of this lambda, which that principal scheduled."""
        if self.covers_all_of(lambda_name):
            return True
        return self.is_own(scheduled_by) and _matches(self.own_tasks, lambda_name)

    def is_own(self, scheduled_by: str | None) -> bool:
        """Whether the caller scheduled what that principal scheduled."""
        return bool(scheduled_by) and scheduled_by == self.principal


def pattern_problem(pattern: str) -> str:
    """Return why no grant can have this pattern; empty: one can."""
    prefix = pattern.removesuffix(EVERYTHING)
    if prefix == pattern and not LAMBDA_NAME.fullmatch(prefix):
        return f"{pattern!r} is no lambda's name: write a name, a prefix and *, or *"
    if prefix != pattern and not LAMBDA_NAME.fullmatch(f"{prefix}a"):
        return f"{pattern!r} fits no lambda: write a name, a prefix and *, or *"
    return ""


class Access:
    """What one principal may do. Immutable; made again when its grants change."""

    def __init__(self, principal: str, grants: Sequence[Grant], groups: tuple[str, ...] = ()) -> None:
        self.principal = principal
        self.groups = groups
        """Of a person, as the identity provider names them."""
        self.roles = frozenset(grant.role for grant in grants)
        self._scopes = {action: _scope(principal, grants, action) for action in Action}

    @classmethod
    def unrestricted(cls) -> Self:
        """Return the access of everybody where nobody is asked who they are."""
        access = cls("", ())
        access._scopes = dict.fromkeys(Action, Scope((EVERYTHING,), ()))
        return access

    def scope(self, action: Action) -> Scope:
        """Return the lambdas for which an action is allowed."""
        return self._scopes[action]

    def may(self, action: Action, lambda_name: str) -> bool:
        """Whether an action is allowed for a lambda, or for some of its tasks."""
        return self._scopes[action].covers(lambda_name)


def together(own: Iterable[Grant], by_groups: Iterable[Grant]) -> list[Grant]:
    """Return grants of a person and of its groups: in each namespace the widest, MOST_GRANTS of them at most.

    Operators of a namespace may grant to any group. Without the bound, many groups would slow down a person's lists.
    """
    kept: dict[str, list[Grant]] = defaultdict(list)
    for grant in sorted({*own, *by_groups}, key=lambda each: (len(each.pattern), each.pattern, each.role)):
        others = kept[namespace_of(grant.pattern)]
        if len(others) < MOST_GRANTS and not any(
            each.role is grant.role and lambda_patterns.covers_all_of(each.pattern, grant.pattern)
            for each in others
        ):
            others.append(grant)
    return [grant for found in kept.values() for grant in found]


def _scope(principal: str, grants: Iterable[Grant], action: Action) -> Scope:
    covering = [grant for grant in grants if action in ALLOWED[grant.role]]
    own = {grant.pattern for grant in covering if grant.role in OWN_TASKS_ONLY}
    everyones = {grant.pattern for grant in covering if grant.role not in OWN_TASKS_ONLY}
    return Scope(_widest(everyones), _widest(own), principal)


def _widest(patterns: Collection[str]) -> tuple[str, ...]:
    """Leave out what another pattern covers: each costs every list of the principal."""
    return tuple(
        sorted(
            each
            for each in patterns
            if not any(other != each and lambda_patterns.covers_all_of(other, each) for other in patterns)
        )
    )


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(lambda_patterns.covers(pattern, name) for pattern in patterns)


UNRESTRICTED = Access.unrestricted()
