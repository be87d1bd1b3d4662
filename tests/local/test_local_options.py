"""What `duly up` makes of its options."""

import os
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_local.environment import joining_environment, service_environment
from duly_local.options import (
    CONSOLE,
    HSC,
    SERVER,
    STORE_CONSUMER,
    Ports,
    StackOptions,
    default_data_directory,
)
from duly_local.stack import up

AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_SQS",
)
DSN = "postgresql://duly:secret@127.0.0.1:5432/duly"


@pytest.fixture(autouse=True)
def no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*AWS, "DULY_QUEUE_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)


def test_data_is_kept_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")

    assert default_data_directory() == Path("/somewhere/duly")


@pytest.mark.parametrize("configured", ["", "relative/folder"])
def test_an_unusable_xdg_folder_is_ignored(configured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", configured)

    assert default_data_directory() == Path.home() / ".local" / "share" / "duly"


def test_moto_is_started_only_for_sqs_that_nobody_located(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not StackOptions().needs_moto
    assert StackOptions(queue="sqs").needs_moto
    assert not StackOptions(queue="sqs", endpoint_url="http://127.0.0.1:9324").needs_moto

    monkeypatch.setenv("AWS_PROFILE", "work")

    assert not StackOptions(queue="sqs").needs_moto


def test_no_two_processes_share_a_port() -> None:
    workers = tuple(StackOptions(apps=tuple(f"app{number}:app" for number in range(20))).workers)

    for ports in (Ports.usual(workers), Ports.free(())):
        taken = [*ports.grpc.values(), *ports.metrics.values()]
        assert len(set(taken)) == len(taken)


def test_a_worker_is_not_told_where_the_store_is() -> None:
    options = StackOptions(apps=("shop:app",))
    ports = options.choose_ports()

    worker = service_environment(options, DSN, ports, "worker")
    hsc = service_environment(options, DSN, ports, HSC)

    assert "DULY_STORE_DSN" not in worker
    assert DSN not in worker.values()
    assert hsc["DULY_STORE_DSN"] == DSN


def test_a_shell_with_the_password_of_another_store_does_not_lock_services_out_of_the_embedded_one() -> None:
    for options, password_file in ((StackOptions(), ""), (StackOptions(dsn=DSN), None)):
        server = service_environment(options, DSN, options.choose_ports(), SERVER)
        assert server.get("DULY_STORE_PASSWORD_FILE") == password_file


def test_addresses_of_events_begin_with_the_console_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = StackOptions(console=True)
    ports = options.choose_ports()
    variable = "DULY_FRONTEND_PUBLIC_URL"
    without = StackOptions()
    assert service_environment(options, DSN, ports, SERVER)[variable] == f"http://{ports.address(CONSOLE)}"
    assert variable not in service_environment(options, DSN, ports, HSC)
    assert variable not in service_environment(without, DSN, ports, SERVER)

    monkeypatch.setenv("DULY_CONSOLE_PUBLIC_URL", "https://duly.example.com")
    assert service_environment(options, DSN, ports, SERVER)[variable] == "https://duly.example.com"

    monkeypatch.setenv(variable, "https://events.example.com")
    assert variable not in service_environment(options, DSN, ports, SERVER)


def test_lost_references_are_sent_again_sooner_than_in_production_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = StackOptions()
    ports = options.choose_ports()
    variable = "DULY_STORE_CONSUMER_ENQUEUE_TIMEOUT"
    assert service_environment(options, DSN, ports, STORE_CONSUMER)[variable] == "15s"
    assert variable not in service_environment(options, DSN, ports, HSC)

    monkeypatch.setenv(variable, "40s")

    assert variable not in service_environment(options, DSN, ports, STORE_CONSUMER)


def test_a_user_s_own_credentials_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    options = StackOptions(queue="sqs", endpoint_url="http://127.0.0.1:9324")
    ports = options.choose_ports()
    assert "AWS_ACCESS_KEY_ID" in service_environment(options, DSN, ports, HSC)

    monkeypatch.setenv("AWS_PROFILE", "work")

    assert "AWS_ACCESS_KEY_ID" not in service_environment(options, DSN, ports, HSC)


@pytest.mark.parametrize("queue", ["store", "sqs"])
def test_a_worker_that_is_added_is_told_what_the_stack_s_own_is_but_for_what_is_of_one_only(
    queue: Literal["store", "sqs"],
) -> None:
    options = StackOptions(queue=queue, endpoint_url="http://127.0.0.1:9324", apps=("shop:app",), slots=3)
    ports = options.choose_ports()

    own = service_environment(options, DSN, ports, "worker")
    added = joining_environment(options, ports)

    assert added.items() <= own.items()
    assert {name for name in own.keys() - added.keys() if name.startswith("DULY_")} == {
        "DULY_TELEMETRY_LOG_FORMAT",
        "DULY_TELEMETRY_METRICS_LISTEN",
        "DULY_CONTROLLER_HEALTH_LISTEN",
        "DULY_CONTROLLER_EXECUTOR_METRICS_PORT",
        "DULY_EXECUTOR_DRAIN_GRACE",
        "DULY_EXECUTOR_SLOTS",
    }


def test_a_worker_that_is_added_is_told_what_the_user_told_the_stack_of_queue_and_timing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = StackOptions()
    ports = options.choose_ports()
    config = tmp_path / "duly.toml"
    config.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_TIMING_HEARTBEAT_PERIOD", "1s")
    monkeypatch.setenv("DULY_QUEUE_VISIBILITY", "40s")
    monkeypatch.setenv("DULY_CONTROLLER_LISTEN", "unix:/of/another")

    added = joining_environment(options, ports)

    assert added["DULY_TIMING_HEARTBEAT_PERIOD"] == "1s"
    assert added["DULY_QUEUE_VISIBILITY"] == "40s"
    assert added["DULY_CONFIG"] == str(config)
    assert "DULY_CONTROLLER_LISTEN" not in added


async def test_a_malformed_config_file_is_one_line_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "duly.toml").write_text("[frontend\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    code = await up(StackOptions(data_directory=tmp_path / "data"))

    (line,) = capsys.readouterr().err.splitlines()
    assert code == os.EX_CONFIG
    assert line.startswith("duly up: duly.toml is not TOML")


@pytest.mark.parametrize("option", ["--executors", "--processes", "--slots"])
@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_stack_whose_worker_could_run_nothing_is_refused_at_once(option: str, number: str) -> None:
    refused = CliRunner().invoke(app, ["up", option, number, "examples.hello:app"], env={"COLUMNS": "200"})

    assert refused.exit_code == 2
    assert f"Invalid value for '{option}'" in refused.stderr


def test_claim_journals_are_where_the_next_stack_finds_them_unless_the_user_says_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StackOptions(data_directory=tmp_path, apps=("shop:app",))
    ports = options.choose_ports()
    variable = "DULY_EXECUTOR_JOURNAL_FOLDER"
    assert service_environment(options, DSN, ports, "worker")[variable] == f"{tmp_path}/claim-journals"
    assert joining_environment(options, ports)[variable] == f"{tmp_path}/claim-journals"

    monkeypatch.setenv(variable, "/elsewhere")

    assert variable not in service_environment(options, DSN, ports, "worker")
    assert joining_environment(options, ports)[variable] == "/elsewhere"
