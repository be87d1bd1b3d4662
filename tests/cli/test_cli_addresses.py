"""What the command says of an invalid address, and which one it takes by default."""

import traceback
from datetime import timedelta

import pytest
from typer.testing import CliRunner, Result

import duly
from duly_cli.__main__ import app

NO_PORT = "is not an address: write HOST:PORT, such as 127.0.0.1:7401"


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"} | environment)


@pytest.mark.parametrize("address", ["localhost", "http://127.0.0.1:7401"])
@pytest.mark.parametrize("command", [["list"], ["schedule", "hello.greet"], ["dead-letters"], ["settings"]])
def test_commands_refuse_what_is_no_address_at_once(command: list[str], address: str) -> None:
    refused = run(*command, "--address", address)

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"duly: {address!r} {NO_PORT}")


def test_health_of_a_name_without_a_port_says_what_to_write() -> None:
    refused = run("health", "frontend")

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"duly health: 'frontend' {NO_PORT}")


def test_health_asks_the_frontend_of_the_environment_unless_another_is_named() -> None:
    assert "127.0.0.1:1 does not answer" in run("health", DULY_ADDRESS="127.0.0.1:1").stderr
    assert "127.0.0.1:2 does not answer" in run("health", "127.0.0.1:2", DULY_ADDRESS="127.0.0.1:1").stderr


def test_health_takes_the_usual_address_of_the_frontend_if_none_is_said() -> None:
    assert "[default: 127.0.0.1:7401]" in run("health", "--help").stdout


def test_health_asks_each_of_several_addresses() -> None:
    told = run("health", "127.0.0.1:1,127.0.0.1:2")

    assert told.exit_code == 1
    assert "127.0.0.1:1 does not answer" in told.stderr
    assert "127.0.0.1:2 does not answer" in told.stderr


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--all",), 1)])
def test_health_of_several_services_needs_one_that_serves_or_all(
    options: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(address: str, _timeout: float) -> str:
        if address == "b:2":
            raise duly.UnavailableError(f"{address} does not answer")
        return "SERVING"

    monkeypatch.setattr("duly_cli.fleet.health_check.ask_health", answer)

    told = run("health", "east=a:1,west=b:2", *options)

    assert told.exit_code == code
    assert told.stdout == "east=a:1: SERVING\n"
    assert told.stderr == "duly health: west=b:2 does not answer\n"


@pytest.mark.parametrize("use", [lambda client: client.schedule("a"), lambda client: client.get("a")])
def test_a_program_that_calls_a_wrong_port_gets_one_error_with_the_address_and_the_fix(use) -> None:
    with (
        duly.Client("127.0.0.1:1", unreachable_after=timedelta(milliseconds=50)) as client,
        pytest.raises(
            duly.UnavailableError, match=r"no Duly Frontend answers at 127\.0\.0\.1:1: start one"
        ) as raised,
    ):
        use(client)

    told = "".join(traceback.format_exception(raised.value))
    assert told.count("Traceback (most recent call last)") == 1
    assert "AioRpcError" not in told
