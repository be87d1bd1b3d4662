"""`python -m tests.zones`: Duly in three zones of a network that is cut, slowed and killed, and what became of the tasks.

Exit codes: 0 all guarantees held, 1 one was broken, 2 nothing can be said.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from duly_core.process.parent import PARENT_PID, die_with_parent
from tests.zones.database import make_template
from tests.zones.network import remove_leftovers
from tests.zones.plan import KINDS, KINDS_OF_SQS, make_plan
from tests.zones.requirements import what_is_missing
from tests.zones.single import EXIT_BROKEN, EXIT_HELD, EXIT_INCONCLUSIVE, replay_command, run_single
from tests.zones.times import read_flows, table

_BEYOND_TRAFFIC_S = 300


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.zones",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="everything random follows from it (default 1)")
    parser.add_argument("--runs", type=int, default=1, help="seeds from --seed on (default 1)")
    parser.add_argument("--seconds", type=float, default=60, help="of traffic with faults (default 60)")
    parser.add_argument("--rate", type=float, default=12, help="tasks a second (default 12)")
    parser.add_argument(
        "--queue", choices=("store", "sqs"), default="store", help="sqs: outside of the zones (default store)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND", help="only such faults; may be repeated"
    )
    parser.add_argument(
        "--folder", type=Path, help="where runs keep their files (default: a temporary folder)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of runs that went well, too")
    parser.add_argument("--plan", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("--kinds", action="store_true", help="list the kinds of faults")
    return parser.parse_args()


def main() -> int:
    """Run what the command line says; the worst exit code."""
    die_with_parent()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = _arguments()
    if arguments.kinds:
        print(*KINDS, sep="\n")
        print(*(f"{name} (with --queue sqs)" for name in KINDS_OF_SQS), sep="\n")
        return EXIT_HELD
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    try:
        plans = [
            make_plan(seed, arguments.seconds, queue=arguments.queue, only=arguments.only) for seed in seeds
        ]
    except ValueError as error:
        print(f"zones: {error}", file=sys.stderr)
        return EXIT_INCONCLUSIVE
    if arguments.plan:
        for plan in plans:
            print(f"seed {plan.seed}", *plan.faults, sep="\n  ")
        return EXIT_HELD
    if missing := what_is_missing():
        print(f"zones: {missing}", file=sys.stderr)
        return EXIT_INCONCLUSIVE
    folder: Path = arguments.folder or Path(tempfile.mkdtemp(prefix="duly-zones-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    template = folder / "template"
    shutil.rmtree(template, ignore_errors=True)
    make_template(template)
    gc.collect()
    gc.freeze()
    reports = []
    for plan in plans:
        reports.append(_run(plan, arguments, folder, template))
        remove_leftovers()
    print(*table(read_flows(reports)), sep="\n")
    codes = [report["exit"] for report in reports]
    print(f"runs {len(codes)}: {codes.count(0)} held, {codes.count(1)} broken, {codes.count(2)} undecided")
    if arguments.folder is None and not any(codes):
        shutil.rmtree(folder, ignore_errors=True)
    return EXIT_BROKEN if EXIT_BROKEN in codes else max(codes)


def _run(plan: Any, arguments: argparse.Namespace, folder: Path, template: Path) -> dict[str, Any]:
    """Run one plan in a process of its own, because it enters a namespace."""
    own = folder / f"seed-{plan.seed}"
    report, log = own.with_suffix(".json"), own.with_suffix(".log")
    shutil.rmtree(own, ignore_errors=True)
    report.unlink(missing_ok=True)
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        code = EXIT_INCONCLUSIVE
        try:
            os.environ[PARENT_PID] = str(parent)
            die_with_parent()
            if arguments.runs > 1:
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(output, 1)
                os.dup2(output, 2)
            replay = replay_command(plan, arguments.rate, arguments.only)
            code = run_single(plan, own, arguments.rate, template, report, replay, keep=arguments.keep)
            sys.stdout.flush()
        finally:
            os._exit(code)
    until = time.monotonic() + plan.seconds + _BEYOND_TRAFFIC_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    try:
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"seed": plan.seed, "exit": EXIT_INCONCLUSIVE, "error": "it ended without a report"}
    with (folder / "runs.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(found) + "\n")
    report.unlink(missing_ok=True)
    verdict = ("held", "BROKEN", "undecided")[found["exit"]]
    said = found.get("error") or (
        f"{found['acked']} tasks, {len(found['flows'])} faults, longest without a start "
        f"{max((each['started_s'] for each in found['flows']), default=0):.1f} s, {found['wall_s']} s"
    )
    print(f"seed {plan.seed}: {verdict}: {said}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
