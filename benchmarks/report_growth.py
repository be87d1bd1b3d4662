"""The tables of the other parts of a run: how cost grows, what SQS costs."""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.tables import rows, spread

_TITLES = {
    "waiting": "Beside so many tasks that wait for another day (tasks/s; ms from a call to its start; CPU in us a task; poll: "
    "Store Consumer, HSC and Postgres with nothing due, percent of a core):",
    "executors": "Executors on one host, end to end (tasks/s; CPU in us a task):",
    "lambdas": "Lambdas, each with tasks of all four priorities, end to end (tasks/s; CPU in us a task):",
    "payloads": "Payloads, end to end (tasks/s; CPU in us a task):",
    "mix": "Callbacks of 1 ms and 100 ms, with and without ones of 10 s (ms from the call of schedule to the start):",
}
_KEPT = ("values", "cpu_us_per_task", "calibration")


def parts(found: dict[str, Any]) -> list[str]:
    """Titles and tables of what is there."""
    told = []
    for name, measured in found.get("growth", {}).items():
        told += [_TITLES[name], _grown(measured)]
    if found.get("sqs"):
        head = ["queue", "submitted", "calls of SQS a task", "CPU, us a task"]
        told += ["SQS (moto's server: counts, no speeds):", rows(head, _sqs(found["sqs"]))]
    told += [f"{part}: failed: {reason}" for part, reason in found.get("problems", {}).items()]
    return told


def _grown(measured: list[dict[str, Any]]) -> str:
    groups: dict[tuple[tuple[str, Any], ...], list[dict[str, Any]]] = defaultdict(list)
    for each in measured:
        groups[tuple((name, value) for name, value in each.items() if name not in _KEPT)].append(each)
    shown = sorted({name for each in measured for name in each["values"] if name != "started_twice"})
    keys = [name for name, _ in next(iter(groups))]
    body = []
    for group, runs in groups.items():
        values = [[run["values"][name] for run in runs if name in run["values"]] for name in shown]
        cpu = [sum(run["cpu_us_per_task"].values()) for run in runs]
        by_process = {
            name: statistics.median(run["cpu_us_per_task"].get(name, 0.0) for run in runs)
            for name in runs[0]["cpu_us_per_task"]
        }
        told = ", ".join(f"{name} {value:,.0f}" for name, value in sorted(by_process.items(), key=_dearest))
        cells = [spread(value, _digits(value)) if value else "-" for value in values]
        body.append(
            [*(_plain(value) for _, value in group), *cells, spread(cpu) if any(cpu) else "-", told or "-"]
        )
    return rows([*keys, *shown, "CPU", "by process"], body)


def _digits(values: list[float]) -> int:
    return 0 if max(values) >= 100 else 1 if max(values) >= 10 else 2


def _dearest(item: tuple[str, float]) -> float:
    return -item[1]


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sqs(measured: list[dict[str, Any]]) -> Iterator[list[str]]:
    for each in measured:
        calls = ", ".join(f"{name} {count:.2f}" for name, count in sorted(each["calls_per_task"].items()))
        cpu = ", ".join(f"{name} {value:,.0f}" for name, value in each["cpu_us_per_task"].items())
        total = sum(each["calls_per_task"].values())
        yield [each["queue"], each["submitted"], f"{total:.2f}: {calls}" if calls else "-", cpu]
