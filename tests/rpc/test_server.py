"""`duly server`: several services in one process, each with the address and the health of its own."""

import json
import signal
import socket
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly_local.ports import free_ports
from tests.fixtures.host import APP, SECOND, Commands
from tests.fixtures.refusals import Refusals
from tests.fixtures.service_processes import health_of, until_health_is, until_registered
from tests.fixtures.services import BreakableConnection

ROLES = ("frontend", "store_consumer", "hsc")
NOBODY = "postgresql://duly@127.0.0.1:1/duly"


@pytest.fixture
def addresses() -> dict[str, str]:
    """Where each role listens."""
    return {role: f"127.0.0.1:{port}" for role, port in zip(ROLES, free_ports(3), strict=True)}


@pytest.fixture
def listening(addresses: dict[str, str]) -> dict[str, str]:
    """The settings that say so."""
    return {f"DULY_{role}_LISTEN".upper(): address for role, address in addresses.items()}


def services_in(log: str) -> dict[str, str]:
    """Which service said what."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return {line["event"]: line["service"] for line in lines}


async def test_all_three_services_run_in_one_process_and_a_task_goes_through_them(
    commands: Commands,
    dsn: str,
    addresses: dict[str, str],
    listening: dict[str, str],
    tmp_path: Path,
) -> None:
    server = commands.start("duly_cli", "server", DULY_STORE_DSN=dsn, **listening)
    for address in addresses.values():
        await until_health_is("SERVING", address)
    worker = commands.start(
        "duly_cli",
        "worker",
        APP,
        DULY_CONTROLLER_FRONTEND_ADDRESS=addresses["frontend"],
        DULY_CONTROLLER_HSC_ADDRESS=addresses["hsc"],
        DULY_CONTROLLER_LISTEN=f"unix:{tmp_path}/c.sock",
    )

    async with duly.AsyncClient(addresses["frontend"]) as client:
        await until_registered(client, "test.echo")
        ended = await client.wait(await client.schedule("test.echo", {"some": "thing"}), 30 * SECOND)
        found = [task.task_id async for task in client.list()]

    assert ended.result == {"some": "thing"}
    assert found == [ended.task_id]
    worker.kill(signal.SIGTERM)
    assert await worker.exit_code() == 0
    server.kill(signal.SIGTERM)
    assert await server.exit_code(15 * SECOND) == 0
    said = services_in(server.output)
    assert said["frontend serves"] == "frontend"
    assert said["store consumer polls"] == "store-consumer"
    assert said["hsc serves"] == "hsc"
    assert said["stopped"] == "server"


async def test_only_the_roles_that_are_named_are_run(
    commands: Commands, dsn: str, addresses: dict[str, str], listening: dict[str, str]
) -> None:
    server = commands.start("duly_cli", "server", "--roles", "hsc", DULY_STORE_DSN=dsn, **listening)

    await until_health_is("SERVING", addresses["hsc"])

    assert await health_of(addresses["frontend"]) == "UNAVAILABLE"
    assert await health_of(addresses["store_consumer"]) == "UNAVAILABLE"
    server.kill(signal.SIGTERM)
    assert await server.exit_code(15 * SECOND) == 0


def test_a_role_that_cannot_listen_ends_the_process_with_its_reason(
    refusals: Refusals, addresses: dict[str, str], listening: dict[str, str], tmp_path: Path
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", int(addresses["hsc"].rpartition(":")[2])))
        holder.listen()
        complaint = refusals.run(tmp_path / "log", "server", DULY_STORE_DSN=NOBODY, **listening)

    assert complaint.startswith(f"duly server: cannot listen on {addresses['hsc']}")


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        (
            ["--roles", "frontend,hcs"],
            {},
            "there is no role 'hcs' (--roles): there are frontend, store-consumer, hsc",
        ),
        (["--roles", ","], {}, "--roles names no role"),
        ([], {"DULY_HSC_LISTEN": "7402"}, "DULY_HSC_LISTEN"),
        ([], {"DULY_STORE_DSN": "nonsense://"}, "store.dsn"),
    ],
)
def test_what_cannot_be_run_is_named_and_no_reason_to_start_again(
    refusals: Refusals,
    listening: dict[str, str],
    tmp_path: Path,
    arguments: list[str],
    settings: dict[str, str],
    complaint: str,
) -> None:
    last_line = refusals.run(tmp_path / "log", "server", *arguments, **{**listening, **settings})

    assert last_line.startswith("duly server: ")
    assert complaint in last_line


async def test_the_services_wait_for_postgres_together_and_serve_when_it_is_there(
    commands: Commands, line: BreakableConnection, addresses: dict[str, str], listening: dict[str, str]
) -> None:
    await line.cut()
    server = commands.start("duly_cli", "server", DULY_STORE_DSN=line.dsn, **listening)
    await server.says("waiting for Postgres (store.dsn)")
    for address in addresses.values():
        await until_health_is("NOT_SERVING", address)
    assert server.output.count('"failures": 1') == 1

    await line.restore()

    for address in addresses.values():
        await until_health_is("SERVING", address)


async def test_sigterm_ends_a_server_that_waits_for_postgres(
    commands: Commands, listening: dict[str, str]
) -> None:
    server = commands.start("duly_cli", "server", DULY_STORE_DSN=NOBODY, **listening)
    await server.says("waiting for Postgres (store.dsn)")

    server.kill(signal.SIGTERM)

    assert await server.exit_code(timedelta(seconds=10)) == 0
