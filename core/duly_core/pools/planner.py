"""How many workers a pool needs, and why. No I/O: the same inputs give the same plan.

Needs are counted in slots. A task needs a whole slot, or the part of one that it uses within the target age: in 30 s one slot
runs 25 tasks of 1.2 s. The largest of these needs counts:

- what is due and runs now, so that nothing waits longer than the target age;
- what arrives, by Little's law: tasks a second times the time of a run, with a reserve of its square root;
- what is known to be due soon: it is prepared for, so that new workers are ready when the tasks are due.

Fewer workers are planned only when fewer were enough for the whole idle time, as in Kubernetes's stabilization window.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from duly_core.pools.rules import Pool
from duly_core.pools.spin_up import SpinUp

UNKNOWN_RUN_TIME = timedelta(seconds=1)
"""Assumed of a lambda until runs of it were measured."""
ROUND = timedelta(seconds=2)
"""Between two plans."""
LEAD_RESERVE = 1.25
"""Workers are asked for this much of their spin-up time before they are needed."""
LONGEST_LOOK_AHEAD = timedelta(minutes=15)
"""How far due times are looked at, at most."""
BUDGET_STEP = timedelta(minutes=5)
"""Near the end of a budget no more workers run than it pays for during this time."""
_MOST_RECENT = 32
"""Needs that are remembered: beyond that, neighbours are put together."""
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class RunTime:
    """How long the runs of a lambda took lately."""

    mean: timedelta
    p50: timedelta
    p95: timedelta
    runs: int


@dataclass(frozen=True, slots=True)
class Due:
    """Tasks that are due later."""

    at: datetime
    tasks: int


@dataclass(frozen=True, slots=True)
class LambdaLoad:
    """What there is to do of a lambda."""

    name: str
    ready: int = 0
    """Due, and taken by nobody; counted up to a limit."""
    oldest_age: timedelta = timedelta()
    """How long the first of them has been due."""
    held: int = 0
    """Taken by a worker."""
    arrivals: float = 0.0
    """A second, for now, lately."""
    run_time: RunTime | None = None
    """None: not measured."""
    due: tuple[Due, ...] = ()
    """By time."""

    @property
    def run_seconds(self) -> float:
        """The mean time of a run."""
        return (self.run_time.mean if self.run_time else UNKNOWN_RUN_TIME).total_seconds()


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a pool."""

    alive: int = 0
    """That take tasks."""
    starting: int = 0
    """That were asked for, and have not reported yet."""
    draining: int = 0
    slots: int | None = None
    """Of one, as they report; None: none does."""

    @property
    def coming(self) -> int:
        """Those that take tasks now or soon."""
        return self.alive + self.starting


@dataclass(frozen=True, slots=True)
class Recent:
    """How many workers were needed lately."""

    until: datetime
    """When so many were needed last."""
    workers: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a plan needs of those before it."""

    planned_at: datetime | None = None
    desired: int = 0
    recent: tuple[Recent, ...] = ()
    """The newest last, and the larger before the smaller."""
    spin_up: SpinUp = field(default_factory=SpinUp)
    used: timedelta = timedelta()
    """Worker time in the day of `planned_at`."""

    def without_missing(self) -> "Memory":
        """Return it as if workers that have not come had used no time: the driver did not start them."""
        if self.planned_at is None:
            return self
        unused = sum((self.planned_at - at for at in self.spin_up.asked), timedelta())
        return replace(self, used=max(timedelta(), self.used - unused))


@dataclass(frozen=True, slots=True)
class Plan:
    """How many workers a pool is to have."""

    desired: int
    reasons: tuple[str, ...]
    """The first says what decides."""
    memory: Memory
    needed: int
    """Before the minimum, the maximum, the budget and the idle time."""
    announced: "Announced | None" = None


@dataclass(frozen=True, slots=True)
class Announced:
    """More workers that will be needed, and from when on they are asked for."""

    start_at: datetime
    workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Need:
    """Workers that something needs, and what that is."""

    workers: int
    reason: Callable[[], str]
    """There may be as many needs as due times: the reason is put into words only for those that count."""
    start_at: datetime | None = None
    """From then on; None: now."""


def look_ahead(pool: Pool, spin_up: SpinUp) -> timedelta:
    """Return how far ahead due times count for a pool."""
    return min(LONGEST_LOOK_AHEAD, _lead(spin_up) + pool.idle_time + pool.target_age + timedelta(minutes=1))


def plan(
    pool: Pool,
    loads: Sequence[LambdaLoad],
    workers: Workers,
    memory: Memory,
    now: datetime,
    away: Sequence[str] = (),
) -> Plan:
    """Return how many workers a pool is to have, why, and what the next plan has to know.

    Args:
        pool: its bounds and targets.
        loads: what there is to do, as far as it is known.
        workers: those that it has.
        memory: of the last plan.
        now: the store's clock, by which all other times are.
        away: the names of cells that may have tasks of the pool, and do not answer: no fewer workers are planned.
    """
    slots = max(1, workers.slots or pool.slots)
    needs = [
        need
        for need in (
            _of_arrivals(loads, slots),
            _of_backlog(pool, loads, slots, workers, memory.spin_up),
            *_of_due(pool, loads, slots, memory.spin_up),
        )
        if need.workers
    ]
    at_once = [need for need in needs if need.start_at is None or need.start_at <= now]
    later = [need for need in needs if need.start_at is not None and need.start_at > now]
    decisive = max(
        at_once,
        key=lambda need: need.workers,
        default=_Need(0, lambda: "nothing is due, and nothing arrives"),
    )
    needed = decisive.workers
    used = _used(memory, workers, now)
    recent = _remember(_remembered(memory, workers, now), Recent(now, needed), now - pool.idle_time)
    reasons = [decisive.reason()]
    kept = max(each.workers for each in recent)
    if kept > needed:
        since = next(each for each in recent if each.workers == kept)
        left = since.until + pool.idle_time - now
        verb = "was" if kept == 1 else "were"
        ago = _seconds(now - since.until)
        reasons.insert(0, f"{_counted(kept, 'worker')} {verb} needed {ago} ago: fewer in {_seconds(left)}")
    soon = max(
        (need for need in later if need.start_at and need.start_at - now <= pool.idle_time),
        key=lambda need: need.workers,
        default=None,
    )
    have = min(memory.desired, workers.coming)
    if soon is not None and min(soon.workers, have) > kept:
        kept = min(soon.workers, have)
        reasons.insert(0, f"{_counted(kept, 'worker')} {'is' if kept == 1 else 'are'} kept: {soon.reason()}")
    if away and memory.desired > kept:
        kept = memory.desired
        cells = f"cell {away[0]} does" if len(away) == 1 else f"cells {', '.join(away)} do"
        reasons.insert(
            0,
            f"{_counted(kept, 'worker')} {'is' if kept == 1 else 'are'} kept: {cells} not answer, and may have tasks",
        )
    desired, limits = _bounded(pool, kept, used)
    reasons[:0] = limits
    return Plan(
        desired,
        tuple(reasons),
        Memory(now, desired, recent, memory.spin_up, used),
        needed,
        _announced(later, desired, pool),
    )


def _lead(spin_up: SpinUp) -> timedelta:
    """How long before they are needed workers are asked for."""
    return spin_up.expected * LEAD_RESERVE + ROUND


def _share(load: LambdaLoad, within: timedelta) -> float:
    """How much of a slot each of many tasks needs, for all of them to start within a time."""
    return min(1.0, load.run_seconds / max(within.total_seconds(), _EPSILON))


def _workers(slots_needed: float, slots: int) -> int:
    return math.ceil(slots_needed / slots - _EPSILON)


def _of_arrivals(loads: Sequence[LambdaLoad], slots: int) -> _Need:
    busy = sum(load.arrivals * load.run_seconds for load in loads)
    workers = _workers(busy + math.sqrt(busy), slots) if busy else 0
    rate = sum(load.arrivals for load in loads)
    most = max(loads, key=lambda load: load.arrivals * load.run_seconds, default=LambdaLoad(""))
    return _Need(
        workers,
        lambda: (
            f"{_number(rate)} tasks a second arrive{_named(loads, most, 'arrivals')}, {_runs(most)}: they keep {_number(busy)} slots busy, "
            f"so {_counted(workers, 'worker')} with a reserve, of {_counted(slots, 'slot')} each"
        ),
    )


def _of_backlog(
    pool: Pool, loads: Sequence[LambdaLoad], slots: int, workers: Workers, spin_up: SpinUp
) -> _Need:
    ready = sum(load.ready for load in loads)
    held = sum(load.held for load in loads)
    age = max((load.oldest_age for load in loads if load.ready), default=timedelta())
    left = max(pool.target_age - age, pool.target_age / 2)
    waiting = sum(load.ready * _share(load, left) for load in loads)
    running = sum(load.held * _share(load, pool.target_age) for load in loads)
    needed = _workers(waiting + running, slots)
    most = max(loads, key=lambda load: load.ready * load.run_seconds, default=LambdaLoad(""))
    if not ready:
        return _Need(needed, lambda: f"{_counted(held, 'task')} {'runs' if held == 1 else 'run'}")
    work = sum(load.ready * load.run_seconds for load in loads)
    if workers.alive and needed > workers.coming:
        cleared = timedelta(seconds=work / (workers.alive * slots))
        if cleared <= spin_up.expected:
            return _Need(
                min(needed, workers.coming),
                lambda: (
                    f"{_counted(ready, 'task')} {'waits' if ready == 1 else 'wait'}; the workers that run start "
                    f"{'it' if ready == 1 else 'them'} within {_seconds(cleared)}, before a new one "
                    f"could ({_seconds(spin_up.expected)})"
                ),
            )
    return _Need(
        needed,
        lambda: (
            f"{_counted(ready, 'task')} {'is' if ready == 1 else 'are'} due and {'waits' if ready == 1 else 'wait'}"
            f"{_named(loads, most, 'ready')}, the oldest for {_seconds(age)}; {_runs(most)}; {held:,} run: "
            f"{_counted(needed, 'worker')} of {_counted(slots, 'slot')} start all within {_seconds(left)}"
        ),
    )


def _of_due(pool: Pool, loads: Sequence[LambdaLoad], slots: int, spin_up: SpinUp) -> Iterator[_Need]:
    """Yield what each due time needs, with what is due in the target age from then on."""
    lead = _lead(spin_up)
    dues = sorted(
        (
            (due.at, due.tasks, due.tasks * _share(load, pool.target_age), load)
            for load in loads
            for due in load.due
        ),
        key=lambda each: each[0],
    )

    def reason(first: int, end: int, tasks: int, share: float) -> str:
        at = dues[first][0]
        most = max(dues[first:end], key=lambda each: each[2])[3]
        spin = (
            _seconds(spin_up.expected)
            if spin_up.is_measured
            else f"about {_seconds(spin_up.expected)} (not measured yet)"
        )
        return (
            f"{_counted(tasks, 'task')} {'is' if tasks == 1 else 'are'} due at {at:%H:%M:%S} UTC{_named(loads, most, 'due')}; {_runs(most)}; "
            f"{_counted(_workers(share, 1), 'slot')}: {_counted(_workers(share, slots), 'worker')} by {at:%H:%M:%S}, asked for at "
            f"{at - lead:%H:%M:%S}, for a worker needs {spin} to start"
        )

    end = 0
    tasks, share = 0, 0.0
    for first, (at, _, _, _) in enumerate(dues):
        while end < len(dues) and dues[end][0] < at + pool.target_age:
            tasks, share = tasks + dues[end][1], share + dues[end][2]
            end += 1
        yield _Need(_workers(share, slots), partial(reason, first, end, tasks, share), at - lead)
        tasks, share = tasks - dues[first][1], share - dues[first][2]


def _remembered(memory: Memory, workers: Workers, now: datetime) -> tuple[Recent, ...]:
    """What was needed before; of a pool that nobody planned for yet, what runs was."""
    if memory.planned_at is None:
        return (Recent(now, workers.alive),) if workers.alive else ()
    return memory.recent


def _remember(recent: Iterable[Recent], newest: Recent, oldest: datetime) -> tuple[Recent, ...]:
    """Return what matters of the needs since a time: a smaller one before a larger one never does."""
    kept = [each for each in recent if each.until > oldest and each.workers > newest.workers]
    while len(kept) >= _MOST_RECENT:  # of two neighbours, the larger need for the longer time
        kept[0:2] = [replace(kept[1], workers=kept[0].workers)]
    return (*kept, newest)


def _used(memory: Memory, workers: Workers, now: datetime) -> timedelta:
    """Worker time of the day of `now`, with what passed since the last plan."""
    if memory.planned_at is None or memory.planned_at.date() != now.date():
        return timedelta()
    running = workers.alive + workers.draining + workers.starting
    return memory.used + max(timedelta(), now - memory.planned_at) * running


def _bounded(pool: Pool, workers: int, used: timedelta) -> tuple[int, list[str]]:
    """Return a number within the limits of a pool, and the limits that changed it."""
    reasons = []
    if workers > pool.maximum:
        reasons.append(f"no more than the maximum of {pool.maximum}: {workers} would be needed")
        workers = pool.maximum
    if pool.budget is not None:
        payable = max(0, math.floor((pool.budget - used) / BUDGET_STEP))
        if workers > max(payable, pool.minimum):
            workers = max(payable, pool.minimum)
            reasons.insert(
                0,
                f"the budget holds it to {_counted(workers, 'worker')}: {_hours(used)} of {_hours(pool.budget)} worker hours of "
                "this day (UTC) are used",
            )
    if workers < pool.minimum:
        reasons.insert(0, f"no fewer than the minimum of {pool.minimum}")
        workers = pool.minimum
    return workers, reasons


def _announced(later: Iterable[_Need], desired: int, pool: Pool) -> Announced | None:
    """Return the first time at which more workers will be asked for."""
    more = [need for need in later if min(need.workers, pool.maximum) > desired]
    first = min(more, key=lambda need: (need.start_at, -need.workers), default=None)
    if first is None or first.start_at is None:
        return None
    return Announced(first.start_at, min(first.workers, pool.maximum), first.reason())


def _runs(load: LambdaLoad) -> str:
    if load.run_time is None:
        return f"runs are not measured yet, and taken for {_seconds(UNKNOWN_RUN_TIME)}"
    return f"each runs {_seconds(load.run_time.mean)}"


def _named(loads: Sequence[LambdaLoad], most: LambdaLoad, field_name: str) -> str:
    """Name the lambda of most of the work, if it is not the only one."""
    having = [load for load in loads if getattr(load, field_name)]
    return f" ({'most of' if len(having) > 1 else 'of'} {most.name})"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.2f}"
