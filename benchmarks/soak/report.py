"""The verdict and the table of a soak, for people: `python -m benchmarks.soak.report FILE` judges a file again."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.soak.judge import judge_all
from benchmarks.tables import rows

_UNITS = {
    "memory": "MiB",
    "wal": "MiB",
    "size": "MiB",
    "log": "MiB",
    "lateness p50": "ms",
    "lateness p99": "ms",
    "cpu": "% of a core",
}


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same with new verdicts, once there are two samples or more."""
    times, series = found["times"], found["series"]
    verdicts = judge_all(times, series) if len(times) > 1 else []
    return {
        **found,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }


def passed(found: dict[str, Any]) -> bool:
    """Whether no series grew and there was no problem."""
    return not found["problems"] and not any(verdict["grows"] for verdict in found["verdicts"])


def render(found: dict[str, Any]) -> str:
    """Return the verdict, what became of the tasks, and a row for each series that changed."""
    load, verdicts = found["load"], found["verdicts"]
    grown = [verdict["name"] for verdict in verdicts if verdict["grows"]]
    minutes = (found["times"][-1] if found["times"] else 0.0) / 60
    counts = {
        "tasks": load.get("scheduled", 0),
        "ran": load.get("started", 0),
        "were cancelled": load.get("cancelled", 0),
        "ran twice": load.get("started_again", 0),
        "partitions were dropped": found["partitions_dropped"],
    }
    told = [
        f"{found['rate']:,.1f} tasks/s for {minutes:,.1f} minutes: "
        + ", ".join(f"{count:,} {what}" for what, count in counts.items()),
        *(f"PROBLEM: {problem}" for problem in found["problems"]),
        f"GREW: {', '.join(grown)}" if grown else "no series grew",
    ]
    unjudged = sum(not verdict["judged"] for verdict in verdicts)
    if unjudged:
        told.append(f"{unjudged} series have too few samples for a verdict")
    head = ["series", "median", "rise", "rise, %", "lowest", "highest", "verdict"]
    varied = [verdict for verdict in verdicts if len(set(found["series"][verdict["name"]])) > 1]
    told.append(f"{len(verdicts)} series; {len(verdicts) - len(varied)} had one value throughout")
    return "\n".join([*told, "", rows(head, [_row(each, found["series"][each["name"]]) for each in varied])])


def _row(verdict: dict[str, Any], values: list[float | None]) -> list[str]:
    there = [value for value in values if value is not None]
    unit = _UNITS.get(verdict["name"].partition(":")[0], "")
    median, rise = verdict["median"], verdict["rise"]
    percent = f"{rise / abs(median) * 100:+,.1f}" if median else "-"
    said = "grows" if verdict["grows"] else "flat" if verdict["judged"] else "too few samples"
    name = f"{verdict['name']} ({unit})" if unit else verdict["name"]
    figures = [f"{each:,.1f}" for each in (min(there, default=0.0), max(there, default=0.0))]
    return [
        name,
        f"{median:,.1f}",
        f"{rise:+,.1f}",
        percent,
        *figures,
        said,
    ]


def main() -> int:
    """Judge and print a file that `--json` wrote; the exit code is that of the soak."""
    found = judged(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(render(found))
    return 0 if passed(found) else 1


if __name__ == "__main__":
    sys.exit(main())
