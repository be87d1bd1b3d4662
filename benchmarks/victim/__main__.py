"""`python -m benchmarks.victim`: how long one caller waits while another attacks, for each of thirteen attacks.

The victim makes five calls a second, by turns a Schedule of one task and a GetTask of it, whether or not those before are
answered. The attacker is another principal, in a process of its own, and does not wait when it is refused.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import in_range, new_file, one_of, several
from benchmarks.machine import machine
from benchmarks.percentiles import percentile
from benchmarks.system import Driver, Program
from benchmarks.victim.attacks import ATTACKS, LAMBDA
from benchmarks.victim.installation import ATTACKER, VICTIM, Installation, installed
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, registry_pb2, registry_pb2_grpc

TARGET_MS = 100.0
"""p95 of the victim beside each attack, on two quiet cores."""
_A_SECOND = 5
_PATIENCE = 10.0
_WARM_UP = 1.0
_REST = 2.0
_PRELOADED = 20_000
_A_CALL = 1_000
_A_DAY = 86_400
_MIB = 1024 * 1024
_VICTIM_LAMBDA = f"{VICTIM}.work"
_FROM = "127.0.0.2"
"""The address of the victim's browser: the attacker's is 127.0.0.1."""

Call = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """What the victim saw beside one attack."""

    attack: str
    p50_ms: float
    p95_ms: float
    max_ms: float
    calls: int
    failed: int
    """Of the victim's calls."""
    answers: dict[str, int]
    """To the attacker."""


class Victim:
    """Calls the Frontend, or the console."""

    def __init__(self, target: Installation) -> None:
        self._target = target
        self._channel = target.channel()
        self._stub: Any = frontend_pb2_grpc.FrontendServiceStub(self._channel)
        self._metadata = target.metadata(VICTIM)
        self._task_ids: list[str] = []
        self._tls = ssl.create_default_context(cafile=str(target.authority))

    async def call(self, number: int) -> None:
        """Schedule a task, or read the one before."""
        if number % 2 and self._task_ids:
            request = frontend_pb2.GetTaskRequest(task_ids=self._task_ids[-1:])
            await self._stub.GetTask(request, timeout=_PATIENCE, metadata=self._metadata)
            return
        request = frontend_pb2.ScheduleRequest()
        task = request.tasks.add(payload=b"x" * 100)
        setattr(task, "lambda", _VICTIM_LAMBDA)
        task.delay.seconds = _A_DAY
        answer = await self._stub.Schedule(request, timeout=_PATIENCE, metadata=self._metadata)
        (result,) = answer.results
        if not result.task_id:
            raise ValueError(result.error.message)
        self._task_ids.append(result.task_id)

    async def browse(self, number: int) -> None:
        """Open the page to sign in at, or ask for the console's health, on a connection of its own."""
        host, _, port = self._target.console.rpartition(":")
        path = "/healthz" if number % 2 else "/sign-in"
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=self._tls, local_addr=(_FROM, 0)
            )
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: {self._target.console}\r\nConnection: close\r\n\r\n".encode()
            )
            said = await reader.readuntil(b"\r\n")
            writer.transport.abort()
        if b" 200 " not in said:
            raise OSError(said.decode(errors="replace"))

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()


async def _watched(call: Call, seconds: float) -> tuple[list[float], int]:
    """Make calls at fixed instants; return how long each took, in ms, and how many failed."""
    taken: list[float] = []
    failed = 0

    async def timed(number: int) -> None:
        nonlocal failed
        began = time.perf_counter()
        try:
            await call(number)
        except Exception:  # noqa: BLE001 (whatever it was, the victim was not served)
            failed += 1
        taken.append((time.perf_counter() - began) * 1_000)

    loop = asyncio.get_running_loop()
    began_at = loop.time()
    calls = []
    for number in range(round(seconds * _A_SECOND)):
        await asyncio.sleep(max(0.0, began_at + number / _A_SECOND - loop.time()))
        calls.append(asyncio.create_task(timed(number)))
    await asyncio.gather(*calls)
    return sorted(taken), failed


async def _measured(name: str, call: Call, seconds: float, answers: dict[str, int]) -> Row:
    taken, failed = await _watched(call, seconds)
    return Row(name, percentile(taken, 0.5), percentile(taken, 0.95), taken[-1], len(taken), failed, answers)


async def _beside(
    name: str, call: Call, seconds: float, target: Installation, ids: list[str], folder: Path
) -> Row:
    command = [sys.executable, "-m", "benchmarks.victim.attacker"]
    program = Program(command, {}, folder / "attacker.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    attacker = Driver(program)
    try:
        told = asdict(target) | {"authority": str(target.authority), "attack": name, "ids": ids}
        await attacker.ask("attack", **told)
        starting = asyncio.create_task(attacker.ask("start"))
        await starting
        await asyncio.sleep(_WARM_UP)
        row = await _measured(name, call, seconds, {})
        answers = await attacker.ask("stop")
        row.answers.update(answers)
        return row
    finally:
        program.stop()


async def _prepare(target: Installation) -> list[str]:
    """Declare the lambdas, and schedule tasks of the attacker; return ids of some."""
    channel = target.channel()
    registry: Any = registry_pb2_grpc.RegistryServiceStub(channel)
    frontend: Any = frontend_pb2_grpc.FrontendServiceStub(channel)
    ids: list[str] = []
    try:
        for principal, name in ((VICTIM, _VICTIM_LAMBDA), (ATTACKER, LAMBDA)):
            declared = registry_pb2.Lambda(name=name, owner=principal, version="1", payload_limit=_MIB)
            await registry.RegisterLambdas(
                registry_pb2.RegisterLambdasRequest(lambdas=[declared]), metadata=target.metadata(principal)
            )
        request = frontend_pb2.ScheduleRequest()
        for _ in range(_A_CALL):
            task = request.tasks.add(payload=b"x" * 100)
            setattr(task, "lambda", LAMBDA)
            task.delay.seconds = _A_DAY
        for _ in range(_PRELOADED // _A_CALL):
            answer = await frontend.Schedule(request, metadata=target.metadata(ATTACKER))
            ids += [each.task_id for each in answer.results]
    finally:
        await channel.close()
    return ids


async def measure(names: list[str], seconds: float, tell: Callable[[Row], None]) -> None:
    """Measure the victim alone, then beside each attack."""
    with tempfile.TemporaryDirectory(prefix="duly-victim-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with installed(folder) as target:
            ids = await _prepare(target)
            victim = Victim(target)
            try:
                await _watched(victim.call, 2 * _WARM_UP)
                tell(await _measured("alone", victim.call, seconds, {}))
                if not all(ATTACKS[each].method for each in names):
                    tell(await _measured("alone, console", victim.browse, seconds, {}))
                for each in names:
                    call = victim.call if ATTACKS[each].method else victim.browse
                    tell(await _beside(each, call, seconds, target, ids, folder))
                    await asyncio.sleep(_REST)
            finally:
                await victim.close()


def main() -> None:
    """Measure and print; `--json FILE` keeps the figures. The exit code is 1 if a p95 is above the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.victim", description=__doc__)
    parser.add_argument("--only", type=several(one_of(tuple(ATTACKS))), default=list(ATTACKS))
    parser.add_argument("--seconds", type=in_range(2, 60), default=10, help="of each attack")
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    found: list[Row] = []

    def tell(row: Row) -> None:
        found.append(row)
        answers = ", ".join(f"{count:,} {name}" for name, count in sorted(row.answers.items()))
        print(
            f"{row.attack:16} {row.p50_ms:8.1f} {row.p95_ms:8.1f} {row.max_ms:8.1f} {row.failed:4} of {row.calls:<4} {answers}",
            flush=True,
        )

    print(f"{'':16} {'p50 ms':>8} {'p95 ms':>8} {'max ms':>8} {'failed':>11}  answers to the attacker")
    asyncio.run(measure(options.only, options.seconds, tell))
    if options.json:
        figures = {"machine": machine(), "rows": [asdict(row) for row in found]}
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    late = [row.attack for row in found if row.p95_ms > TARGET_MS or row.failed]
    if late:
        raise SystemExit(f"the victim was late, or not served, beside: {', '.join(late)}")


if __name__ == "__main__":
    main()
