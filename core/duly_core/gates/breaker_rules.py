"""Decides when a breaker opens, lets probes through, and closes. No I/O."""

import enum
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.config.durations import format_duration
from duly_core.process.newer_values import known


class State(enum.StrEnum):
    """Where a breaker stands, as the store spells it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(NamedTuple):
    """A breaker as the store has it, with the runs that count."""

    lambda_name: str
    failure_rate: float
    minimum: int
    count_window: timedelta
    pause: timedelta
    probes: int
    owner: str
    reason: str
    changed_at: datetime
    state: str
    state_since: datetime
    probed: int
    """While it is half open: how many tasks it let through."""
    read_at: datetime
    ended: int
    failed: int


class Verdict(NamedTuple):
    """What is to be done with a breaker."""

    state: State | None = None
    """The state that it moves to; None: it stays."""
    probes: int = 0
    """How many tasks it is to let through."""
    reason: str = ""


def judge(breaker: Breaker, *, has_gate: bool) -> Verdict:
    """Decide what becomes of a breaker.

    Args:
        breaker: its counts are those of the window while it is closed, otherwise those since its state began.
        has_gate: whether its gate is in force: an operator may have removed it.
    """
    if known(State, breaker.state) is None:
        return Verdict()
    if breaker.state == State.CLOSED:
        if breaker.ended >= breaker.minimum and _is_failing(breaker, breaker.ended):
            return Verdict(State.OPEN, reason=_counts(breaker))
        return Verdict()
    if not has_gate:
        return Verdict(State.CLOSED, reason="its gate was removed")
    if breaker.state == State.HALF_OPEN:
        return _judge_probes(breaker)
    if _has_waited(breaker):
        return Verdict(State.HALF_OPEN, breaker.probes, f"paused for {format_duration(breaker.pause)}")
    return Verdict()


def _judge_probes(breaker: Breaker) -> Verdict:
    if breaker.failed and _is_failing(breaker, breaker.probes):
        return Verdict(State.OPEN, reason=_counts(breaker))
    if breaker.ended >= breaker.probes:
        return Verdict(State.CLOSED, reason=_counts(breaker))
    if breaker.probed and _has_waited(breaker):
        # probes were cancelled, or take long: others are let through
        return Verdict(State.HALF_OPEN, breaker.probes, "its probes have not ended")
    # an operator may have lowered the number since
    return Verdict(probes=max(0, breaker.probes - breaker.probed))


def _has_waited(breaker: Breaker) -> bool:
    return breaker.read_at - breaker.state_since >= breaker.pause


def _is_failing(breaker: Breaker, of: int) -> bool:
    return breaker.failed >= breaker.failure_rate * of


def _counts(breaker: Breaker) -> str:
    return f"{breaker.failed} of {breaker.ended} runs failed"
