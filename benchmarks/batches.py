"""`python -m benchmarks.batches`: 10,000 tasks for a callback that does nothing, one a call and a hundred a call, in turns."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
from datetime import timedelta

import duly
from benchmarks.http_lambdas import LAMBDA, Round, print_medians, through_duly

single = duly.App(owner="benchmarks", version="1")
batched = duly.App(owner="benchmarks", version="1")


@single.callback(LAMBDA)
def one(_: dict[str, object]) -> None:
    """Nothing: what is measured is Duly."""


@batched.callback(LAMBDA, batch=duly.Batch(size=100, wait=timedelta(milliseconds=50)))
def hundred(_: list[dict[str, object]]) -> None:
    """The same."""


async def measure(tasks: int, rounds: int, slots: int) -> dict[str, list[Round]]:
    """Run each way so often, in turns."""
    found: dict[str, list[Round]] = {"one a call": [], "100 a call": []}
    for _ in range(rounds):
        found["one a call"].append(await through_duly("benchmarks.batches:single", tasks, slots))
        found["100 a call"].append(await through_duly("benchmarks.batches:batched", tasks, slots))
    return found


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8)
    options = parser.parse_args()
    found = asyncio.run(measure(options.tasks, options.rounds, options.slots))
    print_medians(found, options.tasks, options.slots, options.rounds)


if __name__ == "__main__":
    main()
