"""`python -m benchmarks.report FILE`: the tables of docs/performance.md, from what a run kept."""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import report_floor, report_growth
from benchmarks.tables import rows, spread

RATES = {
    "submit_single": "submit, up to 16 single calls at a time",
    "submit_bulk": "submit, bulk API",
    "drain": "drain of queued tasks, to the last end stored",
    "end_to_end_single": "end to end, single calls",
    "end_to_end_bulk": "end to end, bulk API",
}
TIMES = {
    "latency": "submit to start, 20 a second",
    "one_call": "one caller, one call at a time: its answer, no worker",
    "one_call_idle": "the same, workers idle",
    "one_call_running": "the same, workers running the tasks",
    "lateness": "lateness, due times over 10 s",
    "spike": "lateness, all due at one instant",
}

_WITH_MOST = ("lateness", "spike")


class Table:
    """Figures of one run, by system, workload and round."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.systems: dict[str, dict[str, str]] = found["systems"]
        self.measurements: list[dict[str, Any]] = found["measurements"]

    def measured(self, workload: str) -> bool:
        """Whether it was among what was asked for."""
        return any(each["workload"] == workload for each in self.measurements)

    def values(self, workload: str, system: str, figure: str) -> dict[int, float]:
        """By round."""
        return {
            each["round"]: each["figures"]["values"][figure]
            for each in self.measurements
            if each["workload"] == workload
            and each["system"] == system
            and figure in each["figures"]["values"]
        }

    def problem(self, workload: str, system: str) -> str:
        """Why there is no figure."""
        if reason := self.systems[system].get("not_run"):
            return f"not run: {reason}"
        for each in self.measurements:
            if each["workload"] == workload and each["system"] == system and each["problem"]:
                return str(each["problem"]).splitlines()[0]
        return "-"

    def ratios(self, workload: str, figure: str, *, more_is_better: bool) -> tuple[str, list[float]]:
        """The best rival by its median, and Duly's advantage over the best rival of each round."""
        rivals = {
            name: values
            for name in self.systems
            if not name.startswith("duly") and (values := self.values(workload, name, figure))
        }
        ours = self.values(workload, "duly", figure) or self.values(workload, "duly_json", figure)
        if not rivals or not ours:
            return "", []
        pick = max if more_is_better else min
        best = pick(rivals, key=lambda name: statistics.median(rivals[name].values()))
        ratios = []
        for number, value in ours.items():
            theirs = [values[number] for values in rivals.values() if number in values]
            if theirs:
                ratios.append(value / pick(theirs) if more_is_better else pick(theirs) / value)
        return best, ratios


def _rates(table: Table) -> Iterator[list[str]]:
    for workload, title in RATES.items():
        if not table.measured(workload):
            continue
        cells = []
        for system in table.systems:
            values = list(table.values(workload, system, "rate").values())
            cells.append(spread(values) if values else table.problem(workload, system))
        best, ratios = table.ratios(workload, "rate", more_is_better=True)
        yield [title, *cells, f"{spread(ratios, 2)} x {best}" if ratios else "-"]


def _times(table: Table) -> Iterator[list[str]]:
    for workload, title in TIMES.items():
        if not table.measured(workload):
            continue
        for figure in ("p50_ms", "p99_ms", *(("max_ms",) if workload in _WITH_MOST else ())):
            cells = []
            for system in table.systems:
                values = list(table.values(workload, system, figure).values())
                cells.append(spread(values, 1) if values else table.problem(workload, system))
            best, ratios = table.ratios(workload, figure, more_is_better=False)
            compared = f"{spread(ratios, 2)} x {best}" if ratios else "-"
            yield [f"{title}: {figure.removesuffix('_ms')}", *cells, compared]


def _idle(table: Table) -> Iterator[list[str]]:
    if not table.measured("footprint"):
        return
    titles = {"idle_cpu_percent": "CPU, %", "memory_mib": "memory, MiB", "processes": "processes"}
    for figure, title in titles.items():
        cells = []
        for system in table.systems:
            values = list(table.values("footprint", system, figure).values())
            cells.append(
                spread(values, 0 if figure == "processes" else 1)
                if values
                else table.problem("footprint", system)
            )
        yield [title, *cells]


def _costs(found: dict[str, Any], kind: str, workload: str, system: str) -> dict[str, float]:
    """Median over the rounds, by process."""
    runs = [
        each["figures"][kind]
        for each in found["measurements"]
        if each["workload"] == workload and each["system"] == system and each["figures"][kind]
    ]
    names = {name for run in runs for name in run}
    medians = {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}
    return dict(sorted(medians.items(), key=lambda item: -item[1]))


def _cost_rows(found: dict[str, Any], kind: str, workloads: Sequence[str]) -> Iterator[list[str]]:
    for workload in workloads:
        for system, described in found["systems"].items():
            by_process = _costs(found, kind, workload, system)
            if by_process:
                told = ", ".join(f"{name} {value:,.0f}" for name, value in by_process.items() if value >= 0.5)
                yield [workload, described["title"], f"{sum(by_process.values()):,.0f}", told]


def _machine_speed(found: dict[str, Any]) -> str:
    each = [measurement["calibration"] for measurement in found["measurements"]]
    if not each:
        return ""
    loops = [1000 * one["loop_cpu_s"] for one in each]
    syncs = [one["fdatasync_per_s"] for one in each]
    return (
        f"Before each measurement: a fixed loop of Python took {spread(loops, 0)} ms of CPU, "
        f"the disk made {spread(syncs)} synced 8 KiB writes a second."
    )


def render(found: dict[str, Any]) -> str:
    """All tables."""
    table = Table(found)
    titles = [described["title"] for described in found["systems"].values()]
    parts = [", ".join(f"{name}: {value}" for name, value in found["machine"].items()), _machine_speed(found)]
    if not table.systems:
        return "\n\n".join(
            part for part in [*parts, *report_floor.parts(found), *report_growth.parts(found)] if part
        )
    settings = ([each["title"], each["settings"], each["durability"]] for each in found["systems"].values())
    parts.append(rows(["system", "settings", "durability"], settings))
    against = "Duly against the best rival of each round"
    head = ["work", "system", "in all", "by process"]
    for title, table_ in (
        (
            "Tasks a second, median of the rounds (lowest to highest):",
            rows(["work", *titles, against], _rates(table)),
        ),
        ("Milliseconds (ratios: above 1, Duly is sooner):", rows(["work", *titles, against], _times(table))),
        (
            "CPU, us a task, by process:",
            rows(head, _cost_rows(found, "cpu_us_per_task", [*RATES, "latency", "one_call"])),
        ),
        (
            "Memory right after the work, MiB (PSS):",
            rows(head, _cost_rows(found, "memory_mib", ["end_to_end_bulk", "end_to_end_single"])),
        ),
        (
            "With nothing to do (percent of a core over 30 s; MiB, PSS):",
            rows(["", *titles], _idle(table)),
        ),
    ):
        if table_:
            parts += [title, table_]
    parts += report_floor.parts(found) + report_growth.parts(found)
    return "\n\n".join(part for part in parts if part)


def main() -> None:
    """Print the tables of a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="The tables of a run.")
    parser.add_argument("file", type=argparse.FileType(encoding="utf-8"), help="what --json wrote")
    print(render(json.load(parser.parse_args().file)))


if __name__ == "__main__":
    main()
