"""Who makes a call."""

from dataclasses import dataclass
from datetime import datetime

BREAKER = "breaker"
"""Sets and removes the gates of breakers, in their owner column and in the audit log. Nobody else may have the name."""


def is_reserved(name: str) -> bool:
    """Whether a name is that of a part of Duly, which no caller may have."""
    return name == BREAKER


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a client service, a host, a person."""

    name: str
    expires_at: datetime | None = None
    """When what it showed is no longer valid; None: no time was said."""
