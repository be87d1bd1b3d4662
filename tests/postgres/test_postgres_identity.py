"""As whom the embedded Postgres runs: an ordinary user as is, root as somebody else, in whatever way works."""

import os
import shutil
from pathlib import Path

import pytest

from duly_local.postgres import binaries_copy, os_user
from duly_local.postgres.binaries import find_binaries
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.postgres.os_user import PostgresOsUser
from tests.fixtures.embedded import ORDINARY_OWNER, OWNER, read_the_row, write_one_row
from tests.fixtures.programs import Programs, is_alive

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root must run Postgres as somebody else")


def test_an_ordinary_user_runs_it_as_is(open_folder: Path, programs: Programs) -> None:
    if os.geteuid() == 0:
        os.chown(open_folder, 65534, 65534)
    owner = programs.start(ORDINARY_OWNER if os.geteuid() == 0 else OWNER, open_folder / "data")

    postgres = owner.number_in("postgres runs")

    expected = 65534 if os.geteuid() == 0 else os.geteuid()
    assert Path(f"/proc/{postgres}").stat().st_uid == expected
    assert owner.end_of_input() == 0
    assert not is_alive(postgres)


@pytest.mark.long  # makes a Postgres of its own
@as_root
def test_root_runs_it_as_nobody_where_that_user_can_reach_the_data(open_folder: Path) -> None:
    with EmbeddedPostgres(open_folder / "data") as postgres:
        assert Path(f"/proc/{postgres.pid}").stat().st_uid == 65534


@pytest.mark.long  # makes a Postgres of its own
@as_root
def test_root_runs_it_below_a_folder_closed_to_others(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)

    with EmbeddedPostgres(closed / "data") as postgres:
        write_one_row(postgres)

    with EmbeddedPostgres(closed / "data") as postgres:
        assert read_the_row(postgres) == 42
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.long  # makes a Postgres of its own
@as_root
def test_root_runs_it_below_a_closed_folder_where_user_namespaces_are_forbidden(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(os_user, "_NAMESPACE", ("false",))

    with EmbeddedPostgres(closed / "data") as postgres:
        assert Path(f"/proc/{postgres.pid}").stat().st_uid == 65534
        write_one_row(postgres)

    # And the other way on the same data, whose owner changes.
    monkeypatch.undo()
    with EmbeddedPostgres(closed / "data") as postgres:
        assert read_the_row(postgres) == 42


@pytest.mark.long  # makes a Postgres of its own
@as_root
def test_root_runs_a_copy_of_programs_that_only_root_can_reach(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    installed = find_binaries().folder
    package = installed.parent.parent
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(package, closed / package.name, symlinks=True)
    shutil.copytree(package.with_name(package.name + ".libs"), closed / (package.name + ".libs"))
    monkeypatch.setenv("DULY_POSTGRES_BIN", str(closed / installed.relative_to(package.parent)))
    monkeypatch.setattr(os_user, "_NAMESPACE", ("false",))
    monkeypatch.setattr(binaries_copy, "_CACHES", (open_folder,))

    with EmbeddedPostgres(closed / "data") as postgres:
        write_one_row(postgres)
        runs_from = Path(f"/proc/{postgres.pid}/exe").readlink()

    assert runs_from.is_relative_to(open_folder / "duly")
    again = PostgresOsUser.choose(find_binaries(), closed / "data")
    assert runs_from.parent == again.binaries.folder
