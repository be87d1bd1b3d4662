"""Decides which ticks of a time table fire now: by its catch-up and overlap policies, and its jitter. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from duly_core.time_tables.rhythm import last_before, ticks_from
from duly_core.time_tables.time_table import ON_TIME, Rhythm, TickPolicy
from duly_wire.enums import CatchUp, Overlap

_FEW = 3
"""Ticks that decide all, of those that must not overlap: one fires, one waits, and one more is left out."""
_LONGEST_TAIL = 1_000
"""Ticks whose jitter is asked, of those that must not overlap, for each time table and round."""


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
    computed: int = 0
    """Ticks that were computed for it, about."""


def fire_at(name: str, tick_at: datetime, jitter: timedelta) -> datetime:
    """Return when a tick fires: a part of the jitter later, the same whoever asks."""
    if not jitter:
        return tick_at
    digest = blake2b(f"{name} {tick_at.isoformat()}".encode(), digest_size=8).digest()
    return tick_at + jitter * (int.from_bytes(digest) / 2**64)


def plan_ticks(state: TableState, now: datetime, *, running: bool, most: int) -> TickPlan:
    """Decide about the ticks that are due at `now`; at most so many of them fire.

    `running`: the task of the last tick has not ended.
    """
    due = _due(state, now, most)
    return _overlapping(state, due, running=running)


@dataclass(slots=True)
class _Due:
    """The ticks that are due."""

    instants: list[datetime]
    """Those that may fire. Of those that must not overlap, only the first and the newest."""
    next_tick_at: datetime | None
    """The first that is not due."""
    missed: bool = False
    """Some were missed for good."""
    computed: int = 0


def _due(state: TableState, now: datetime, most: int) -> _Due:
    if state.next_tick_at is None:
        return _Due([], None)
    policy = state.policy
    span = policy.catch_up_window if policy.catch_up is CatchUp.ALL else ON_TIME
    oldest = now - span - policy.jitter
    allows = policy.overlap is Overlap.ALLOW
    due = _read(state, now, max(state.next_tick_at, oldest), most if allows else _FEW)
    if not allows and len(due.instants) == _FEW:
        due = _jump(state, now, due)
    due.missed = state.next_tick_at < oldest
    if due.missed and policy.catch_up is CatchUp.ONE and not due.instants:
        newest = last_before(state.rhythm, oldest, state.next_tick_at)
        due.instants = [newest] if newest is not None else []
    return due


def _read(state: TableState, now: datetime, start: datetime, most: int) -> _Due:
    """Return the ticks from `start` on that are due, at most so many."""
    instants: list[datetime] = []
    next_tick_at = None
    for tick_at in ticks_from(state.rhythm, start):
        if fire_at(state.name, tick_at, state.policy.jitter) > now or len(instants) == most:
            next_tick_at = tick_at
            break
        instants.append(tick_at)
    return _Due(instants, next_tick_at, computed=len(instants) + (next_tick_at is not None))


def _jump(state: TableState, now: datetime, first: _Due) -> _Due:
    """Add the newest tick that is due to the first, without those in between."""
    if first.next_tick_at is None:
        return first
    whatever_its_jitter = now - state.policy.jitter
    start = max(first.next_tick_at, whatever_its_jitter)
    rest = _read(state, now, start, _LONGEST_TAIL)
    newest = rest.instants[-1] if rest.instants else last_before(state.rhythm, start, first.next_tick_at)
    instants = first.instants if newest is None else [*first.instants, newest]
    return _Due(instants, rest.next_tick_at, computed=first.computed + rest.computed)


def _overlapping(state: TableState, due: _Due, *, running: bool) -> TickPlan:
    overlap, buffered = state.policy.overlap, state.buffered_tick_at
    next_tick_at, missed, computed = due.next_tick_at, due.missed, due.computed
    waiting = [buffered, *due.instants] if buffered is not None else due.instants
    if overlap is Overlap.ALLOW:
        return TickPlan(tuple(waiting), None, next_tick_at, left_out=missed, computed=computed)
    if overlap is Overlap.CANCEL_RUNNING:
        newest = waiting[-1:]
        left_out = missed or len(waiting) > 1
        if running:
            kept = newest[0] if newest else None
            return TickPlan((), kept, next_tick_at, bool(due.instants), left_out, computed)
        return TickPlan(tuple(newest), None, next_tick_at, left_out=left_out, computed=computed)
    fire = () if running else tuple(waiting[:1])
    rest = waiting[len(fire) :]
    # what waits already stays, even if the policy was changed meanwhile
    keeps = overlap is Overlap.BUFFER_ONE or (buffered is not None and running)
    left_out = missed or len(rest) > keeps
    return TickPlan(
        fire, rest[0] if rest and keeps else None, next_tick_at, left_out=left_out, computed=computed
    )
