"""Roles, and the actions that each allows. Pure data."""

import enum
from collections.abc import Mapping


class Action(enum.StrEnum):
    """What a call does, as far as permission is concerned."""

    SCHEDULE = "schedule"
    """Schedule tasks, graphs and ticks of a lambda."""
    SEND = "send events for"
    """Send events to the keys of a lambda's namespace."""
    READ = "read"
    """See tasks, without payloads, results and tracebacks."""
    READ_PAYLOAD = "read payloads"
    """See payloads, results and tracebacks of tasks."""
    CHANGE = "change"
    """Cancel and change tasks that have not ended."""
    REDRIVE = "redrive"
    """Redrive, purge and unblock what ended."""
    REGISTER = "register"
    """Declare a lambda: its policy, its time tables; delete it."""
    RUN = "run"
    """Claim tasks of a lambda, keep them with heartbeats, write their results."""
    OPERATE = "operate"
    """Change what holds for everybody: settings, resources, quotas, namespaces."""
    GRANT = "grant"
    """Give and take roles, and make tokens."""
    AUDIT = "audit"
    """Read the audit log."""


class Role(enum.StrEnum):
    """What a principal is to the lambdas that a grant names."""

    CLIENT = "client"
    """Schedules tasks; sees and changes those that it scheduled itself."""
    OWNER = "owner"
    """Declares the lambda; sees, changes and redrives all its tasks."""
    HOST = "host"
    """Runs the lambda's tasks."""
    OPERATOR = "operator"
    """Runs Duly: may do all but run tasks, of the lambdas that the grant names."""
    AUDITOR = "auditor"
    """Sees everything but payloads, changes nothing."""


ALLOWED: Mapping[Role, frozenset[Action]] = {
    Role.CLIENT: frozenset({Action.SCHEDULE, Action.SEND, Action.READ, Action.READ_PAYLOAD, Action.CHANGE}),
    Role.OWNER: frozenset(
        {
            Action.SCHEDULE,
            Action.SEND,
            Action.READ,
            Action.READ_PAYLOAD,
            Action.CHANGE,
            Action.REDRIVE,
            Action.REGISTER,
        }
    ),
    Role.HOST: frozenset({Action.RUN}),
    Role.OPERATOR: frozenset(Action) - {Action.RUN, Action.SCHEDULE, Action.REGISTER},
    Role.AUDITOR: frozenset({Action.READ, Action.AUDIT}),
}

OWN_TASKS_ONLY = frozenset({Role.CLIENT})
"""Roles that reach only the tasks that their principal scheduled."""

_FROM_LEAST = (Role.CLIENT, Role.AUDITOR, Role.HOST, Role.OWNER, Role.OPERATOR)


def least_role(action: Action, *, of_all_tasks: bool = False) -> Role:
    """Return the role with the fewest rights that allows an action: for some tasks of a lambda, or for all of them.

    >>> least_role(Action.SCHEDULE), least_role(Action.READ, of_all_tasks=True)
    (<Role.CLIENT: 'client'>, <Role.AUDITOR: 'auditor'>)
    """
    return next(
        role
        for role in _FROM_LEAST
        if action in ALLOWED[role] and not (of_all_tasks and role in OWN_TASKS_ONLY)
    )
