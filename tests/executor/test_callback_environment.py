"""Which variables callbacks see, and what is said of those that they miss."""

import pytest

from duly_core.errors import SettingsError
from duly_executor.processes.environment import CallbackEnvironment
from duly_executor.settings import ExecutorSettings


def seen(*names: str, named: str = "") -> set[str]:
    return set(CallbackEnvironment(dict.fromkeys(names, "value"), named).variables)


def test_what_programs_need_is_seen() -> None:
    usual = {
        "PATH",
        "HOME",
        "LC_ALL",
        "TZ",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "https_proxy",
        "NO_PROXY",
    }

    assert seen(*usual) == usual


@pytest.mark.parametrize(
    "name",
    [
        *("DULY_TOKEN", "DULY_RPC_TOKEN_FILE", "DULY_RPC_KEY_FILE", "DULY_STORE_DSN", "DULY_QUEUE_PREFIX"),
        *(
            "AWS_SECRET_ACCESS_KEY",
            "AWS_REGION",
            "DATABASE_URL",
            "PGPASSWORD",
            "NOTIFY_SOCKET",
            "XDG_RUNTIME_DIR",
        ),
        *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        *("GRPC_ENABLE_FORK_SUPPORT", "path", "PATHS"),
    ],
)
def test_what_may_be_a_secret_or_is_the_workers_own_is_not_seen(name: str) -> None:
    assert seen(name) == set()


def test_what_a_setting_names_is_seen_and_a_pattern_stands_for_dulys_own_only_if_it_says_so() -> None:
    names = (
        "DATABASE_URL",
        "AWS_REGION",
        "AWS_PROFILE",
        "DULY_TOKEN",
        "DULY_RPC_KEY_FILE",
        "GRPC_EXPERIMENTS",
    )

    assert seen(*names, named="DATABASE_URL, AWS_*") == {"DATABASE_URL", "AWS_REGION", "AWS_PROFILE"}
    assert seen(*names, named="*") == {"DATABASE_URL", "AWS_REGION", "AWS_PROFILE"}
    assert seen(*names, named="DULY_TOKEN") == {"DULY_TOKEN"}
    assert seen(*names, named="DULY_RPC_*") == {"DULY_RPC_KEY_FILE"}


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("KeyError: 'SHOP'", True),
        ("ImproperlyConfigured: Set the SHOP_DSN environment variable", True),
        ("the SHOP is closed", False),
        ("KeyError: 'PATH'", False),
        ("KeyError: 'OTHER'", False),
        ("", False),
        ("A_" * 100_000, False),
    ],
)
def test_an_error_that_names_a_withheld_variable_says_the_setting(error: str, hint: bool) -> None:
    environment = CallbackEnvironment({"SHOP": "s3cret", "SHOP_DSN": "s3cret", "PATH": "/bin"})

    said = environment.with_hint(error), environment.hint(error)

    assert ("executor.callback_environment" in said[0]) == hint
    assert ("executor.callback_environment" in said[1]) == hint
    assert "s3cret" not in "".join(said)


def test_the_names_for_the_log_are_those_that_are_not_dulys_own() -> None:
    environment = CallbackEnvironment(dict.fromkeys(("SHOP_DSN", "PATH", "DULY_TOKEN", "AWS_REGION"), ""))

    assert environment.told() == ["AWS_REGION", "SHOP_DSN"]


@pytest.mark.parametrize("value", [["SHOP_DSN", "AWS_*"], "SHOP_DSN, AWS_*", " SHOP_DSN ,,AWS_*"])
def test_the_setting_is_a_list_or_a_text(value: object) -> None:
    assert ExecutorSettings.load(callback_environment=value).callback_environment == "SHOP_DSN, AWS_*"


@pytest.mark.parametrize("value", ["A=B", "a b", ["A,B C"], [1], {"A": 1}, "[A-Z]*", "1A"])
def test_what_is_no_name_of_a_variable_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match=r"executor\.callback_environment.*write \[\"DATABASE_URL\""):
        ExecutorSettings.load(callback_environment=value)
