"""The activity of Duly: the number of tasks scheduled and ended, with the lateness of recent starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.transport.message_fields import view

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from duly_wire.v1 import inspection_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What happened until now, over all lambdas. The difference of two is what happened between them."""

    # By the store's clock.
    at: datetime
    # Tasks that were scheduled or redriven, and that ended, by Postgres's statistics: about a second late.
    scheduled: int
    ended: int
    # How many starts the lateness was found from, and how late they were; None: there were none.
    starts: int
    median_lateness: timedelta | None
    p99_lateness: timedelta | None

    @classmethod
    def from_proto(cls, activity: inspection_pb2.GetActivityResponse) -> Activity:
        """Return the view of what came over the wire."""
        return view(cls, activity)
