"""`python -m benchmarks.plot FILE PNG`: the picture of a run, drawn with the bench venv's matplotlib."""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import RATES, TIMES, Table

_COLOURS = {
    "duly": "#c0392b",
    "procrastinate": "#34678f",
    "pgqueuer": "#6c9ac3",
    "celery": "#7f7f7f",
    "dramatiq": "#b5b5b5",
}
"""Postgres's are blue, Redis's are grey."""
_INK = "#333333"


def _bars(axes: Any, table: Table, workload: str, figure: str, title: str, unit: str) -> None:
    """One bar a system, median, with lowest and highest as a whisker."""
    names = [name for name in table.systems if not table.systems[name]["not_run"]]
    for place, name in enumerate(names):
        values = list(table.values(workload, name, figure).values())
        if not values:
            axes.text(0, place, f" {_reason(table, workload, name)}", va="center", fontsize=8, color=_INK)
            continue
        median = statistics.median(values)
        colour = _COLOURS.get(name, "#8d6e97")
        whisker = [[median - min(values)], [max(values) - median]]
        axes.barh(place, median, color=colour, height=0.7, xerr=whisker, error_kw={"ecolor": _INK, "lw": 0.8})
        told = f" {median:,.{0 if median >= 100 else 1 if median >= 1 else 2}f}"
        axes.text(max(values), place, told, va="center", ha="left", fontsize=8, color=_INK)
    if floor := list(table.values(f"floor_{workload}", "floor", figure).values()):
        at = statistics.median(floor)
        axes.axvline(at, color=_INK, lw=0.9, ls="--")
        axes.annotate(
            f"Duly's floor {at:,.1f}", (at, 1.02), xycoords=("data", "axes fraction"), fontsize=7, color=_INK
        )
    axes.set_yticks(range(len(names)), [table.systems[name]["title"] for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_title(title, fontsize=9, loc="left", color=_INK, pad=14 if floor else 6)
    axes.set_xlabel(unit, fontsize=7, color=_INK)
    axes.tick_params(axis="x", labelsize=7)
    axes.margins(x=0.22)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _reason(table: Table, workload: str, name: str) -> str:
    """Short, for a place where a bar would be."""
    reason = table.problem(workload, name)
    return reason if len(reason) < 20 else "no figure"


def draw(found: dict[str, Any], file: Path) -> None:
    """All workloads that were measured, one panel each."""
    import matplotlib as mpl  # the bench venv has it, ours has not

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    table = Table(found)
    panels = [(name, "rate", title, "tasks/s: more is better") for name, title in RATES.items()]
    panels.append(("latency", "p50_ms", f"{TIMES['latency']}, p50", "ms: less is better"))
    panels += [(name, "p99_ms", f"{title}, p99", "ms: less is better") for name, title in TIMES.items()]
    panels.append(("spike", "drained_s", "all due at one instant: the last one's start", "s: less is better"))
    panels.append(
        ("footprint", "idle_cpu_percent", "idle CPU of the whole stack", "% of a core: less is better")
    )
    panels.append(("footprint", "memory_mib", "memory of the whole stack, idle", "MiB (PSS): less is better"))
    panels = [
        panel for panel in panels if any(table.values(panel[0], name, panel[1]) for name in table.systems)
    ]
    if not panels:
        sys.exit("benchmarks.plot: nothing to draw: no system was measured beside another in this run")
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(5.6 * columns, 1.9 * lines + 0.6), squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        workload, value, title, unit = panel
        _bars(axes, table, workload, value, title, unit)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    machine = found["machine"]
    told = f"{machine['processor']}, {machine['cores']} cores; everything on this one machine; median, lowest and highest"
    figure.suptitle(told, fontsize=8, color=_INK)
    figure.tight_layout()
    figure.savefig(file, dpi=130)


def main() -> None:
    """Draw, in the venv that can."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plot",
        description="The picture of a run. Installs the rivals' venv if it is not there: what draws is in it.",
    )
    parser.add_argument("source", type=argparse.FileType(encoding="utf-8"), help="what --json wrote")
    parser.add_argument("target", type=Path, help="the PNG to write")
    options = parser.parse_args()
    try:
        draw(json.load(options.source), options.target)
    except ModuleNotFoundError:
        from benchmarks.rivals.venv import python

        sys.exit(subprocess.run([python(), "-m", "benchmarks.plot", *sys.argv[1:]], check=False).returncode)


if __name__ == "__main__":
    main()
