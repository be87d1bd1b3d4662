"""`duly cells move` as an operator runs it: killed at each of its lines, while an application schedules."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.cells.moving.sides import without_password
from tests.cells.test_move import in_schema, leftovers, schedule, tasks
from tests.fixtures.logical_postgres import SCHEMA, TwoPlaces
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.long
_LONGEST = timedelta(seconds=240)


@pytest.fixture
def environment(two_places: TwoPlaces, tmp_path: Path) -> dict[str, str]:
    password = tmp_path / "password"
    said = conninfo_to_dict(two_places.source)
    password.write_text(str(said["password"]))
    return os.environ | {
        "DULY_STORE_DSN": make_conninfo(without_password(two_places.source), user=said["user"]),
        "DULY_STORE_PASSWORD_FILE": str(password),
        "DULY_STORE_SCHEMA_NAME": SCHEMA,
    }


def command(places: TwoPlaces, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "duly_cli",
        "cells",
        "move",
        "a",
        "--to",
        without_password(places.target),
        *more,
    ]


def killed_at_a_new_line(places: TwoPlaces, environment: dict[str, str], heard: set[str]) -> bool:
    """Run the command, and kill it at its first new line; True: it has done all."""
    with subprocess.Popen(command(places), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            what = line.strip()
            if what not in heard and not what.startswith("copy:"):
                heard.add(what)
                process.send_signal(signal.SIGKILL)
                break
    return process.returncode == 0


def is_cell(dsn: str) -> bool:
    """Tell whether a database says that it is a cell."""
    with in_schema(dsn) as connection:
        try:
            return connection.execute("select from cell_directory").rowcount == 1
        except psycopg.errors.UndefinedTable:
            return False


@pytest.mark.timeout(300)
def test_a_command_that_is_killed_at_each_of_its_lines_moves_the_cell_under_load_and_loses_nothing(
    two_places: TwoPlaces, environment: dict[str, str]
) -> None:
    acknowledged: list[str] = []
    over = threading.Event()

    def load() -> None:
        """An application that schedules in its own transactions, at whichever place takes it."""
        while not over.is_set():
            place = two_places.target if is_cell(two_places.target) else two_places.source
            try:
                acknowledged.append(schedule(place))
            except psycopg.Error as error:
                assert error.sqlstate == "DU001"  # noqa: PT017 (fenced: it tries again)
            over.wait(0.02)

    application = threading.Thread(target=load)
    application.start()
    heard: set[str] = set()
    try:
        wait_until(lambda: killed_at_a_new_line(two_places, environment, heard), _LONGEST)
        switched_with = len(acknowledged)
        wait_until(lambda: len(acknowledged) > switched_with)
    finally:
        over.set()
        application.join()

    assert tasks(two_places.target) == sorted(acknowledged)
    assert leftovers(two_places) == 0


def test_the_command_refuses_what_it_cannot_do_and_says_what_to_do(
    two_places: TwoPlaces, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [*command(two_places)[:-3], "x", "--to", without_password(two_places.target)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "duly cells move: there is no cell x: there are a"
