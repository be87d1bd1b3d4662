"""Services that are started without typer and rich: what they take is what `--help` says."""

import subprocess
import sys
from types import ModuleType

import pytest
from typer.main import get_command

from duly_cli.__main__ import app
from duly_cli.startup import light_start
from tests.fixtures.forked_process import clean_environment


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What services were started with since, by their parameters."""
    started: list[dict[str, object]] = []
    module = ModuleType("service")
    module.main = module.run_worker = lambda **parameters: started.append(parameters)  # type: ignore[attr-defined]
    monkeypatch.setattr(light_start.importlib, "import_module", lambda _: module)
    monkeypatch.setitem(sys.modules, "rich", sys.modules.get("rich"))
    return started


@pytest.mark.parametrize("name", light_start.SERVICES)
def test_a_service_takes_the_options_that_its_help_shows(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]  # a group, says typer
    options = {option for each in command.params for option in each.opts if option.startswith("--")}
    arguments = [each.name for each in command.params if each.param_type_name == "argument"]

    service = light_start.SERVICES[name]

    assert service.options.keys() | service.left_to_people == options - {"--help"}
    assert arguments == ([service.argument] if service.argument else [])


@pytest.mark.parametrize(
    ("command_line", "parameters"),
    [
        (["server"], {}),
        (["server", "--roles", "hsc"], {"roles": "hsc"}),
        (["store-consumer", "--poll-interval=1s"], {"poll_interval": "1s"}),
        (
            ["worker", "shop:app", "--slots", "3"],
            {"application": "shop:app", "slots": 3, "processes": None},
        ),
        (
            ["worker", "--http", "/etc/duly/http.toml"],
            {
                "application": 'duly.http_lambdas:{"file": "/etc/duly/http.toml"}',
                "slots": None,
                "processes": None,
            },
        ),
    ],
)
def test_a_plain_command_line_is_understood(
    told: list[dict[str, object]], command_line: list[str], parameters: dict[str, object]
) -> None:
    light_start.run(command_line)

    assert told == [parameters]


@pytest.mark.parametrize(
    "command_line",
    [
        [],
        ["schedule", "mail.send"],
        ["server", "--help"],
        ["server", "--roles"],
        ["server", "hsc"],
        ["frontend", "--listn", "127.0.0.1:0"],
        ["worker"],
        ["worker", "--exec", "./handler", "--lambda", "mail.send"],
        ["worker", "shop:app", "--slots", "many"],
        ["worker", "shop:app", "other:app"],
        ["worker", "shop:app", "--http", "http.toml"],
        ["worker", "--http", "http.toml", "shop:app"],
    ],
)
def test_what_is_unusual_is_left_to_the_command_line_for_people(
    told: list[dict[str, object]], command_line: list[str]
) -> None:
    light_start.run(command_line)

    assert told == []


def test_a_service_loads_neither_typer_nor_rich() -> None:
    program = (
        "import atexit, sys\n"
        "heavy = {'typer', 'rich.console', 'sqlalchemy', 'alembic', 'boto3'}\n"
        "atexit.register(lambda: print('loaded:', *sorted(heavy & set(sys.modules))))\n"
        "from duly_cli.startup import light_start\n"
        "light_start.run(sys.argv[1:])\n"
    )
    refused = clean_environment() | {"DULY_RPC_CALL_TIMEOUT": "10"}  # after everything was imported

    for command_line in (["server"], ["worker", "shop:app"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command_line],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=refused,
        )
        assert (done.returncode, done.stdout) == (78, "loaded:\n"), done.stderr
