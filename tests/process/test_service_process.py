"""Each service as the process that operators start: how it refuses, waits, serves, and stops."""

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly_local.ports import free_ports
from tests.fixtures.host import APP, SECOND, Command, Commands
from tests.fixtures.refusals import Refusals
from tests.fixtures.roles import dsn_as
from tests.fixtures.service_processes import health_of, until_health_is, until_registered
from tests.fixtures.services import BreakableConnection

SERVICES = ("frontend", "hsc", "store-consumer")
NOBODY = "postgresql://duly@127.0.0.1:1/duly"


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Somebody else listens there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


def complaint_of(command: Command) -> str:
    """The one line that says why it gave up."""
    *_, last_line = command.output.splitlines()
    assert not [line for line in command.output.splitlines() if line.startswith("Traceback")], command.output
    return last_line


@pytest.mark.parametrize("service", SERVICES)
def test_a_port_that_is_taken_is_named_and_no_reason_to_start_again(
    refusals: Refusals, taken_port: int, service: str, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{taken_port}"

    complaint = refusals.run(tmp_path / "log", service, "--listen", listen, DULY_STORE_DSN=NOBODY)

    assert complaint.startswith(f"duly {service}: cannot listen on {listen}")


async def test_a_controller_does_not_take_the_socket_of_another_that_lives(
    commands: Commands, tmp_path: Path
) -> None:
    listen = f"unix:{tmp_path}/controller.sock"
    first = commands.start("duly_cli", "controller", "--listen", listen)
    await first.says("controller serves")

    second = commands.start("duly_cli", "controller", "--listen", listen)

    assert await second.exit_code() == 78
    assert f"cannot listen on {listen}: another process serves there" in complaint_of(second)
    assert await health_of(listen) == "SERVING"


async def test_a_socket_that_a_killed_controller_left_is_taken_over(
    commands: Commands, tmp_path: Path
) -> None:
    listen = f"unix:{tmp_path}/controller.sock"
    first = commands.start("duly_cli", "controller", "--listen", listen)
    await first.says("controller serves")
    first.kill()
    await first.exit_code()

    second = commands.start("duly_cli", "controller", "--listen", listen)

    await second.says("controller serves")
    assert await health_of(listen) == "SERVING"


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        (["hsc"], {"DULY_TIMING_HEARTBEAT_PERIOD": "30s"}, "three strikes must fire before the deadline"),
        (["hsc"], {"DULY_TIMING_PROFILE": "casual"}, "DULY_TIMING_PROFILE"),
        (["frontend"], {"DULY_RPC_CALL_TIMEOUT": "10"}, "DULY_RPC_CALL_TIMEOUT): '10' is not a duration"),
        (["frontend"], {"DULY_STORE_CONNECTIONS": "many"}, "DULY_STORE_CONNECTIONS"),
        (["store-consumer"], {"DULY_QUEUE_BACKEND": "rabbit"}, "DULY_QUEUE_BACKEND"),
        (["store-consumer", "--poll-interval", "often"], {}, "'often' is not a duration"),
        (["controller"], {"DULY_CONTROLLER_LOW_PRIORITY_SHARE": "2"}, "DULY_CONTROLLER_LOW_PRIORITY_SHARE"),
        (["executor", APP], {"DULY_EXECUTOR_SLOTS": "0"}, "DULY_EXECUTOR_SLOTS"),
        pytest.param(
            ["worker", APP, "--slots", "0"],
            {},
            "an Executor cannot run; its own message above says why",
            marks=pytest.mark.long,  # a worker gives up after some seconds
        ),
        pytest.param(
            ["worker", "tests.fixtures.host:app"],
            {},
            "an Executor cannot run; its own message above says why",
            marks=pytest.mark.long,  # a worker gives up after some seconds
        ),
        (["frontend"], {"DULY_STORE_DSN": "nonsense://"}, "store.dsn"),
        (
            ["frontend", "--listen", "7401"],
            {},
            "frontend.listen (command line): '7401' is not an address to serve on",
        ),
        (["frontend"], {"DULY_CONFIG": "/nowhere/duly.toml"}, "DULY_CONFIG names /nowhere/duly.toml"),
    ],
)
def test_settings_that_cannot_be_used_are_named_and_no_reason_to_start_again(
    refusals: Refusals, tmp_path: Path, arguments: list[str], settings: dict[str, str], complaint: str
) -> None:
    host = {"DULY_CONTROLLER_LISTEN": f"unix:{tmp_path}/c.sock"}

    assert complaint in refusals.run(tmp_path / "log", *arguments, **{**host, **settings})


def test_a_section_that_the_settings_file_should_not_have_is_named_and_a_like_variable_is_told(
    refusals: Refusals, tmp_path: Path
) -> None:
    (tmp_path / "duly.toml").write_text('[fronted]\nlisten = "127.0.0.1:0"\n')

    refused = refusals.run(tmp_path / "log", "frontend", DULY_CONFIG=str(tmp_path / "duly.toml"))
    refusals.run(tmp_path / "warned", "hsc", "--listen", "7402", DULY_EXECUTR_SLOTS="3")

    assert "there is no section [fronted]; do you mean [frontend]?" in refused
    assert '"meant": "DULY_EXECUTOR_"' in (tmp_path / "warned").read_text()


def test_a_key_that_the_settings_file_should_not_have_is_named(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text('[hsc]\nlisen = "127.0.0.1:0"\n')

    complaint = refusals.run(tmp_path / "log", "hsc", DULY_CONFIG=str(tmp_path / "duly.toml"))

    assert "hsc.lisen" in complaint


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_waits_for_postgres_says_so_and_serves_when_it_is_there(
    commands: Commands, line: BreakableConnection, service: str
) -> None:
    await line.cut()
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = commands.start("duly_cli", service, "--listen", address, DULY_STORE_DSN=line.dsn)
    await command.says("waiting for Postgres (store.dsn)")
    assert await health_of(address) == "NOT_SERVING"

    await line.restore()

    await until_health_is("SERVING", address)
    assert command.process.poll() is None


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_serves_as_a_user_with_the_rights_of_its_role_alone(
    commands: Commands, dsn: str, service: str
) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    own = dsn_as(dsn, f"duly_{service.replace('-', '_')}")

    commands.start("duly_cli", service, "--listen", address, DULY_STORE_DSN=own)

    await until_health_is("SERVING", address)


@pytest.mark.parametrize("service", SERVICES)
async def test_sigterm_ends_a_service_that_waits_for_postgres(commands: Commands, service: str) -> None:
    command = commands.start("duly_cli", service, "--listen", "127.0.0.1:0", DULY_STORE_DSN=NOBODY)
    await command.says("waiting for Postgres (store.dsn)")

    command.process.terminate()

    assert await command.exit_code(8 * SECOND) == 0


@pytest.mark.parametrize("service", SERVICES)
async def test_sigterm_ends_a_service_that_serves(commands: Commands, dsn: str, service: str) -> None:
    (port,) = free_ports(1)
    command = commands.start("duly_cli", service, "--listen", f"127.0.0.1:{port}", DULY_STORE_DSN=dsn)
    await until_health_is("SERVING", f"127.0.0.1:{port}")

    command.process.terminate()

    assert await command.exit_code(10 * SECOND) == 0


async def test_services_start_in_any_order_and_no_payload_is_in_any_log(
    commands: Commands, line: BreakableConnection, tmp_path: Path
) -> None:
    canary = "canary-7b1c"
    await line.cut()
    frontend, hsc, consumer = (f"127.0.0.1:{port}" for port in free_ports(3))
    shared = {
        "DULY_STORE_DSN": line.dsn,
        "DULY_CONTROLLER_FRONTEND_ADDRESS": frontend,
        "DULY_CONTROLLER_HSC_ADDRESS": hsc,
        "DULY_EXECUTOR_HSC_ADDRESS": hsc,
        "DULY_CONTROLLER_LISTEN": f"unix:{tmp_path}/c.sock",
        "DULY_TIMING_PROFILE": "embedded",
        "DULY_TELEMETRY_LOG_LEVEL": "debug",
    }
    worker = commands.start("duly_cli", "worker", APP, **shared)
    await worker.says("executor attached")
    commands.start("duly_cli", "store-consumer", "--listen", consumer, **shared)
    commands.start("duly_cli", "hsc", "--listen", hsc, **shared)
    commands.start("duly_cli", "frontend", "--listen", frontend, **shared)
    await line.restore()

    async with duly.AsyncClient(frontend) as client:
        await until_registered(client, "test.echo")
        payloads = {
            "test.echo": {"secret": canary},
            "test.raise_it": {"secret": canary},
            "test.return_it": {"secret": canary},
            "test.mail": {"to": canary, "copies": canary},
        }
        tasks = [await client.schedule(name, payload) for name, payload in payloads.items()]
        ended = await client.wait_many(tasks, timedelta(seconds=20))

    assert [task.status.name for task in ended] == [
        "SUCCESS",
        "FATAL_FAILURE",
        "FATAL_FAILURE",
        "FATAL_FAILURE",
    ]
    assert ended[0].result == {"secret": canary}
    assert "the callback's own words" in worker.output
    for command in commands.started:
        assert canary not in command.output
    assert not [task.failure for task in ended if task.failure and canary in task.failure.message]
