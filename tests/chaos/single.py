"""One run for people: the replay command first, the report last, the files kept when something was wrong."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import uvloop

from tests.chaos.checker import check
from tests.chaos.fork_client import ForkServer
from tests.chaos.mutations import MUTATIONS
from tests.chaos.plan import Plan, make_plan
from tests.chaos.report import as_json, show
from tests.chaos.runner import Run, RunFailedError
from tests.chaos.saved_history import dump
from tests.chaos.shared import Shared

EXIT_HELD, EXIT_BROKEN, EXIT_INCONCLUSIVE = 0, 1, 2


def plan_of(seed: int, arguments: argparse.Namespace) -> Plan:
    """Make a seed's plan as the command line wants it.

    Raises:
        ValueError: it names an unknown kind of fault.
    """
    mutation = MUTATIONS[arguments.mutation] if arguments.mutation else None
    queue = mutation.queue if mutation is not None and arguments.queue == "any" else arguments.queue
    return make_plan(
        seed,
        arguments.seconds,
        queue=queue,
        only=arguments.only,
        topology=arguments.topology,
        faults=not arguments.no_faults,
        profile=arguments.profile,
        auth=arguments.auth or (mutation is not None and mutation.auth),
        weaker_containment=arguments.subreaper,
        mutation=arguments.mutation,
    )


def run_single(plan: Plan, arguments: argparse.Namespace, shared: Shared) -> int:
    """Run it, report it; the exit code. Call it before this process has threads or connections."""
    if plan.mutation:
        MUTATIONS[plan.mutation].plant()
    fork_server = ForkServer()
    replay = replay_command(plan, arguments)
    print(f"chaos: seed {plan.seed}; to replay: {replay}", flush=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="duly-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    try:
        # Every byte of the system goes through our proxies: on asyncio's own loop they cost as much as a service.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(Run(plan, folder, arguments.rate, fork_server, shared).execute())
    except Exception as error:  # noqa: BLE001 (whatever it is, it is no violation: nothing was judged)
        if not isinstance(error, RunFailedError):
            traceback.print_exc()
        print(
            f"chaos: seed {plan.seed}: the run failed: {error}\n  its files: {folder}\n  to replay: {replay}"
        )
        _write(
            arguments.json, {"seed": plan.seed, "exit": EXIT_INCONCLUSIVE, "error": str(error) or repr(error)}
        )
        return EXIT_INCONCLUSIVE
    verdict = check(outcome.history)
    figures = as_json(outcome, verdict)
    violations = [*figures["violations"], *outcome.problems]
    code = EXIT_BROKEN if violations else EXIT_INCONCLUSIVE if figures["inconclusive"] else EXIT_HELD
    figures["exit"], figures["replay"] = code, replay
    if code == EXIT_HELD and not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        figures["folder"] = str(folder)
        (folder / "report.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
        dump(outcome.history, folder / "history.json")  # for `python -m tests.chaos.checker`
    show(outcome, figures)
    _write(arguments.json, figures)
    sys.stdout.flush()
    return code


def replay_command(plan: Plan, arguments: argparse.Namespace) -> str:
    """What makes the same plan again."""
    parts = ["python -m tests.chaos", f"--seed {plan.seed}", f"--seconds {plan.seconds:g}"]
    parts += [f"--rate {arguments.rate:g}", f"--queue {plan.queue}"]
    parts += [f"--only {kind}" for kind in arguments.only]
    parts += [f"--topology {arguments.topology}"] if arguments.topology != "any" else []
    parts += [f"--profile {arguments.profile}"] if arguments.profile else []
    parts += [f"--mutation {plan.mutation}"] if plan.mutation else []
    for option in ("no_faults", "auth", "subreaper"):
        parts += [f"--{option.replace('_', '-')}"] if getattr(arguments, option) else []
    return " ".join(parts)


def _write(path: Path | None, figures: dict[str, object]) -> None:
    if path is not None:
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
