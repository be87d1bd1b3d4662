"""What the command line says before anything is asked of a Frontend."""

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
