"""One measurement: tasks at a fixed rate, then nothing to do, with what both cost Postgres and the servers."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import duly
from benchmarks.cpu import scheduled_seconds_by_process
from benchmarks.hosts.comparison import Cost
from benchmarks.hosts.installation import Installation
from benchmarks.hosts.simulated import Hosts
from benchmarks.sqs import calls_of
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import registry_stub
from duly_wire.v1 import registry_pb2

_SETTLE = 1.0
_GIVE_UP = 30.0
_PAYLOAD = b"x" * 100


@dataclass(frozen=True, slots=True)
class Pace:
    """How many tasks a second, and how long; idleness lasts as long."""

    rate: int
    seconds: float


async def register(here: Installation, number: int) -> list[str]:
    """Register so many lambdas; return their names."""
    names = [f"hosts.{n}" for n in range(number)]
    request = registry_pb2.RegisterLambdasRequest(
        lambdas=[registry_pb2.Lambda(name=name, owner="benchmarks", version="1") for name in names]
    )
    async with open_channel(here.frontend, RpcSettings()) as channel:
        await registry_stub(channel).RegisterLambdas(request, timeout=_GIVE_UP)
    return names


async def measure(
    here: Installation,
    client: duly.AsyncClient,
    names: Sequence[str],
    number: int,
    pace: Pace,
) -> Cost:
    """Run the load, then be idle, with so many hosts."""
    async with Hosts(here.hscs, names, number, here.sqs) as hosts:
        await _load(hosts, client, names, pace.rate, _SETTLE)  # connections, queues and plans are there then
        calls, cpu = await _calls(here, hosts), _cpu()
        tasks = await _load(hosts, client, names, pace.rate, pace.seconds)
        used = _cpu()
        used.subtract(cpu)
        after = await _calls(here, hosts)
        after.subtract(calls)
        await asyncio.sleep(_SETTLE)
        before, began = _cpu(), time.monotonic()
        await asyncio.sleep(pace.seconds)
        idle, elapsed = _cpu(), time.monotonic() - began
        idle.subtract(before)
        hosts.check()
    return Cost(
        used["postgres"] / tasks * 1e6,
        used["server"] / tasks * 1e6,
        idle["postgres"] / elapsed * 1e3,
        idle["server"] / elapsed * 1e3,
        {name: count / tasks for name, count in after.items() if count},
    )


async def _load(
    hosts: Hosts, client: duly.AsyncClient, names: Sequence[str], rate: int, seconds: float
) -> int:
    """Schedule at this rate, one task a call, in turns over the lambdas; until all have ended."""
    tasks, target, calls = int(rate * seconds), hosts.ended + int(rate * seconds), []
    began = time.monotonic()
    for number in range(tasks):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        calls.append(asyncio.ensure_future(client.schedule(names[number % len(names)], _PAYLOAD)))
    await asyncio.gather(*calls)
    async with asyncio.timeout(_GIVE_UP):
        while hosts.ended < target:
            hosts.check()
            await asyncio.sleep(0.01)
    return tasks


def _cpu() -> Counter[str]:
    return scheduled_seconds_by_process(os.getpid())


async def _calls(here: Installation, hosts: Hosts) -> Counter[str]:
    total = Counter({f"hosts {name}": count for name, count in hosts.received.items()})
    for address in here.metrics:
        made = await asyncio.to_thread(calls_of, address)
        total.update({f"server {name}": count for name, count in made.items()})
    return total
