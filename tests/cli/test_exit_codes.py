"""The exit codes of commands: one rule, which docs/reference/commands.md has."""

import os

import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from tests.fixtures.command_line import RunDuly

NOBODY = "postgresql://127.0.0.1:1/nowhere"
REACH_POSTGRES = (
    ("cells", "list"),
    ("cells", "check"),
    ("cells", "init", "a"),
    ("cells", "sync"),
    ("cells", "add", "b", "--at", NOBODY),
    ("cells", "assign", "mail", "b"),
    ("cells", "set", "b", "--at", NOBODY),
    ("cells", "remove", "b"),
    ("cells", "move", "b", "--to", NOBODY),
    ("migrate",),
    ("migrate", "--plan"),
    ("db", "grant", "role"),
    ("db", "operator", "ann"),
    ("db", "raise-fences"),
)


@pytest.mark.parametrize("command", REACH_POSTGRES, ids=" ".join)
@pytest.mark.parametrize(
    ("dsn", "code"), [(NOBODY, os.EX_UNAVAILABLE), ("no address", os.EX_CONFIG)], ids=["no answer", "setting"]
)
def test_a_command_that_reaches_postgres_says_whether_it_is_away_or_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], dsn: str, code: int
) -> None:
    monkeypatch.setenv("DULY_STORE_DSN", dsn)
    done = CliRunner().invoke(app, command)

    assert done.exit_code == code, done.output
    assert done.stderr.startswith(f"duly {command[0]}")


def test_a_command_of_cells_that_was_given_no_address_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hint = "this address is the default; give yours with --dsn or DULY_STORE_DSN"
    monkeypatch.setattr("duly_core.postgres.settings.DEFAULT_DSN", NOBODY)
    assert hint in CliRunner().invoke(app, ["cells", "--dsn", NOBODY]).stderr
    assert hint not in CliRunner().invoke(app, ["cells", "--dsn", f"{NOBODY}2"]).stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("gates", "list"), 0),
        (("gates", "show", "none"), 1),
        (("gates", "list", "--lambda", "no lambda"), 1),
        (("gates", "list", "--nonsense"), 2),
        (("sessions", "list", "--limit", "0"), 2),
        (("register", "no.module:app"), os.EX_CONFIG),
        (("run", "no.module:app", "l"), os.EX_CONFIG),
        (("gates", "list", "--address", "127.0.0.1:1"), os.EX_UNAVAILABLE),
        (("slo", "list", "--address", "127.0.0.1:1"), os.EX_UNAVAILABLE),
    ],
)
async def test_a_command_ends_with_what_its_answer_means(
    run_duly: RunDuly, command: tuple[str, ...], code: int
) -> None:
    done = await run_duly(*command)

    assert done.exit_code == code, done.output
