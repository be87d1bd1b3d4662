"""Says whether a call that schedules was accepted, and whose fault it is if not. Pure: no I/O."""

import enum

_SCHEDULES = frozenset({"Schedule", "ScheduleGraph"})
_OURS = frozenset(
    {"UNAVAILABLE", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "DATA_LOSS"}
)
"""The server did not serve what it had to."""
_GIVEN_UP = 1.0
"""Seconds. A caller that hangs up later had a reason: its deadline passed, as a rule, which a server sees as a cancelled call."""


class Verdict(enum.Enum):
    """What became of a call that schedules."""

    ACCEPTED = "accepted"
    """It was answered, each task for itself."""
    FAILED = "failed"
    """It had to be accepted, and was not."""
    REFUSED = "refused"
    """For its content, its caller, or the number of calls of this caller: it counts for nothing."""


def verdict_of(
    method: str, code: str, seconds: float, *, was_limited: bool, had_items_away: bool = False
) -> Verdict | None:
    """Return what became of a call; None: it does not schedule.

    Args:
        method: the RPC.
        code: the name of the status that it ended with.
        seconds: how long it took, without the time that it waited for other calls of its caller.
        was_limited: it was refused because its caller has more calls under way than one caller may have.
        had_items_away: the cell of a task in it did not answer.
    """
    if method not in _SCHEDULES:
        return None
    if code == "OK":
        return Verdict.FAILED if had_items_away else Verdict.ACCEPTED
    if code == "CANCELLED":
        return Verdict.FAILED if seconds >= _GIVEN_UP else Verdict.REFUSED
    return Verdict.FAILED if code in _OURS and not was_limited else Verdict.REFUSED
