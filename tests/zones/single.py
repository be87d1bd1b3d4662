"""One run: the network, the processes, the faults, the judgement."""

import asyncio
import json
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from tests.chaos.checker import check
from tests.chaos.fork_client import ForkServer
from tests.chaos.plan import Plan
from tests.chaos.report import as_json, show
from tests.chaos.runner import Run, RunFailedError, Setup
from tests.chaos.saved_history import dump
from tests.chaos.shared import Shared
from tests.fixtures.namespaces import enter
from tests.zones import times
from tests.zones.faults import inject, wait_until_calm
from tests.zones.network import OUTSIDE, Network
from tests.zones.system import ZonedSystem

EXIT_HELD, EXIT_BROKEN, EXIT_INCONCLUSIVE = 0, 1, 2


def replay_command(plan: Plan, rate: float, only: Sequence[str]) -> str:
    """What makes the same plan again."""
    parts = [
        "python -m tests.zones",
        f"--seed {plan.seed}",
        f"--seconds {plan.seconds:g}",
        f"--rate {rate:g}",
    ]
    return " ".join([*parts, f"--queue {plan.queue}", *(f"--only {kind}" for kind in only)])


def run_single(
    plan: Plan, folder: Path, rate: float, template: Path, report: Path, replay: str, *, keep: bool
) -> int:
    """Run it, report it; the exit code. Call it before this process has threads; it enters a namespace."""
    network = Network(plan.seed)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    print(f"zones: seed {plan.seed}; to replay: {replay}", flush=True)
    try:
        network.start()
        fork_server = ForkServer()
        enter(network.namespace(OUTSIDE))

        def make_system(own: Path, planned: Plan, forks: ForkServer, _: Shared) -> ZonedSystem:
            return ZonedSystem(own, planned, forks, network, template)

        run = Run(plan, folder, rate, fork_server, Shared(), Setup(make_system, inject, wait_until_calm))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(run.execute())
    except Exception as error:  # noqa: BLE001 (whatever it is, nothing was judged)
        if not isinstance(error, RunFailedError):
            traceback.print_exc()
        print(
            f"zones: seed {plan.seed}: the run failed: {error}\n  its files: {folder}\n  to replay: {replay}"
        )
        _write(report, {"seed": plan.seed, "exit": EXIT_INCONCLUSIVE, "error": str(error) or repr(error)})
        return EXIT_INCONCLUSIVE
    finally:
        network.stop()
    verdict = check(outcome.history)
    figures = as_json(outcome, verdict)
    violations = [*figures["violations"], *outcome.problems]
    code = EXIT_BROKEN if violations else EXIT_INCONCLUSIVE if figures["inconclusive"] else EXIT_HELD
    found = times.flows(outcome.history)
    figures |= {"exit": code, "replay": replay, "flows": times.as_json(found)}
    if code == EXIT_HELD and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        figures["folder"] = str(folder)
        dump(outcome.history, folder / "history.json")  # for `python -m tests.chaos.checker`
    show(outcome, figures)
    for flow in found:
        busy = ", busy machine" if flow.busy else ""
        print(
            f"  {flow.fault.kind} {flow.fault.target} ({flow.fault.detail}): no schedule {flow.acked_s:.1f} s, "
            f"no start {flow.started_s:.1f} s, slowest start {flow.slowest_s:.1f} s{busy}"
        )
    _write(report, figures)
    sys.stdout.flush()
    return code


def _write(report: Path, figures: dict[str, Any]) -> None:
    report.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
