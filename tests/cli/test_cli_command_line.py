"""What the command line says before anything is asked of a Frontend."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (["--json", "settings"], "write --json after the command"),
        (["--json", "get", "some-id"], "write --json after the command"),
        (["--address", "frontend:7401", "list"], "write --address after the command"),
        (["settings", "--json", "set", "a", "b"], "duly settings set ... --json"),
        (["settings", "--json", "reset", "--all"], "duly settings reset ... --json"),
        (["settings", "--address", "frontend:7401", "reset", "--all"], "duly settings reset ... --address"),
    ],
)
def test_an_option_where_nobody_would_hear_it_is_refused_with_its_place(
    arguments: list[str], way: str
) -> None:
    refused = run(*arguments)

    assert refused.exit_code == 2
    assert way in refused.stderr


def test_an_address_in_the_environment_is_no_option_in_the_wrong_place() -> None:
    shown = CliRunner().invoke(app, ["settings", "reset"], env={"DULY_ADDRESS": "frontend:7401"})

    assert "say which, or --all" in shown.stderr


def test_every_command_has_help_that_says_what_it_does() -> None:
    names = sorted(get_command(app).commands)  # type: ignore[attr-defined]  # a group, says typer

    assert "schedule" in names
    for name in names:
        done = run(name, "--help")
        assert done.exit_code == 0, name
        assert f"duly {name}" in done.stdout or f" {name} " in done.stdout
        assert done.stdout.splitlines()[3].strip(), name


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_word(tmp_path: Path) -> None:
    loading = tmp_path / "duly_cli.__main__"
    program = (
        "import os, signal, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'duly_cli.__main__':\n"
        "            open(sys.argv[1], 'w').close()\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from duly_cli.startup.entry import main\n"
        "main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(loading)], capture_output=True, timeout=30, check=False
    )

    assert loading.exists()
    assert done.returncode == -signal.SIGINT
    assert done.stdout == done.stderr == b""


def test_ctrl_c_while_a_command_begins_ends_it_without_a_traceback(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'duly_cli.settings.all_settings_text':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from duly_cli.startup.entry import main\n"
        "main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "config"], capture_output=True, timeout=30, check=False, cwd=tmp_path
    )

    assert done.returncode == 130
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"DULY_ADRESS": "frontend:7401"}, "DULY_ADRESS is not one of Duly's: do you mean DULY_ADDRESS?"),
        ({"DULY_CONFIG": "/nowhere/duly.toml"}, "DULY_CONFIG names /nowhere/duly.toml, which does not exist"),
    ],
)
def test_a_client_command_refuses_an_environment_that_would_lead_it_astray(
    environment: dict[str, str], complaint: str
) -> None:
    refused = CliRunner().invoke(app, ["lambdas", "--address", "127.0.0.1:1"], env=environment)

    assert refused.exit_code == 78
    assert complaint in refused.stderr


@pytest.mark.long  # starts the program nine times
@pytest.mark.parametrize("command", ["config", "migrate", "list", "settings", "server", "hsc", "up"])
def test_each_command_ends_with_the_same_code_for_a_misspelt_setting(command: str, tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text("[store]\ndns = 'x'\n[hcs]\n", encoding="utf-8")

    refused = subprocess.run(
        [sys.executable, "-m", "duly_cli", command],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"DULY_CONFIG": "duly.toml"},
    )

    assert refused.returncode == 78
    assert b"there is no section [hcs]; do you mean [hsc]?" in refused.stderr


def test_config_shows_what_a_filter_finds_and_a_line_for_each() -> None:
    found = run("config", "dwell").stdout.splitlines()

    assert found[1].split() == ["ENVIRONMENT", "VARIABLE", "VALUE", "SET", "BY", "MEANING"]
    assert all("dwell" in line.lower() for line in found[2:])
    assert len(found) > 2
    assert "no setting has 'dwelling'" in run("config", "dwelling").stdout


def test_the_installed_command_is_the_one_that_is_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from duly_cli.startup.entry import main; main()", "--help"],
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 0
    assert b"schedule" in done.stdout
