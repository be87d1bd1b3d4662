"""Who makes a call."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a client service, a host, a person."""

    name: str
    expires_at: datetime | None = None
    """When what it showed is no longer valid; None: no time was said."""
