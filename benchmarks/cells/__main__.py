"""`python -m benchmarks.cells`: CPU of a task in 1, 2 and 4 cells, the guard, an idle cell, the loss of one, and a model to 100.

Tasks come at one rate in all, and at one for each cell. Installations take turns within each round. All parts take half an hour on a quiet machine of two cores.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import uvloop

from benchmarks.arguments import in_range, new_file, several
from benchmarks.cells.guard import GROUPS, Guard, measure_guard
from benchmarks.cells.idle import Idle, measure_idle
from benchmarks.cells.load import Load, measure_load
from benchmarks.cells.loss import HOW, Loss, measure_loss
from benchmarks.cells.simulation import CellCost, Estimate, call_cost, estimate, slope
from benchmarks.machine import machine
from benchmarks.tables import rows, spread

PARTS = ("tasks", "growth", "guard", "idle", "loss")
_MODEL = (1, 2, 4, 16, 50, 100)


async def measure(options: argparse.Namespace) -> dict[str, list[Any]]:
    """Measure the parts that were asked for, and keep each measurement as it comes."""
    found: dict[str, list[Any]] = {name: [] for name in PARTS}

    def keep(name: str, each: Load | Guard | Idle | Loss) -> None:
        found[name].append(each)
        print(each, flush=True)
        if options.json:
            kept = {part: [one.as_json() for one in of_part] for part, of_part in found.items()}
            options.json.write_text(
                json.dumps({"machine": machine(), **kept}, indent=1) + "\n", encoding="utf-8"
            )

    if "tasks" in options.parts:
        for _ in range(options.rounds):
            for cells in (0, *options.cells):
                keep("tasks", await measure_load(cells, options.rate, options.seconds))
    if "growth" in options.parts:
        for _ in range(options.rounds):
            for cells in (0, *options.cells):
                rate = options.rate_per_cell * max(1, cells)
                keep("growth", await measure_load(cells, rate, options.seconds))
    if "guard" in options.parts:
        for guard in await asyncio.to_thread(measure_guard, options.rounds):
            keep("guard", guard)
    if "idle" in options.parts:
        for cells in sorted({1, *options.idle_cells}):
            keep("idle", await measure_idle(cells, options.idle_seconds))
    if "loss" in options.parts:
        for how in HOW:
            keep("loss", await measure_loss(options.seconds, how))
    return found


def report(found: dict[str, list[Any]]) -> str:
    """Return tables of what was measured, and of the model."""
    parts = []
    if found["tasks"]:
        parts.append(_tasks(found["tasks"]))
    if found["growth"]:
        parts.append(_tasks(found["growth"]))
    if found["guard"]:
        parts.append(_guard(found["guard"]))
    if found["loss"]:
        parts += map(_loss, found["loss"])
    if found["idle"]:
        parts += _idle(found["idle"])
    return "\n\n".join(parts)


def _tasks(loads: Sequence[Load]) -> str:
    sole = statistics.median(each.total for each in loads if each.cells == 0)
    body = []
    for cells in sorted({each.cells for each in loads}):
        runs = [each for each in loads if each.cells == cells]
        parts = (spread([each.cpu_us.get(name, 0.0) for each in runs]) for name in ("server", "postgres"))
        total = statistics.median(each.total for each in runs)
        body.append(
            [
                str(cells) if cells else "sole store",
                f"{runs[0].rate:,}",
                *parts,
                spread([each.total for each in runs]),
                f"{total / sole:.2f}",
            ]
        )
    return rows(
        ["cells", "tasks/s", "server, us a task", "postgres, us a task", "all, us a task", "ratio"], body
    )


def _guard(guards: Sequence[Guard]) -> str:
    body = []
    for group in GROUPS:
        runs = [each.cpu_us for each in guards if each.group == group]
        without, guarded = ([each[kind] for each in runs] for kind in runs[0])
        ratios = [more / less for more, less in zip(guarded, without, strict=True)]
        body.append([str(group), spread(without, 1), spread(guarded, 1), spread(ratios, 2)])
    return rows(["tasks a statement", "without guards, us a task", "with guards", "ratio"], body)


def _loss(loss: Loss) -> str:
    body = [
        [when, f"{loss.calls[when]:,}", f"{loss.failed[when]:,}"]
        + ([f"{each:,.1f}" for each in loss.percentiles(when)] if loss.took_ms.get(when) else ["-", "-", "-"])
        for when in sorted(loss.calls)
    ]
    table = rows(["namespaces", "calls", "failed", "p50, ms", "p99, ms", "max, ms"], body)
    told = f"The Postgres of one cell {loss.how}. Tasks of it that have not ended after it is back: {loss.unfinished}."
    return f"{told}\n\n{table}"


def _idle(measured: Sequence[Idle]) -> list[str]:
    """Fit the model to the fewest and the most cells, and hold it against the others."""
    few, many = measured[0], measured[-1]
    first, last = _cost(few), _cost(many)
    last = replace(last, call_ms=call_cost(many.cells, few.call_ms, many.call_ms))
    more = slope((few.cells, first), (many.cells, last))
    told = (
        f"One more idle cell: {more.mib:.1f} MiB, {more.cpu_ms / 10:.2f} % of a core, {more.connections:.1f} connections, "
        f"{more.statements:.1f} transactions a second ({few.cells} and {many.cells} cells measured)."
    )
    estimates = [_estimated(estimate(cells, first, more, few.call_ms)) for cells in _MODEL]
    held = []
    for each in measured:
        found = _cost(each)
        calls = sorted(each.call_ms)
        predicted = estimate(each.cells, first, more, few.call_ms, away=0)
        held.append(
            [
                str(each.cells),
                f"{found.cpu_ms / 10:.1f} / {predicted.cpu_percent:.1f}",
                f"{found.mib:,.0f} / {predicted.mib:,.0f}",
                f"{found.connections:.0f} / {predicted.connections:.0f}",
                f"{found.statements:.0f} / {predicted.statements:.0f}",
                f"{statistics.median(calls):.1f} / {predicted.list_p50_ms:.1f}",
                f"{calls[int(len(calls) * 0.99)]:.1f} / {predicted.list_p99_ms:.1f}",
            ]
        )
    head = [
        "cells",
        "CPU idle, % of a core",
        "MiB",
        "connections",
        "transactions/s",
        "all cells, p50 ms",
        "p99 ms",
    ]
    return [
        told,
        "Measured / by the model:",
        rows(head, held),
        "The model:",
        rows([*head, "partial answers"], estimates),
    ]


def _cost(each: Idle) -> CellCost:
    return CellCost(sum(each.cpu_ms.values()), sum(each.mib.values()), each.connections, each.transactions)


def _estimated(one: Estimate) -> list[str]:
    return [
        str(one.cells),
        f"{one.cpu_percent:.1f}",
        f"{one.mib:,.0f}",
        f"{one.connections:.0f}",
        f"{one.statements:.0f}",
        f"{one.list_p50_ms:.0f}",
        f"{one.list_p99_ms:.0f}",
        f"{one.partial_share:.1%}",
    ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cells", description=__doc__)
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    add("--cells", type=several(in_range(1, 16)), default=[1, 2, 4], help="default: 1,2,4")
    add(
        "--rate",
        type=in_range(1, 5_000),
        default=200,
        help="tasks a second in all cells together (default: 200)",
    )
    add(
        "--rate-per-cell",
        type=in_range(1, 5_000),
        default=100,
        help="tasks a second in each cell, in the part growth (default: 100)",
    )
    add("--seconds", type=in_range(1, 600), default=10, help="of load (default: 10)")
    add("--rounds", type=in_range(1, 100), default=3, help="default: 3")
    add(
        "--idle-cells",
        type=several(in_range(2, 60)),
        default=[2, 4, 16],
        help="compared with one; the model is fitted to one and the most, and held against the others (default: 2,4,16)",
    )
    add(
        "--idle-seconds",
        type=in_range(1, 3_600),
        default=60,
        help="default: 60, after a pause of a minute and 12 s a cell",
    )
    add("--json", type=new_file, help="keep every measurement in this file, as it comes; it is replaced")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)}: there are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


def main() -> None:
    """Measure and print."""
    options = parse()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(report(runner.run(measure(options))))


if __name__ == "__main__":
    main()
