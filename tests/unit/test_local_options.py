"""What `duly up` makes of its options."""

from pathlib import Path

import pytest

from duly_local.environment import service_environment
from duly_local.options import HSC, STORE_CONSUMER, Ports, StackOptions, default_data_directory

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


def test_a_worker_is_told_where_the_queue_is_but_not_where_the_store_is() -> None:
    options = StackOptions(apps=("shop:app",))
    ports = options.choose_ports()

    worker = service_environment(options, DSN, ports, "worker")
    hsc = service_environment(options, DSN, ports, HSC)

    assert "DULY_STORE_DSN" not in worker
    assert worker["DULY_QUEUE_DSN"] == hsc["DULY_STORE_DSN"] == DSN


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
