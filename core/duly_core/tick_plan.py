"""Decides which ticks of a time table fire now: by its catch-up and overlap policies, and its jitter. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from duly.enums import CatchUp, Overlap
from duly_core.ticks import last_before, ticks_from
from duly_core.time_table import ON_TIME, Rhythm, TickPolicy


@dataclass(frozen=True, slots=True)
class TableState:
    """What decides about a time table's ticks."""

    name: str
    rhythm: Rhythm
    policy: TickPolicy
    next_tick_at: datetime | None
    """The first tick that nothing was decided about yet."""
    buffered_tick_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TickPlan:
    """What becomes of the ticks that are due."""

    fire: tuple[datetime, ...]
    """In their order."""
    buffered: datetime | None
    next_tick_at: datetime | None
    cancel: bool = False
    """The running task is to be cancelled."""
    left_out: bool = False
    """Some ticks were missed, or overlapped, and do not fire."""


def fire_at(name: str, tick_at: datetime, jitter: timedelta) -> datetime:
    """Return when a tick fires: a part of the jitter later, the same whoever asks."""
    if not jitter:
        return tick_at
    digest = blake2b(f"{name} {tick_at.isoformat()}".encode(), digest_size=8).digest()
    return tick_at + jitter * (int.from_bytes(digest) / 2**64)


def plan_ticks(state: TableState, now: datetime, *, running: bool, most: int) -> TickPlan:
    """Decide about the ticks that are due at `now`, at most so many of them.

    `running`: the task of the last tick has not ended.
    """
    instants, next_tick_at, left_out = _due(state, now, most)
    plan = _overlapping(state, instants, next_tick_at, running=running)
    return TickPlan(plan.fire, plan.buffered, plan.next_tick_at, plan.cancel, plan.left_out or left_out)


def _due(state: TableState, now: datetime, most: int) -> tuple[list[datetime], datetime | None, bool]:
    """Return the ticks that may fire, the first that is not due, and whether some were missed for good."""
    if state.next_tick_at is None:
        return [], None, False
    policy = state.policy
    span = policy.catch_up_window if policy.catch_up is CatchUp.ALL else ON_TIME
    oldest = now - span - policy.jitter
    instants: list[datetime] = []
    next_tick_at = None
    for tick_at in ticks_from(state.rhythm, max(state.next_tick_at, oldest)):
        if fire_at(state.name, tick_at, policy.jitter) > now or len(instants) == most:
            next_tick_at = tick_at
            break
        instants.append(tick_at)
    missed = state.next_tick_at < oldest
    if missed and policy.catch_up is CatchUp.ONE and not instants:
        newest = last_before(state.rhythm, oldest, state.next_tick_at)
        instants = [newest] if newest is not None else []
    return instants, next_tick_at, missed


def _overlapping(
    state: TableState, instants: list[datetime], next_tick_at: datetime | None, *, running: bool
) -> TickPlan:
    overlap, buffered = state.policy.overlap, state.buffered_tick_at
    waiting = [buffered, *instants] if buffered is not None else instants
    if overlap is Overlap.ALLOW:
        return TickPlan(tuple(waiting), None, next_tick_at)
    if overlap is Overlap.CANCEL_RUNNING:
        newest = waiting[-1:]
        left_out = len(waiting) > 1
        if running:
            return TickPlan(
                (), newest[0] if newest else None, next_tick_at, cancel=bool(instants), left_out=left_out
            )
        return TickPlan(tuple(newest), None, next_tick_at, left_out=left_out)
    fire = () if running else tuple(waiting[:1])
    rest = waiting[len(fire) :]
    # what waits already stays, even if the policy was changed meanwhile
    keeps = overlap is Overlap.BUFFER_ONE or (buffered is not None and running)
    return TickPlan(fire, rest[0] if rest and keeps else None, next_tick_at, left_out=len(rest) > keeps)
