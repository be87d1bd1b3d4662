"""Fits the model of capacity to the points: least squares of relative errors, without negative coefficients.

First costs are fitted to the groups that were measured; then groups to the load. So the errors of both can be told apart.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, NamedTuple

from benchmarks.capacity.cases import CASES, SQS, STORE, Case
from duly_cli.capacity.model import (
    CALLBACKS,
    CONTROLLER,
    EXECUTOR,
    FRONTEND,
    HSC,
    POSTGRES,
    PROCESSES,
    STORE_CONSUMER,
    Cost,
    Curve,
    Groups,
    Mix,
    Model,
    cost_of,
    of_json,
    on_curve,
    terms,
)

_HALF_RATES = (5, 10, *range(20, 620, 20))
_STEEPNESSES = tuple(number / 4 for number in range(4, 13))
_ALONE = tuple(number / 20 for number in range(5, 21))
_SWEEPS = 3_000
_HEARTBEAT_PERIOD = 3.0
"""Seconds, of the measured stack."""
_BEATING = (POSTGRES, HSC, CONTROLLER, EXECUTOR)
"""Who has to do with heartbeats."""
_US = 1e6
_WRITTEN = ("wal_bytes", "transactions")
_REPORTS = ("ClaimWork", "ClaimTask", "SetResults")

_STORE = (
    "task",
    "run",
    "schedule_group",
    "run_group",
    "kib",
    "ahead",
    "in_sessions",
    "with_resources",
    "sqs",
    "sqs_group",
)
DRIVERS: Mapping[str, Sequence[str]] = {
    POSTGRES: _STORE,
    FRONTEND: ("task", "call", "schedule_group", "kib"),
    STORE_CONSUMER: ("run", "run_group", "ahead", "sqs", "sqs_group"),
    HSC: ("run", "run_group", "kib", "in_sessions", "with_resources"),
    CONTROLLER: ("run", "run_group", "sqs", "sqs_group"),
    EXECUTOR: ("run", "run_group", "kib"),
    CALLBACKS: ("run", "run_group", "kib"),
    "transactions": ("schedule_group", "run_group", "with_resources", "sqs", "sqs_group"),
    "wal_bytes": ("task", "run", "schedule_group", "ahead", "in_sessions", "with_resources", "sqs"),
}
"""What may move each quantity: no process is charged with what it does not do."""


class Point(NamedTuple):
    """One load in one round: its costs go with the groups that it had, which other work on the machine changes."""

    case: Case
    rate: float
    values: Mapping[str, float]
    """What a task cost beyond what the idle stack uses; by process, and by name of `DRIVERS`."""
    idle: Mapping[str, float]
    """What the idle stack used in that time, a task."""
    schedule_groups: float
    run_groups: float


def points(found: Mapping[str, Any], cases: Sequence[Case] = CASES) -> list[Point]:
    """Return every round of every case, in the order of the cases."""
    standing = _medians(each["cpu"] for each in found["idle"])
    standing = {name: cores * _US for name, cores in standing.items()}
    standing |= _medians({name: each[name] for name in _WRITTEN} for each in found["idle"])
    rounds = [(case, each) for case in cases for each in found["loads"] if each["case"] == case.name]
    return [_point(case, each, standing) for case, each in rounds]


def _point(case: Case, found: Mapping[str, Any], standing: Mapping[str, float]) -> Point:
    a_task = found["seconds"] / found["tasks"]
    idle = {name: value * a_task for name, value in standing.items()}
    measured = {**found["cpu"], **{name: found[name] for name in _WRITTEN}}
    values = {name: max(0.0, value - idle[name]) for name, value in measured.items()}
    run_groups = sum(found["groups"].get(name, 0.0) for name in _REPORTS) / 2
    return Point(case, found["rate"], values, idle, found["groups"]["schedule"], run_groups)


def _medians(rounds: Iterable[Mapping[str, float]]) -> dict[str, float]:
    each = list(rounds)
    return {name: statistics.median(one[name] for one in each) for name in each[0]}


def mix_of(case: Case) -> Mix:
    """Return what its tasks are like."""
    return Mix(
        case.each,
        case.payload,
        float(case.later),  # those of another day never become due
        float(case.sessions > 0),
        float(case.resources),
        float(case.queue == SQS),
    )


def fit_cost(name: str, seen: Sequence[Point], of_payload: Curve) -> Cost:
    """Return the coefficients whose relative errors are least, with the groups that were measured.

    `of_payload` is what a task's payload adds, where that is known already.
    """
    drivers = DRIVERS[name]
    values = [
        (
            _terms(p),
            p.values[name] - on_curve(of_payload, p.case.payload),
        )
        for p in seen
    ]
    rows = [
        [found[driver] / value for driver in drivers]
        for found, value in values
        if value > 0 and any(found[driver] for driver in drivers)
    ]
    fitted = least_squares(rows, [1.0] * len(rows))
    return {driver: round(value, 3) for driver, value in zip(drivers, fitted, strict=True) if value}


def _terms(point: Point) -> dict[str, float]:
    """Return the values of the terms, with the groups that were measured."""
    run_groups = point.run_groups if point.case.runs else 0.0
    return terms(mix_of(point.case), point.schedule_groups, run_groups, runs=point.case.runs)


def fit_groups(arrivals: Sequence[tuple[float, float]]) -> Groups:
    """Return the curve whose ratios to the measured groups are least.

    Args:
        arrivals: a second at one server, and groups for each of them.
    """
    highest = round(max(rate for rate, _ in arrivals), 1)

    def badness(curve: Groups) -> float:
        return sum(math.log(curve.of_arrival(rate) / groups) ** 2 for rate, groups in arrivals if groups)

    curves = (Groups(*each, highest) for each in product(_ALONE, _HALF_RATES, _STEEPNESSES))
    return min(curves, key=badness)


def _arrivals(seen: Sequence[Point], queue: str) -> list[tuple[float, float]]:
    """Return arrivals a second and claims of each: tasks of a call arrive together, unless they are due at other times."""
    found = [(1 if p.case.later else p.case.each, p) for p in seen if p.case.queue == queue and p.case.runs]
    return [(point.rate / together, point.run_groups * together) for together, point in found]


def least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Return the coefficients, none below 0, with the least sum of squares: coordinate by coordinate, until nothing moves."""
    number = len(rows[0])
    scales = [max(1e-12, *(abs(row[place]) for row in rows)) for place in range(number)]
    rows = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    products = [[sum(row[a] * row[b] for row in rows) for b in range(number)] for a in range(number)]
    targets = [sum(row[a] * value for row, value in zip(rows, wanted, strict=True)) for a in range(number)]
    found = [0.0] * number
    for _ in range(_SWEEPS):
        moved = 0.0
        for place in range(number):
            if not products[place][place]:
                continue
            rest = targets[place] - sum(
                products[place][other] * found[other] for other in range(number) if other != place
            )
            value = max(0.0, rest / products[place][place])
            moved = max(moved, abs(value - found[place]))
            found[place] = value
        if moved < 1e-9:
            break
    return [value / scale for value, scale in zip(found, scales, strict=True)]


class Error(NamedTuple):
    """How far the model is from one quantity of one load: predicted divided by measured, less 1; medians of the rounds."""

    case: Case
    rate: float
    measured: float
    with_measured_groups: float
    from_load_alone: float


def errors(model: Model, every: Sequence[Point], quantity: str) -> list[Error]:
    """Return those of each load, in the order of the cases.

    Args:
        model: that is judged.
        every: rounds of all loads.
        quantity: a process, `wal_bytes` or `transactions`, or `all`: the CPU of all processes. Idle costs are part of it.
    """
    found = []
    for case in dict.fromkeys(point.case for point in every):
        rounds = [_of_round(model, point, quantity) for point in every if point.case == case]
        found.append(Error(case, *(statistics.median(each[place] for each in rounds) for place in range(4))))
    return found


def _of_round(model: Model, point: Point, quantity: str) -> tuple[float, float, float, float]:
    """Return the rate, what was measured, and the two errors."""
    costs = {**model.cpu_us, "transactions": model.transactions, "wal_bytes": model.wal_bytes}
    mix, names = mix_of(point.case), PROCESSES if quantity == "all" else (quantity,)
    own = _terms(point)
    run_groups = model.run_groups_of(mix, point.rate) if point.case.runs else 0.0
    load = terms(mix, model.schedule_groups_of(mix, point.rate), run_groups, runs=point.case.runs)
    payload = on_curve(model.wal_bytes_of_payload, mix.payload) if quantity == "wal_bytes" else 0.0
    idle = sum(point.idle[name] for name in names)
    measured = sum(point.values[name] for name in names) + idle
    known, guessed = (
        (sum(cost_of(costs[name], values) for name in names) + idle + payload) / measured - 1
        for values in (own, load)
    )
    return point.rate, measured, known, guessed


def model(found: Mapping[str, Any], cases: Sequence[Case] = CASES) -> dict[str, Any]:
    """Return the fitted model as the file has it."""
    every = points(found, cases)
    seen = [point for point in every if not point.case.held_out]
    idle = _medians(each["cpu"] for each in found["idle"])
    held = _medians(each["cpu"] for each in found["held"])
    running = found["held"][0]["running"]
    smallest = found["kept"][0]["wal_bytes"]
    wal_of_payload = [
        (each["payload"], max(0, round(each["wal_bytes"] - smallest))) for each in found["kept"]
    ]
    machine = found["machine"]
    nothing = [(0.0, 0.0), (1.0, 0.0)]
    costs = {
        name: fit_cost(name, seen, wal_of_payload if name == "wal_bytes" else nothing) for name in DRIVERS
    }
    fitted = {
        "measured": {
            "at": machine["measured_at"],
            "commit": machine["commit"],
            "postgres": machine["postgres"].removeprefix("postgres (PostgreSQL) "),
            "processor": machine["processor"],
            "cores": machine["cores"],
            "python": machine["python"],
            "rounds": max(each["round"] for each in found["loads"]),
        },
        "schedule_groups": asdict(
            fit_groups(
                [(point.rate / point.case.each, point.schedule_groups * point.case.each) for point in seen]
            )
        ),
        "run_groups": asdict(fit_groups(_arrivals(seen, STORE))),
        "run_groups_of_sqs": asdict(fit_groups(_arrivals(seen, SQS))),
        "cpu_us": {name: costs[name] for name in PROCESSES},
        "transactions": costs["transactions"],
        "wal_bytes": costs["wal_bytes"],
        "idle_cores": {name: round(value, 5) for name, value in idle.items()},
        "heartbeat_us": {
            name: round(max(0.0, held[name] - idle[name]) * _HEARTBEAT_PERIOD / running * _US, 1)
            if name in _BEATING
            else 0.0
            for name in PROCESSES
        },
        "kept_bytes": [(each["payload"], round(each["bytes_per_task"])) for each in found["kept"]],
        "wal_bytes_of_payload": wal_of_payload,
        "wal_bytes_per_s": round(statistics.median(each["wal_bytes_per_s"] for each in found["walls"])),
        "commits_per_s": round(statistics.median(each["commits_per_s"] for each in found["walls"])),
    }
    held_out = [point for point in every if point.case.held_out]
    worst = [*errors(of_json(fitted), held_out, "all"), *errors(of_json(fitted), held_out, POSTGRES)]
    fitted["measured"]["largest_error_of_held_out"] = {
        "with_measured_groups": round(max(abs(each.with_measured_groups) for each in worst), 3),
        "from_load_alone": round(max(abs(each.from_load_alone) for each in worst), 3),
    }
    return fitted
