"""`python -m benchmarks.soak.plot FILE PNG`: the series of a soak over time, drawn with the bench venv's matplotlib."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.soak.judge import WARM_UP

PANELS = {
    "memory, private, MiB": "memory: ",
    "open files": "files: ",
    "connections": "connections",
    "WAL, MiB": "wal",
    "tables and indexes, MiB": "size: ",
    "dead rows": "dead rows: ",
    "tasks that have not ended": "queue: not ended",
    "lateness, ms": "lateness ",
    "CPU, percent of a core": "cpu: ",
}
_LINES = 8
"""The largest of each panel; small ones say little."""


def draw(found: dict[str, Any], file: Path) -> None:
    """One panel for each kind of series."""
    import matplotlib as mpl  # the bench venv has it, ours has not

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    minutes = [at / 60 for at in found["times"]]
    columns = 3
    figure, grid = plt.subplots(
        -(-len(PANELS) // columns), columns, figsize=(5 * columns, 3 * 3), squeeze=False
    )
    for axes, (title, prefix) in zip(grid.flat, PANELS.items(), strict=False):
        series = {name: values for name, values in found["series"].items() if name.startswith(prefix)}
        largest = sorted(
            series, key=lambda name: -max((value or 0.0 for value in series[name]), default=0.0)
        )[:_LINES]
        for name in largest:
            values = [float("nan") if value is None else value for value in series[name]]
            axes.plot(minutes, values, lw=1, label=name.removeprefix(prefix) or name)
        axes.axvspan(0, minutes[0] + (minutes[-1] - minutes[0]) * WARM_UP, color="#eeeeee")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=6, loc="lower right")
    figure.suptitle(
        f"{found['rate']:,.1f} tasks/s; x: minutes; grey: the warm-up, which is not judged", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    """Draw, in the venv that can."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak.plot", description=__doc__)
    parser.add_argument("source", type=argparse.FileType(encoding="utf-8"), help="what --json wrote")
    parser.add_argument("target", type=Path, help="the PNG to write")
    options = parser.parse_args()
    try:
        draw(json.load(options.source), options.target)
    except ModuleNotFoundError:
        from benchmarks.rivals.venv import python

        command = [python(), "-m", "benchmarks.soak.plot", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
