"""Who makes a call."""

from dataclasses import dataclass
from datetime import datetime

from duly_core.errors import UnauthenticatedError

BREAKER = "breaker"
"""Sets and removes the gates of breakers, in their owner column and in the audit log. Nobody else may have the name."""

PERSON = "oidc:"
"""Begins the names of people that an identity provider signed in. No token, certificate or other JWT may have such a name."""

GROUP = "group:"
"""Begins the principals of grants to groups of people. Nobody has such a name."""

LONGEST_NAME = 255
"""Bytes."""


def is_reserved(name: str) -> bool:
    """Whether a name is that of a part of Duly, a person or a group, which no token, certificate or JWT may have."""
    return name == BREAKER or name.startswith((PERSON, GROUP))


def check_not_reserved(name: str) -> None:
    """Let the name of a token, a certificate or a service's JWT pass.

    Raises:
        UnauthenticatedError: it is the name of a part of Duly, a person or a group.
    """
    if is_reserved(name):
        raise UnauthenticatedError(
            f"the name {name!r} is reserved for Duly itself, people or groups: give this caller another one"
        )


def group_principal(group: str) -> str:
    """Return the principal of grants to a group.

    >>> group_principal("sre")
    'group:sre'
    """
    return f"{GROUP}{group}"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a client service, a host, a person."""

    name: str
    expires_at: datetime | None = None
    """When what it showed is no longer valid; None: no time was said."""
    groups: tuple[str, ...] = ()
    """The groups of a person, sorted, without `group:`."""
