"""The tables of the floors: what no system of Duly's layout can go below on this machine."""

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.tables import rows, spread

_STATEMENTS = ("schedule_us", "claim_work_us", "finish_us")
_PARTS = {
    "call_of_the_frontend_us": "the call of the Frontend, with its statement",
    "schedule_us": "schedule, which tells",
    "claim_work_us": "claim_work",
}
_LONE = {"p50_ms": "p50", "p99_ms": "p99", "rate": "calls a second (more is better)"}
_IN_A_ROW = ("schedule_us", "claim_work_us")


def parts(found: dict[str, Any]) -> list[str]:
    """Titles and tables of what is there."""
    told = []
    if figures := _measured(found, "floor", "floor"):
        told += [
            "The floor: Duly's statements over groups of 200, no services:",
            rows(["", ""], _groups(list(figures.values()))),
        ]
    if figures := _measured(found, "floor_latency", "floor"):
        told += [
            "The floor of a lone task: its hops in four processes, the libraries alone, not into the callback's process (ms):",
            rows(["", "floor", "Duly", "Duly against the floor of each round"], _lone(found, figures)),
            "Its parts, us (median):",
            rows(["", ""], _hops(list(figures.values()))),
        ]
    if figures := _measured(found, "floor_call", "floor"):
        told += [
            "The floor of a call: a bare gRPC call with one insert behind it, one at a time (ms):",
            rows(
                ["", "floor", "Duly, no worker", "Duly against the floor of each round"],
                [*_lone(found, figures, "one_call"), *_costs_of_a_call(found, figures)],
            ),
        ]
    for each in found["measurements"]:
        if each["system"] == "floor" and each["problem"]:
            told.append(f"{each['workload']}: no figures: {str(each['problem']).splitlines()[0]}")
    return told


def _measured(found: dict[str, Any], workload: str, system: str) -> dict[int, dict[str, Any]]:
    """Figures by round."""
    return {
        each["round"]: each["figures"]
        for each in found["measurements"]
        if each["workload"] == workload and each["system"] == system and each["figures"]["values"]
    }


def _groups(figures: list[dict[str, Any]]) -> Iterator[list[str]]:
    yield ["tasks a second", spread([each["values"]["rate"] for each in figures])]
    for name in _STATEMENTS:
        told = f"{name.removesuffix('_us')}, us of a connection's time a task"
        yield [told, spread([each["values"][name] for each in figures])]
    for name in ("postgres", "client"):
        told = f"CPU of {name}, us a task"
        yield [told, spread([each["cpu_us_per_task"].get(name, 0.0) for each in figures])]


def _lone(
    found: dict[str, Any], floors: dict[int, dict[str, Any]], workload: str = "latency"
) -> Iterator[list[str]]:
    duly = _of_duly(found, workload)
    for name, title in _LONE.items():
        floor = {number: each["values"][name] for number, each in floors.items() if name in each["values"]}
        ours = {number: each["values"][name] for number, each in duly.items() if name in each["values"]}
        if not floor:
            continue
        ratios = [value / floor[number] for number, value in ours.items() if number in floor]
        yield [
            title,
            spread(list(floor.values()), 1),
            spread(list(ours.values()), 1) if ours else "not measured",
            f"{spread(ratios, 2)} x" if ratios else "-",
        ]


def _costs_of_a_call(found: dict[str, Any], floors: dict[int, dict[str, Any]]) -> Iterator[list[str]]:
    duly = _of_duly(found, "one_call")
    for name in ("postgres", "server", "client"):
        floor, ours = (
            {number: each["cpu_us_per_task"].get(name, 0.0) for number, each in figures.items()}
            for figures in (floors, duly)
        )
        ratios = [value / floor[number] for number, value in ours.items() if floor.get(number)]
        yield [
            f"CPU of {name}, us a call",
            spread(list(floor.values())),
            spread(list(ours.values())) if ours else "not measured",
            f"{spread(ratios, 2)} x" if ratios else "-",
        ]


def _of_duly(found: dict[str, Any], workload: str) -> dict[int, dict[str, Any]]:
    """Figures by round of Duly, with raw payloads if these were measured."""
    return _measured(found, workload, "duly") or _measured(found, workload, "duly_json")


def _hops(figures: list[dict[str, Any]]) -> Iterator[list[str]]:
    for name, title in _PARTS.items():
        yield [title, f"{statistics.median(each['values'][name] for each in figures):,.0f}"]
    rest = [
        each["values"]["p50_ms"] * 1000 - sum(each["values"][name] for name in _IN_A_ROW) for each in figures
    ]
    told = "the rest of it: the way to the Frontend, a wake-up, the answer of a long poll"
    yield [told, f"{statistics.median(rest):,.0f}"]
