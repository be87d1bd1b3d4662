"""`python -m tests.chaos`: breaks a whole Duly on purpose for a while, and judges what became of the tasks.

Exit codes: 0 all guarantees held, 1 one was broken, 2 nothing can be said.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import os
import sys
from pathlib import Path

from duly_core.process.parent import die_with_parent
from tests.chaos.campaign import Campaign
from tests.chaos.mutation_search import MutationSearch
from tests.chaos.mutations import MUTATIONS
from tests.chaos.plan import KINDS
from tests.chaos.shared import Shared
from tests.chaos.single import plan_of, run_single
from tests.chaos.topology import TIMINGS, TOPOLOGIES


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="everything random follows from it (default 1)")
    parser.add_argument("--seconds", type=float, default=60, help="of traffic with faults (default 60)")
    parser.add_argument("--rate", type=float, default=12, help="tasks a second (default 12)")
    parser.add_argument(
        "--queue", choices=("any", "store", "sqs"), default="any", help="any: SQS in every fifth seed"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND", help="only such faults; may be repeated"
    )
    parser.add_argument("--no-faults", action="store_true", help="traffic only")
    parser.add_argument(
        "--topology",
        choices=tuple(TOPOLOGIES),
        default="any",
        help="several: services and hosts in twos and threes",
    )
    parser.add_argument(
        "--profile",
        choices=tuple(TIMINGS),
        default="",
        help="of the timing (default: short leases if there are faults)",
    )
    parser.add_argument(
        "--auth",
        action="store_true",
        help="each caller needs a token and a role (default: in every fourth seed)",
    )
    parser.add_argument("--subreaper", action="store_true", help="hosts without cgroups")
    parser.add_argument(
        "--folder", type=Path, help="where a run keeps its files (default: a temporary folder)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of a run that went well, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--plan", action="store_true", help="show the plan, and do nothing")
    parser.add_argument("--runs", type=int, default=1, help="a campaign: seeds from --seed on")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time in a campaign")
    parser.add_argument(
        "--mutation",
        choices=tuple(MUTATIONS),
        default="",
        metavar="NAME",
        help="without this guard: " + ", ".join(MUTATIONS),
    )
    parser.add_argument(
        "--mutations",
        action="store_true",
        help="without each guard in turn (or that of --mutation), until a run finds it or ten minutes are over",
    )
    parser.add_argument("--kinds", action="store_true", help="list the kinds of faults")
    return parser.parse_args()


def main() -> int:
    """Run what the command line says; the exit code."""
    die_with_parent()
    # Executors and callback processes start anew in a run: compiling the product for each would cost much.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = _arguments()
    if arguments.kinds:
        print(*KINDS, sep="\n")
        return 0
    try:
        plan = plan_of(arguments.seed, arguments)
    except ValueError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 2
    if arguments.plan:
        print(plan.topology, *plan.faults, sep="\n")
        return 0
    if arguments.mutations:
        return MutationSearch(arguments).run()
    if arguments.runs > 1:
        return Campaign(arguments).run()
    return run_single(plan, arguments, Shared())


if __name__ == "__main__":
    sys.exit(main())
