"""Addresses of one use, by which somebody without a login sends an event."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class EventAddress:
    """An address of one use. Its holder sends one event to its key: a person by a button, a program by a POST of JSON."""

    token: str = field(repr=False)
    """A secret, which Duly does not keep."""
    url: str = field(repr=False)
    """The address, with the token; empty: the Frontend has no `frontend.public_url`."""
    expires_at: datetime
