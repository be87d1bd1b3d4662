"""`python -m benchmarks.frozen_peer`: freezes or kills one of two Frontends or HSCs under load, and prints how late tasks start."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duly
from benchmarks import CALLBACK_ENVIRONMENT
from benchmarks.arguments import in_range, new_file, one_of, seconds, several
from benchmarks.percentiles import percentile
from benchmarks.recovery.app import STARTS
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import FRONTEND, HSC, Ports, StackOptions
from duly_local.services import child_specs
from duly_local.stack import LocalStack
from duly_local.supervisor import Supervisor

APP = "benchmarks.recovery.app:app"
PARTS = {"frontend": FRONTEND, "hsc": HSC}
SIGNALS = {"freeze": signal.SIGSTOP, "kill": signal.SIGKILL}
_READY_WITHIN = timedelta(minutes=3)
_BEFORE_S = 5.0
_AFTER_S = 5.0
_PAUSE_S = 0.05
"""Of each client between two calls, so that all clients together make a few dozen calls a second."""
_LOOK_S = 1.0
_CLAIMS = "duly_claims_total"
_LAST_STARTS_S = 60.0


@dataclass
class Calls:
    """What clients called: when each call began, by task, and what failed."""

    began: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    longest: float = 0.0

    def note(self, began_at: float, task: duly.ScheduledTask) -> None:
        """Note a call that succeeded."""
        self.began[task.task_id] = began_at
        self.longest = max(self.longest, time.time() - began_at)


@dataclass(frozen=True)
class Doubled:
    """Two Frontends, two HSCs, and workers that know all of them."""

    supervisors: tuple[Supervisor, Supervisor]
    hsc_metrics: tuple[str, str]
    """Where the metrics of each HSC are."""
    frontends: tuple[str, str]
    """Addresses, as clients are told: half of the clients have the second Frontend first."""


@asynccontextmanager
async def doubled(folder: Path, workers: int) -> AsyncIterator[Doubled]:
    """Start it in this folder."""
    os.environ |= {**CALLBACK_ENVIRONMENT, STARTS: str(folder / "starts")}
    timing = SupervisionTiming(ready_within=_READY_WITHIN)
    options = StackOptions(data_directory=folder / "data", separate=True, ports=Ports.free(()))
    async with AsyncExitStack() as stopping:
        output = MergedOutput(stopping.enter_context((folder / "duly.log").open("ab")))
        stack = await stopping.enter_async_context(LocalStack(options, output, timing))
        options_of_workers = replace(options, apps=(APP,) * workers)
        names_of_workers = tuple(options_of_workers.workers)
        ports = Ports.free(names_of_workers)

        async def start(*names: str) -> Supervisor:
            specs = child_specs(options_of_workers, stack.dsn, ports)
            peers = {name: f"{stack.ports.address(name)},{ports.address(name)}" for name in (FRONTEND, HSC)}
            told = {
                "DULY_CONTROLLER_FRONTEND_ADDRESS": peers[FRONTEND],
                "DULY_CONTROLLER_HSC_ADDRESS": peers[HSC],
                "DULY_EXECUTOR_JOURNAL_FOLDER": "",
            }
            chosen = [
                replace(spec, depends_on=(), env={**spec.env, **told}) for spec in specs if spec.name in names
            ]
            supervisor = Supervisor(chosen, output, timing)
            supervisor.start()
            stopping.push_async_callback(supervisor.stop)
            await supervisor.wait_until_ready(_READY_WITHIN)
            return supervisor

        second = await start(FRONTEND, HSC)
        await start(*names_of_workers)
        both = stack.ports.address(FRONTEND), ports.address(FRONTEND)
        metrics = stack.ports.metrics_address(HSC), ports.metrics_address(HSC)
        assert stack.supervisor is not None
        yield Doubled(
            (stack.supervisor, second),
            metrics,
            ("ipv4:" + ",".join(both), "ipv4:" + ",".join(reversed(both))),
        )


async def measure(part: str, way: str, frozen: float, workers: int) -> dict[str, Any]:
    """Freeze (for so long) or kill one of two parts while clients schedule; lateness from the call to the task's start."""
    with tempfile.TemporaryDirectory(prefix="duly-frozen-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with doubled(folder, workers) as there:
            calls, ended = Calls(), threading.Event()
            async with AsyncExitStack() as clients:
                running = []
                for address in there.frontends * 2:
                    client = await clients.enter_async_context(duly.AsyncClient(address))
                    running.append(asyncio.ensure_future(_schedule(client, calls, ended)))
                    running.append(
                        asyncio.ensure_future(asyncio.to_thread(_schedule_blocking, address, calls, ended))
                    )
                await asyncio.sleep(_BEFORE_S)
                claims = [await asyncio.to_thread(_claims, each) for each in there.hsc_metrics]
                await asyncio.sleep(_LOOK_S)
                claimed = [
                    await asyncio.to_thread(_claims, each) - before
                    for each, before in zip(there.hsc_metrics, claims, strict=True)
                ]
                # the HSC that is in use; of the Frontends both are
                victim = there.supervisors[claimed.index(max(claimed))]
                pid = victim.pids()[PARTS[part]]
                stopped_at = time.time()
                os.kill(pid, SIGNALS[way])
                try:
                    await asyncio.sleep(frozen)
                finally:
                    if way == "freeze":
                        os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(_AFTER_S)
                ended.set()
                await asyncio.gather(*running)
            starts = await _starts(folder / "starts", set(calls.began))
    return _figures(calls, starts, stopped_at)


def _claims(metrics: str) -> float:
    """Return how many tasks an HSC has claimed so far."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(_CLAIMS))


def _measured(part: str, way: str, frozen: float, workers: int) -> dict[str, Any]:
    return asyncio.run(measure(part, way, frozen, workers))


async def _schedule(client: duly.AsyncClient, calls: Calls, ended: threading.Event) -> None:
    while not ended.is_set():
        began_at = time.time()
        try:
            calls.note(began_at, await client.schedule("recovery.start"))
        except duly.DulyError as error:
            calls.failed.append(str(error))
        await asyncio.sleep(_PAUSE_S)


def _schedule_blocking(address: str, calls: Calls, ended: threading.Event) -> None:
    with duly.Client(address) as client:
        while not ended.wait(_PAUSE_S):
            began_at = time.time()
            try:
                calls.note(began_at, client.schedule("recovery.start"))
            except duly.DulyError as error:
                calls.failed.append(str(error))


async def _starts(noted: Path, tasks: set[str]) -> dict[str, float]:
    """Return when each task started first; waits until all have."""
    deadline = time.monotonic() + _LAST_STARTS_S
    while True:
        starts: dict[str, float] = {}
        for line in noted.read_text(encoding="utf-8").splitlines():
            task_id, nanoseconds, _ = line.split()
            starts.setdefault(task_id, int(nanoseconds) / 1e9)
        if tasks <= starts.keys() or time.monotonic() > deadline:
            return starts
        await asyncio.sleep(1)


def _figures(calls: Calls, starts: dict[str, float], stopped_at: float) -> dict[str, Any]:
    """Return the figures of the calls from the last second before the part was away until some seconds after."""
    late = sorted(
        starts[task] - began
        for task, began in calls.began.items()
        if stopped_at - 1 <= began and task in starts
    )
    return {
        "tasks": len(late),
        "p50": round(percentile(late, 0.5), 3),
        "p99": round(percentile(late, 0.99), 3),
        "p999": round(percentile(late, 0.999), 3),
        "max": round(late[-1], 3),
        "longest call": round(calls.longest, 3),
        "calls failed": len(calls.failed),
        "first failure": calls.failed[0] if calls.failed else "",
        "never started": len(calls.began.keys() - starts.keys()),
    }


def main() -> None:
    """Measure, print, and keep the figures with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frozen_peer", description=__doc__)
    parser.add_argument("--parts", type=several(one_of(tuple(PARTS))), default=list(PARTS))
    parser.add_argument("--ways", type=several(one_of(tuple(SIGNALS))), default=list(SIGNALS))
    parser.add_argument("--rounds", type=in_range(1, 100), default=1)
    parser.add_argument("--workers", type=in_range(1, 10), default=1)
    parser.add_argument("--frozen", type=seconds, default=20.0, help="seconds that the part is frozen")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    measured: dict[str, list[dict[str, Any]]] = {}
    # each in a process of its own: programs are not to be started by one that has used gRPC
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as processes:
        for _, way, part in itertools.product(range(options.rounds), options.ways, options.parts):
            figures = processes.submit(_measured, part, way, options.frozen, options.workers).result()
            measured.setdefault(f"{way} one of two, {part}", []).append(figures)
            print(f"{way} {part}: {json.dumps(figures)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
