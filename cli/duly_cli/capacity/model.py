"""What a task costs each process, by load: coefficients fitted to measurements (`python -m benchmarks.capacity`)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

POSTGRES, FRONTEND, STORE_CONSUMER, HSC = "postgres", "frontend", "store consumer", "hsc"
CONTROLLER, EXECUTOR, CALLBACKS = "controller", "executor", "callbacks"
PROCESSES = (POSTGRES, FRONTEND, STORE_CONSUMER, HSC, CONTROLLER, EXECUTOR, CALLBACKS)
OF_A_HOST = (CONTROLLER, EXECUTOR, CALLBACKS)

TERMS = (
    "task",
    "run",
    "call",
    "schedule_group",
    "run_group",
    "kib",
    "ahead",
    "in_sessions",
    "with_resources",
    "sqs",
    "sqs_group",
)
"""What a task's cost is the sum of: each times a coefficient."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What tasks are like."""

    tasks_per_call: float = 1.0
    payload: float = 100.0
    """Bytes."""
    ahead: float = 0.0
    """Share of tasks that are scheduled for later; here and below from 0 to 1."""
    in_sessions: float = 0.0
    with_resources: float = 0.0
    sqs: float = 0.0
    """1: `queue.backend` is sqs; 0: store."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How many statements there are for each arrival at one server: tasks that arrive together share one."""

    alone: float
    """Of an arrival that nothing else goes with."""
    half_rate: float
    """Arrivals a second at which there are half as many for each."""
    steepness: float
    """How fast groups grow beyond that rate."""
    highest_rate: float
    """Arrivals a second that were measured: more are taken for as many."""

    def of_arrival(self, arrivals: float) -> float:
        """Return statements for each arrival, at so many arrivals a second.

        Statements a second never fall as arrivals rise: on a machine that is too busy they do, but there Duly waits for it.
        """
        rate = min(arrivals, self.highest_rate)
        if rate <= self._peak:
            return self._of(rate)
        return self._of(self._peak) * self._peak / rate

    def _of(self, rate: float) -> float:
        return self.alone / (1 + math.pow(rate / self.half_rate, self.steepness))

    @property
    def _peak(self) -> float:
        """Return the rate with the most statements a second."""
        if self.steepness <= 1:
            return math.inf
        return self.half_rate * math.pow(self.steepness - 1, -1 / self.steepness)


def terms(mix: Mix, schedule_groups: float, run_groups: float, *, runs: bool = True) -> dict[str, float]:
    """Return the value of each of `TERMS` for a task that shares statements: so many there are for each task.

    `runs` is false for a task that is only scheduled.
    """
    return {
        "task": 1.0,
        "run": float(runs),
        "call": 1 / mix.tasks_per_call,
        "schedule_group": schedule_groups,
        "run_group": run_groups,
        "kib": mix.payload / 1024,
        "ahead": mix.ahead,
        "in_sessions": mix.in_sessions,
        "with_resources": mix.with_resources,
        "sqs": mix.sqs,
        "sqs_group": mix.sqs * run_groups,
    }


Cost = Mapping[str, float]
"""What one quantity, such as Postgres's CPU, costs a task: coefficients by name of `TERMS`; those that are missing are 0."""


Curve = Sequence[tuple[float, float]]
"""Measured points, by x."""


def on_curve(curve: Curve, x: float) -> float:
    """Return y between the measured points, by a straight line; beyond the last it goes on, before the first it is flat."""
    if x <= curve[0][0]:
        return curve[0][1]
    after = next((place for place, (at, _) in enumerate(curve) if at >= x), len(curve) - 1)
    (x0, y0), (x1, y1) = curve[after - 1], curve[after]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def cost_of(cost: Cost, values: Mapping[str, float]) -> float:
    """Return the sum of the terms."""
    return sum(coefficient * values[name] for name, coefficient in cost.items())


@dataclass(frozen=True, slots=True)
class Model:
    """All that was fitted."""

    schedule_groups: Groups
    """Of a Frontend, by calls a second."""
    run_groups: Groups
    """Of an HSC, or a host, by tasks that become due together a second: half of claims and reports."""
    run_groups_of_sqs: Groups
    """The same with SQS: a receive brings up to ten messages."""
    cpu_us: Mapping[str, Cost]
    """By process, microseconds of CPU a task."""
    transactions: Cost
    """Transactions that write, a task."""
    wal_bytes: Cost
    """Bytes a task."""
    idle_cores: Mapping[str, float]
    """By process: CPU seconds a second with nothing to do."""
    heartbeat_us: Mapping[str, float]
    """By process: CPU of one heartbeat of a running task."""
    kept_bytes: Curve
    """Of an ended task with its indexes, by bytes of its payload."""
    wal_bytes_of_payload: Curve
    """Beyond those of a task with 100 bytes, by bytes of its payload."""
    wal_bytes_per_s: float
    """That one writer wrote to the measured Postgres in bulk."""
    commits_per_s: float
    """That eight writers committed side by side, a row each."""
    measured: Mapping[str, Any]
    """When, on what, and how well the model fits."""

    def wal_of(self, mix: Mix, values: Mapping[str, float]) -> float:
        """Return the bytes of WAL of a task."""
        return cost_of(self.wal_bytes, values) + on_curve(self.wal_bytes_of_payload, mix.payload)

    def schedule_groups_of(self, mix: Mix, rate: float) -> float:
        """Return the statements of a Frontend for each task, at so many tasks a second of one Frontend."""
        each = mix.tasks_per_call
        return self.schedule_groups.of_arrival(rate / each) / each

    def run_groups_of(self, mix: Mix, rate: float) -> float:
        """Return the same of an HSC or a host. Tasks of one call are due together, unless they are scheduled ahead."""
        each, ahead = mix.tasks_per_call, mix.ahead
        curve = self.run_groups_of_sqs if mix.sqs else self.run_groups
        return (1 - ahead) * curve.of_arrival(rate / each) / each + ahead * curve.of_arrival(rate)


@cache
def fitted() -> Model:
    """Return the model that is part of Duly."""
    return of_json(json.loads(files(__package__).joinpath("model.json").read_text(encoding="utf-8")))


def of_json(found: Mapping[str, Any]) -> Model:
    """Return the model of a file that `python -m benchmarks.capacity` wrote."""
    return Model(
        Groups(**found["schedule_groups"]),
        Groups(**found["run_groups"]),
        Groups(**found["run_groups_of_sqs"]),
        found["cpu_us"],
        found["transactions"],
        found["wal_bytes"],
        found["idle_cores"],
        found["heartbeat_us"],
        [(payload, size) for payload, size in found["kept_bytes"]],
        [(payload, size) for payload, size in found["wal_bytes_of_payload"]],
        found["wal_bytes_per_s"],
        found["commits_per_s"],
        found["measured"],
    )
