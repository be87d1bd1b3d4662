"""The command line of `python -m benchmarks`, refused where it cannot mean what it says."""

import argparse
from collections.abc import Sequence

from benchmarks import growth
from benchmarks.arguments import folder, in_range, new_file, several
from benchmarks.rivals.system import RECIPES
from benchmarks.rounds import FLOORS
from benchmarks.suite import WORKLOADS

SYSTEMS = ("duly", "duly_json", "duly_transactional", *(recipe.name for recipe in RECIPES))
WORKS = (*WORKLOADS, *FLOORS)
_MOST_TASKS = 1_000_000
_MOST_EACH = 64


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read it; what is wrong is told on stderr, with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Duly and its rivals on the same work, in one run; see docs/benchmarks.md",
    )
    add = parser.add_argument
    add(
        "--only",
        nargs="+",
        default=[],
        choices=[*SYSTEMS, *WORKS],
        metavar="NAME",
        help=f"systems ({', '.join(SYSTEMS)}) and workloads ({', '.join(WORKS)}); systems alone: all workloads but "
        "the floors; workloads alone: all systems",
    )
    add("--runs", type=in_range(1, 100), default=3, help="rounds (default: 3)")
    add(
        "--tasks",
        type=in_range(1, _MOST_TASKS),
        default=20_000,
        help="of the throughput workloads (default: 20000); the others have their own number, or this if it is less",
    )
    each = in_range(1, _MOST_EACH)
    add("--executors", type=each, default=1, help="of Duly, side by side; as are the next two")
    add("--processes", type=each, default=1, help="callback processes of each Executor")
    add("--slots", type=in_range(1, 1_000), default=8, help="tasks at a time in each of these")
    parts = ", ".join(growth.PARTS)
    add(
        "--growth",
        nargs="*",
        choices=growth.PARTS,
        metavar="PART",
        help=f"how Duly's cost grows, instead; no name: all of {parts}",
    )
    add(
        "--waiting",
        type=several(in_range(100, _MOST_TASKS)),
        default=list(growth.WAITING),
        metavar="SIZES",
        help="of that part of the growth, with commas between (default: 10000,100000,1000000)",
    )
    add("--sqs", action="store_true", help="what the SQS path costs Duly, instead, against moto's server")
    add(
        "--postgres",
        type=folder,
        metavar="BIN_FOLDER",
        help="which Postgres: a folder with initdb and postgres (default: as DULY_POSTGRES_BIN, or what is found)",
    )
    add("--json", type=new_file, help="keep every measurement in this file, as it comes; it is replaced")
    options = parser.parse_args(arguments)
    if (options.growth is not None or options.sqs) and options.only:
        parser.error("--only chooses what is measured side by side: it does not go with --growth or --sqs")
    return options
