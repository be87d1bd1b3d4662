"""Two Frontends and two HSCs as processes: one that is frozen or killed delays calls and starts by a moment only."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

import duly
from duly_local.ports import free_ports
from tests.fixtures.host import APP, Command, Commands
from tests.fixtures.service_processes import until_health_is, until_registered

pytestmark = [
    pytest.mark.long,  # four processes for each test; tests/sdk/test_peers.py has the rules
    pytest.mark.timeout(180),
]

MOMENT = timedelta(seconds=6)
"""A silent server is given up after 1.1 s; the rest is for a machine that is busy with other tests."""
CALLS = 8


@dataclass(frozen=True)
class Installation:
    """Two of each, and a worker that knows all."""

    frontends: dict[str, Command]
    hscs: dict[str, Command]

    @property
    def addresses(self) -> str:
        return ",".join(self.frontends)


@pytest.fixture
async def installation(commands: Commands, dsn: str, tmp_path: Path) -> AsyncIterator[Installation]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
    frontends, hscs = addresses[:2], addresses[2:]
    shared = {
        "DULY_STORE_DSN": dsn,
        "DULY_CONTROLLER_FRONTEND_ADDRESS": ",".join(frontends),
        "DULY_CONTROLLER_HSC_ADDRESS": ",".join(hscs),
        "DULY_CONTROLLER_LISTEN": f"unix:{tmp_path}/c.sock",
        "DULY_TIMING_PROFILE": "embedded",
    }

    def start(service: str, address: str) -> Command:
        return commands.start("duly_cli", service, "--listen", address, **shared)

    made = Installation(
        {address: start("frontend", address) for address in frontends},
        {address: start("hsc", address) for address in hscs},
    )
    for address in addresses:
        await until_health_is("SERVING", address)
    commands.start("duly_cli", "worker", APP, **shared)
    async with duly.AsyncClient(made.addresses) as client:
        await until_registered(client, "test.echo")
        await client.wait(await client.schedule("test.echo"), timedelta(seconds=60))
    yield made
    for command in (*made.frontends.values(), *made.hscs.values()):
        command.kill(signal.SIGCONT)


async def ends(client: duly.AsyncClient, payload: int) -> float:
    """Schedule a task, wait for its end, and return the seconds that both took."""
    began = monotonic()
    task = await client.schedule("test.echo", payload)
    assert (await client.wait(task, timedelta(seconds=60))).result == payload
    return monotonic() - began


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_work_goes_on_when_either_of_two_hscs_is_frozen_or_killed(
    installation: Installation, how: signal.Signals
) -> None:
    first, second = installation.hscs.values()
    async with duly.AsyncClient(installation.addresses) as client:
        first.kill(how)
        without_first = await asyncio.gather(*(ends(client, number) for number in range(CALLS)))
        if how is signal.SIGSTOP:
            first.kill(signal.SIGCONT)
            second.kill(how)
            without_second = await asyncio.gather(*(ends(client, number) for number in range(CALLS)))
            assert max(without_second) < MOMENT.total_seconds()

    assert max(without_first) < MOMENT.total_seconds()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_no_call_fails_when_either_of_two_frontends_is_frozen_or_killed(
    installation: Installation, how: signal.Signals
) -> None:
    first, _ = installation.frontends.values()
    clients = [duly.AsyncClient(installation.addresses) for _ in range(4)]
    for client in clients:
        await client.open()
        await client.schedule("test.echo")  # over the Frontend that it is to lose
    waiting = [
        await client.schedule("test.wait", {"journal": "/dev/null", "until": "/"}) for client in clients
    ]
    polls = [client.wait(task, timedelta(seconds=60)) for client, task in zip(clients, waiting, strict=True)]

    first.kill(how)
    took = await asyncio.gather(*(ends(client, number) for number, client in enumerate(clients)))
    await asyncio.gather(*polls)

    assert max(took) < MOMENT.total_seconds()
    for client in clients:
        await client.close()


async def test_a_blocking_call_goes_to_the_other_frontend_when_its_own_is_frozen(
    installation: Installation,
) -> None:
    def schedule(client: duly.Client) -> float:
        began = monotonic()
        client.schedule("test.echo")
        return monotonic() - began

    clients = [duly.Client(installation.addresses) for _ in range(4)]
    for client in clients:
        for _ in range(2):  # the second call opens a stream
            await asyncio.to_thread(schedule, client)

    next(iter(installation.frontends.values())).kill(signal.SIGSTOP)
    took = [await asyncio.to_thread(schedule, client) for client in clients * 2]

    assert max(took) < MOMENT.total_seconds()
    for client in clients:
        await asyncio.to_thread(client.close)
