"""An event as the callback that waited for it gets it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event that a callback waited for."""

    key: str
    value: Any
    # The principal that sent it; empty: nobody was asked who they are.
    sent_by: str
    sent_at: datetime
