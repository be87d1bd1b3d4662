"""`python -m benchmarks.hosts`: CPU of Postgres and the server by backend as hosts grow, under load and idle.

Backends take turns within each round. With SQS the server sends to moto, whose own CPU is left out.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvloop

import duly
from benchmarks.arguments import in_range, new_file, several
from benchmarks.hosts.comparison import SQS, STORE, Measured, report
from benchmarks.hosts.installation import installed
from benchmarks.hosts.load import Pace, measure, register
from benchmarks.machine import machine

_MOST_QUEUES = 50
"""Of moto: it spends a thread's polling on each."""


async def rounds(options: argparse.Namespace) -> list[Measured]:
    """Measure every case in every round."""
    found: list[Measured] = []
    for _ in range(options.rounds):
        for servers in options.servers:
            for backend in (STORE, SQS):
                async for each in _one_installation(backend, servers, options):
                    found.append(each)
                    print(each, flush=True)
                    if options.json:
                        kept = {"machine": machine(), "measured": [one.as_json() for one in found]}
                        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return found


async def _one_installation(
    backend: str, servers: int, options: argparse.Namespace
) -> AsyncIterator[Measured]:
    pace = Pace(options.rate, options.seconds)
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with (
            installed(backend, servers, folder) as here,
            duly.AsyncClient(here.frontend) as client,
        ):
            for lambdas, hosts in _cases(backend, options.hosts):
                names = await register(here, 1 if lambdas == "one" else hosts)
                cost = await measure(here, client, names, hosts, pace)
                yield Measured(backend, servers, lambdas, hosts, cost)


def _cases(backend: str, numbers: list[int]) -> Iterator[tuple[str, int]]:
    """All hosts with one lambda first: those that are registered are polled by the Store Consumer from then on."""
    yield from (("one", hosts) for hosts in numbers)
    yield from (
        ("each", hosts)
        for hosts in sorted(numbers)
        if hosts > 1 and (backend == STORE or hosts <= _MOST_QUEUES)
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts", description=__doc__)
    add = parser.add_argument
    numbers = several(in_range(1, 1_000))
    add("--hosts", type=numbers, default=[1, 10, 50, 200], help="default: 1,10,50,200")
    add(
        "--servers",
        type=several(in_range(1, 4)),
        default=[1],
        help="server processes, each an HSC and a Store Consumer, with commas between (default: 1)",
    )
    add("--rate", type=in_range(1, 5_000), default=200, help="tasks a second, one a call (default: 200)")
    add("--seconds", type=in_range(1, 600), default=4, help="of load, and of idleness (default: 4)")
    add("--rounds", type=in_range(1, 100), default=2, help="default: 2")
    add("--json", type=new_file, help="keep every measurement in this file, as it comes; it is replaced")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parse()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(report(runner.run(rounds(options))))


if __name__ == "__main__":
    main()
