"""`duly db` as an operator runs it."""

from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from duly_cli.__main__ import app


def run(*arguments):
    return CliRunner().invoke(app, ["db", "grant", *arguments])


def test_a_role_is_made_once_and_may_call_the_function(dsn):
    role = f"client_{uuid4().hex[:12]}"

    first, again = run(role, "--dsn", dsn), run(role, "--dsn", dsn)

    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "select has_function_privilege(%s, 'duly_schedule'::regproc, 'execute')"
        may = connection.execute(query, [role]).fetchone()
        name = sql.Identifier(role)
        connection.execute(sql.SQL("drop owned by {}; drop role {}").format(name, name))
    assert (first.exit_code, first.stdout) == (0, f"{role}: made, and may call duly_schedule\n")
    assert again.stdout == f"{role}: may call duly_schedule\n"
    assert may == (True,)


def test_a_store_that_cannot_be_reached_is_an_error_of_one_line():
    refused = run("role", "--dsn", "host=127.0.0.1 port=1 dbname=nowhere")

    assert refused.exit_code == 69
    assert refused.stderr.startswith("duly db grant: the store at ")


@pytest.mark.parametrize(
    "command",
    [("operator", "ann"), ("raise-fences", "--dry-run"), ("grant", "duly_client")],
    ids=lambda it: it[0],
)
def test_a_command_takes_the_password_from_the_file_of_the_settings(command, dsn, tmp_path, monkeypatch):
    parts = conninfo_to_dict(dsn)
    (tmp_path / "password").write_text(parts.pop("password"))
    monkeypatch.setenv("DULY_STORE_DSN", make_conninfo("", **parts))
    monkeypatch.setenv("DULY_STORE_PASSWORD_FILE", str(tmp_path / "password"))

    done = CliRunner().invoke(app, ["db", *command])

    assert done.exit_code == 0, done.output
