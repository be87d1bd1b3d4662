"""How many of each part a load needs, by the fitted model. Pure: nothing is read or measured here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from duly_cli.capacity.model import (
    EXECUTOR,
    FRONTEND,
    HSC,
    OF_A_HOST,
    POSTGRES,
    STORE_CONSUMER,
    Mix,
    Model,
    cost_of,
    on_curve,
    terms,
)

MOST_CELLS = 1_000
MOST_PROCESSES = 1_000_000
_MOST = 1e18
"""Of each number that is given: products of them stay numbers."""
_US = 1e-6
_CONNECTIONS = {FRONTEND: 15, HSC: 11, STORE_CONSUMER: 10}
"""To Postgres, of each, with its usual settings, and one more while it starts: docs/operators/postgres.md has the table."""
_REPORT_CORES = 0.00037
"""Of a Frontend, for the reports of one host: `python -m benchmarks.scale`, docs/performance.md."""
_SPARE_CONNECTIONS = 10
"""For people, monitoring and Postgres itself."""


class CapacityError(ValueError):
    """A load that no number of parts carries, or a value that means nothing; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of Duly."""

    tasks_per_second: float
    """At the peak: parts are sized for it."""
    mean_tasks_per_second: float
    """Over days: what is kept, and what is paid by use."""
    run_time: timedelta = timedelta(milliseconds=200)
    """Of a callback."""
    callback_cpu: timedelta = timedelta()
    """CPU of a callback. Duly's own CPU is known, this is not."""
    retention: timedelta = timedelta(days=7)
    """How long ended tasks are kept: `store.retention`."""
    mix: Mix = field(default_factory=Mix)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large parts may be, and how busy."""

    postgres_cores: int = 16
    """The largest Postgres that you run: beyond it there is another cell."""
    host_cores: int = 4
    slots: int = 64
    """Tasks that a host runs at a time."""
    busy: float = 0.6
    """Share of a core, or of a wall, that is used at the peak; the rest is for bursts, lost parts, and what is not counted."""
    busy_slots: float = 0.7
    least: int = 2
    """Of Frontends, Store Consumers and HSCs of a cell, and of hosts: one may fail."""
    heartbeat_period: timedelta = timedelta(seconds=15)
    """`timing.heartbeat_period`."""
    wal_bytes_per_s: float = 125 * 2**20
    """That the volume of one Postgres writes."""
    commits_per_s: float = 16_000
    """That the volume of one Postgres makes durable: a write each, if none share one."""
    disk_bytes: float = 64 * 2**40
    """Of the volume of one Postgres: the largest gp3 volume."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Something of one Postgres that ends: what is used of it, and what there is."""

    name: str
    expected: float
    """Used, if calls share statements as they did in the measurement."""
    used: float
    """At most: each call is a statement of its own, and each commit a write. Cells are as many as this needs."""
    there_is: float
    unit: str

    @property
    def share(self) -> float:
        """Return the part of it that is used at most."""
        return self.used / self.there_is


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load needs. Servers, hosts, slots and disk are of all cells together."""

    cells: int
    postgres_cores: float
    """That each cell uses at the peak, if calls share statements as they did in the measurement."""
    postgres_cores_at_most: float
    """The same, if each call is a statement of its own: how many share one depends on the machines. Sizes are for this."""
    postgres_vcpus: int
    """That each cell needs, so that it is not busier than allowed."""
    walls: tuple[Wall, ...]
    """Of one cell, the nearest first."""
    wal_bytes_per_s: float
    """Of each cell; the next four, too."""
    wal_bytes_per_s_at_most: float
    transactions_per_s: float
    transactions_per_s_at_most: float
    connections: int
    disk_bytes: float
    """Ended tasks that are kept, with their payloads and indexes."""
    kept_tasks: float
    frontends: int
    store_consumers: int
    hscs: int
    hosts: int
    slots: int
    """By Little's law: as many tasks run at a time as start in a second, multiplied by their run time."""
    executors_per_host: int
    cpu_us: dict[str, float]
    """By process, of a task."""
    tasks_per_statement: float
    """How many tasks share a claim, on average."""
    is_beyond_measured: bool
    """Whether a Postgres is larger than the one that was measured, so that its size is extrapolated."""


def check(load: Load, limits: Limits) -> None:
    """Refuse what means nothing.

    Raises:
        CapacityError: a value is not positive or too large, or a share is not from 0 to 1.
    """
    mix = load.mix
    positive = {
        "tasks a second": load.tasks_per_second,
        "tasks a second on average": load.mean_tasks_per_second,
        "the run time": load.run_time.total_seconds(),
        "the retention": load.retention.total_seconds(),
        "cores of Postgres": limits.postgres_cores,
        "cores of a host": limits.host_cores,
        "slots of a host": limits.slots,
        "what a volume writes of WAL": limits.wal_bytes_per_s,
        "commits a second of a volume": limits.commits_per_s,
        "the disk of a Postgres": limits.disk_bytes,
    }
    for name, value in positive.items():
        if not 0 < value <= _MOST:
            raise CapacityError(f"{name} must be more than 0 and at most {_MOST:g}, not {value:g}")
    if load.mean_tasks_per_second > load.tasks_per_second:
        raise CapacityError(
            f"the average of {load.mean_tasks_per_second:g} tasks a second is above the peak of {load.tasks_per_second:g}"
        )
    if load.callback_cpu > load.run_time:
        raise CapacityError("a callback cannot use more CPU than its run time: it is one thread")
    if not (math.isfinite(mix.tasks_per_call) and mix.tasks_per_call >= 1):
        raise CapacityError(f"a call has at least 1 task, not {mix.tasks_per_call:g}")
    for name, share in {
        "scheduled ahead": mix.ahead,
        "in sessions": mix.in_sessions,
        "with resources": mix.with_resources,
    }.items():
        if not 0 <= share <= 1:
            raise CapacityError(f"the share of tasks {name} is from 0 to 1, not {share:g}")
    for name, share in {"busy": limits.busy, "busy_slots": limits.busy_slots}.items():
        if not 0 < share <= 1:
            raise CapacityError(f"{name} is a share above 0, at most 1, not {share:g}")


def plan(load: Load, limits: Limits, model: Model) -> Plan:
    """Return what the load needs: the fewest cells, and the fewest processes, that are not too busy.

    Raises:
        CapacityError: a value means nothing, or no number of cells carries the load.
    """
    check(load, limits)
    cells = fewest(1, lambda number: _carries(_with_cells(load, limits, model, number), limits), MOST_CELLS)
    return _with_cells(load, limits, model, cells)


def _carries(found: Plan, limits: Limits) -> bool:
    return all(wall.share <= limits.busy for wall in found.walls)


def _with_cells(load: Load, limits: Limits, model: Model, cells: int) -> Plan:
    """Each cell has servers of its own, which make statements of its tasks alone; hosts work for all cells."""
    mix, rate = load.mix, load.tasks_per_second / cells
    beats = rate * (load.run_time // limits.heartbeat_period)
    hosts = _hosts(load, limits, model)

    def values_with(frontends: float, hscs: float) -> dict[str, float]:
        schedule, run = model.schedule_groups_of(mix, rate / frontends), model.run_groups_of(mix, rate / hscs)
        return terms(mix, schedule, run)

    def cores(process: str, number: float, values: Mapping[str, float]) -> float:
        """Cores that each of so many processes of a cell uses."""
        work = rate * cost_of(model.cpu_us[process], values) + beats * model.heartbeat_us[process]
        reports = hosts.number / cells * _REPORT_CORES if process == FRONTEND else 0.0
        return model.idle_cores[process] + (work * _US + reports) / number

    def enough(process: str) -> int:
        return fewest(
            limits.least, lambda number: cores(process, number, values_with(number, number)) <= limits.busy
        )

    frontends, hscs, store_consumers = enough(FRONTEND), enough(HSC), enough(STORE_CONSUMER)
    values = values_with(frontends, hscs)
    # how many calls share a statement is a matter of latency, so no wall relies on it
    alone = {**values, "schedule_group": values["call"]}
    used, at_most = (cores(POSTGRES, 1, each) for each in (values, alone))
    wal, wal_at_most = (rate * model.wal_of(mix, each) for each in (values, alone))
    commits, commits_at_most = (rate * cost_of(model.transactions, each) for each in (values, alone))
    kept = load.mean_tasks_per_second * load.retention.total_seconds()
    disk = kept * on_curve(model.kept_bytes, mix.payload)
    walls = (
        Wall("Postgres CPU", used, at_most, limits.postgres_cores, "cores"),
        Wall("WAL", wal, wal_at_most, limits.wal_bytes_per_s, "bytes a second"),
        Wall("commits", commits, commits_at_most, limits.commits_per_s, "a second"),
        Wall("disk", disk / cells, disk / cells, limits.disk_bytes, "bytes"),
    )
    return Plan(
        cells=cells,
        postgres_cores=used,
        postgres_cores_at_most=at_most,
        postgres_vcpus=math.ceil(at_most / limits.busy),
        walls=tuple(sorted(walls, key=lambda wall: -wall.share)),
        wal_bytes_per_s=wal,
        wal_bytes_per_s_at_most=wal_at_most,
        transactions_per_s=commits,
        transactions_per_s_at_most=commits_at_most,
        connections=_SPARE_CONNECTIONS
        + _CONNECTIONS[FRONTEND] * frontends
        + _CONNECTIONS[HSC] * hscs
        + _CONNECTIONS[STORE_CONSUMER] * store_consumers,
        disk_bytes=disk,
        kept_tasks=kept,
        frontends=frontends * cells,
        store_consumers=store_consumers * cells,
        hscs=hscs * cells,
        hosts=hosts.number,
        slots=hosts.slots,
        executors_per_host=hosts.executors,
        cpu_us={
            name: cost_of(cost, hosts.values if name in OF_A_HOST else values)
            for name, cost in model.cpu_us.items()
        },
        tasks_per_statement=1 / values["run_group"],
        is_beyond_measured=at_most / limits.busy > float(model.measured["cores"]),
    )


class _Hosts(NamedTuple):
    number: int
    slots: int
    """Of all together."""
    executors: int
    """Of each."""
    values: dict[str, float]
    """Of the terms."""


def _hosts(load: Load, limits: Limits, model: Model) -> _Hosts:
    """Return as many as have enough slots and enough cores."""
    rate, beats = load.tasks_per_second, load.run_time // limits.heartbeat_period
    slots = math.ceil(rate * load.run_time.total_seconds() / limits.busy_slots)

    def values_with(hosts: int) -> dict[str, float]:
        return terms(load.mix, 0.0, model.run_groups_of(load.mix, rate / hosts))

    def cores(process: str, hosts: int) -> float:
        a_task = cost_of(model.cpu_us[process], values_with(hosts)) + beats * model.heartbeat_us[process]
        return model.idle_cores[process] + rate / hosts * a_task * _US

    def are_enough(hosts: int) -> bool:
        used = sum(cores(process, hosts) for process in OF_A_HOST)
        used += rate / hosts * load.callback_cpu.total_seconds()
        return used <= limits.host_cores * limits.busy

    number = fewest(max(limits.least, math.ceil(slots / limits.slots)), are_enough)
    executors = max(1, math.ceil(cores(EXECUTOR, number) / limits.busy))
    return _Hosts(number, slots, executors, values_with(number))


def fewest(least: int, is_enough: Callable[[int], bool], most: int = MOST_PROCESSES) -> int:
    """Return the least number from `least` on that is enough, where more are enough, too.

    Raises:
        CapacityError: not even `most` are.
    """
    high = least
    while not is_enough(high):
        if high >= most:
            raise CapacityError(
                f"even {most:,} of a part do not carry it: allow larger or busier parts, or fewer tasks"
            )
        high = min(2 * high, most)
    low = max(least, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low
