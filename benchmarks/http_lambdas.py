"""`python -m benchmarks.http_lambdas`: 10,000 tasks posted to a local server, against an async callback that does nothing.

In turns with a floor: as many requests, signed and with as many at a time, by the sender of HTTP lambdas without Duly.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import psycopg

import duly
from benchmarks import cpu
from duly import webhooks
from duly_cli.startup.light_start import http_lambdas
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import StackOptions
from duly_local.stack import LocalStack
from duly_wire.guarded_http import Sender

PAYLOAD = {"number": 1, "padding": "x" * 70}
LAMBDA = "bench.async"
_READY_WITHIN = timedelta(minutes=2)
_LONGEST = timedelta(minutes=5)
_WARM_UP = 200
_MINUTE = timedelta(minutes=1)

app = duly.App(owner="benchmarks", version="1")


@app.callback(LAMBDA)
async def nothing(_: dict[str, object]) -> None:
    """Nothing: what is measured is Duly."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one way cost."""

    seconds: float
    cpu_us_per_task: dict[str, float]


async def measure(tasks: int, rounds: int, slots: int) -> dict[str, list[Round]]:
    """Run each way so often, in turns."""
    found: dict[str, list[Round]] = {"HTTP lambda": [], "async callback": [], "requests alone": []}
    async with _receiver() as url:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="duly-bench-") as name:
                file = _write_file(Path(name), url)
                found["HTTP lambda"].append(await through_duly(http_lambdas(str(file)), tasks, slots))
            found["async callback"].append(await through_duly("benchmarks.http_lambdas:app", tasks, slots))
            found["requests alone"].append(await _alone(url, tasks, slots))
    return found


@asynccontextmanager
async def _receiver() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.http_receiver",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_READY_WITHIN.total_seconds()):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.stdin.close()
        await process.wait()


def _write_file(folder: Path, url: str) -> Path:
    (folder / "key").write_text(webhooks.new_key(), encoding="ascii")
    file = folder / "http.toml"
    file.write_text(
        f'[keys]\nk = {{ file = "key" }}\n[network]\nallow = ["127.0.0.1/32"]\nallow_plaintext = true\n'
        f'[lambdas."{LAMBDA}"]\nurl = "{url}"\nkeys = ["k"]\n',
        encoding="ascii",
    )
    return file


async def through_duly(application: str, tasks: int, slots: int) -> Round:
    """Schedule all, and wait until the last has ended."""
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        options = StackOptions(
            data_directory=folder / "data", apps=(application,), slots=slots, ports="free", console=False
        )
        with (folder / "duly.log").open("ab") as log:
            async with (
                LocalStack(
                    options, MergedOutput(log), SupervisionTiming(ready_within=_READY_WITHIN)
                ) as stack,
                duly.AsyncClient(stack.frontend_address) as client,
            ):
                await _run(client, stack.dsn, _WARM_UP)
                before, started = cpu.seconds_by_process(os.getpid()), time.perf_counter()
                await _run(client, stack.dsn, tasks)
                return _round(before, started, tasks)


async def _run(client: duly.AsyncClient, dsn: str, tasks: int) -> None:
    await client.schedule_many([duly.NewTask(LAMBDA, PAYLOAD) for _ in range(tasks)])
    async with (
        asyncio.timeout(_LONGEST.total_seconds()),
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
    ):
        while await _live(connection):  # noqa: ASYNC110 (the event is in Postgres)
            await asyncio.sleep(0.05)


async def _live(connection: psycopg.AsyncConnection) -> int:
    cursor = await connection.execute("select count(*) from (select from task_assoc limit 1) live")
    row = await cursor.fetchone()
    return row[0] if row else 0


async def _alone(url: str, tasks: int, at_a_time: int) -> Round:
    sender = Sender((ip_network("127.0.0.1/32"),), _MINUTE, "")
    key = {"k": webhooks.key_from_text(webhooks.new_key())}
    body = b'{"number":1,"padding":"' + b"x" * 70 + b'"}'
    left = iter(range(tasks))

    async def post() -> None:
        for number in left:
            headers = webhooks.signed_headers(
                key,
                body,
                task_id="01a215a0-ca0b-73b6-8abb-0cb44ca4f999",
                lambda_name=LAMBDA,
                attempt=1,
                fence=number,
                deadline=datetime.now(UTC) + _MINUTE,
            )
            headers["content-type"] = "application/json"
            answer = await sender.post(url, body, headers, 1_000, _MINUTE)
            assert answer.status == 200

    before, started = cpu.seconds_by_process(os.getpid()), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(post())
    measured = _round(before, started, tasks)
    await sender.close()
    return measured


def _round(before: Counter[str], started: float, tasks: int) -> Round:
    seconds = time.perf_counter() - started
    used = cpu.seconds_by_process(os.getpid())
    used.subtract(before)
    return Round(seconds, {name: value * 1e6 / tasks for name, value in used.items()})


def print_medians(found: Mapping[str, list[Round]], tasks: int, slots: int, times: int) -> None:
    """Print a line for each way."""
    print(f"{tasks:,} tasks, {slots} at a time, medians of {times}:")
    for name, rounds in found.items():
        seconds = statistics.median(each.seconds for each in rounds)
        processes = sorted({process for each in rounds for process in each.cpu_us_per_task})
        medians = {
            process: statistics.median(each.cpu_us_per_task.get(process, 0) for each in rounds)
            for process in processes
        }
        told = ", ".join(f"{process} {value:.0f}" for process, value in medians.items() if value >= 1)
        print(f"{name:<15} {seconds:6.2f} s  {tasks / seconds:6.0f} a second  CPU each, us: {told}")


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=32)
    options = parser.parse_args()
    found = asyncio.run(measure(options.tasks, options.rounds, options.slots))
    print_medians(found, options.tasks, options.slots, options.rounds)


if __name__ == "__main__":
    main()
