"""`Administration`: a store becomes a cell, cells come and go, namespaces get a cell, and what is wrong is said."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_core.cells.administration import Administration
from duly_core.cells.change_lock import locked
from duly_core.cells.copying import grant_name
from duly_core.cells.directory import Directory, DirectoryError
from duly_core.cells.moving.errors import MoveError
from duly_core.cells.moving.sides import Side, without_password
from duly_core.cells.store import read_now
from duly_core.postgres.dsn import parse
from duly_core.postgres.settings import StoreSettings
from tests.fixtures.postgres import PostgresServer

GRANT = "insert into role_grant (principal, role, pattern, granted_at, granted_by) values (%s, 'operator', '*', now(), '')"


@pytest.fixture
def stores(postgres_server: PostgresServer) -> Iterator[list[str]]:
    """Two stores, as new."""
    names = [postgres_server.create(), postgres_server.create()]
    yield [postgres_server.dsn_of(name) for name in names]
    for name in names:
        postgres_server.drop(name)


@pytest.fixture
def first(stores: list[str]) -> Administration:
    """The commands of an installation whose first cell is `a`."""
    administration = Administration(StoreSettings(dsn=stores[0]))
    administration.init("a")
    return administration


@pytest.fixture
def both(first: Administration, stores: list[str]) -> Administration:
    """The same with a second cell, `b`."""
    first.add("b", without_password(stores[1]), "public")
    return first


def execute(dsn: str, statement: str, *parameters: object) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode(), parameters)


def copy_of(dsn: str) -> Directory:
    with psycopg.connect(dsn, autocommit=True) as connection:
        copy = read_now(connection)
    assert copy is not None
    return copy.directory


def use(dsn: str, namespace: str) -> None:
    """Send an event to a key of a namespace."""
    execute(
        dsn,
        "insert into event (key, event_id, encoding, value, sent_at, expires_at) values (%s, %s, 0, '', now(), now())",
        f"{namespace}/key",
        uuid4().hex,
    )


def test_a_store_becomes_the_first_cell_with_all_namespaces_and_without_a_password_in_its_address(
    first: Administration, stores: list[str]
) -> None:
    found = first.look()
    assert [(state.cell.name, state.copy.fenced if state.copy else None) for state in found.states] == [
        ("a", False)
    ]
    assert found.directory.cell_of("anything") == "a"
    assert "password" not in found.directory.cells["a"].address
    assert found.problems() == []


def test_a_cell_does_not_become_one_again(first: Administration) -> None:
    with pytest.raises(DirectoryError, match="is a cell already"):
        first.init("c")


def test_a_sole_store_is_said_to_be_one(stores: list[str]) -> None:
    with pytest.raises(DirectoryError, match="duly cells init"):
        Administration(StoreSettings(dsn=stores[0])).look()


def test_an_added_cell_is_in_the_directory_of_both_and_a_repeat_changes_nothing(
    both: Administration, stores: list[str]
) -> None:
    assert copy_of(stores[0]) == copy_of(stores[1]) == both.look().directory
    before = copy_of(stores[0]).version
    both.add("b", without_password(stores[1]), "public")
    assert copy_of(stores[0]).version == copy_of(stores[1]).version == before
    assert both.look().problems() == []


def test_an_added_schema_has_the_rights_of_the_services_as_the_first_cell_has(
    first: Administration, stores: list[str]
) -> None:
    first.add("b", without_password(stores[0]), "duly_b")
    with psycopg.connect(stores[0]) as connection:
        rows = connection.execute("select has_table_privilege('duly_frontend', 'duly_b.task', 'insert')")
        assert rows.fetchall() == [(True,)]


def test_a_cell_is_not_added_where_there_are_rows_and_nothing_is_written(
    first: Administration, stores: list[str]
) -> None:
    execute(stores[1], "insert into event_key (key) values ('/k')")
    with pytest.raises(MoveError, match=r"has rows in public\.event_key"):
        first.add("b", without_password(stores[1]), "public")
    assert [*copy_of(stores[0]).cells] == ["a"]


def test_an_addition_that_was_killed_in_the_middle_is_said_and_completed_by_a_repeat(
    first: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(first, "_make", die)
        with pytest.raises(KeyboardInterrupt):
            first.add("b", without_password(stores[1]), "public")
    (problem,) = first.look().problems()
    assert "duly cells add b" in problem
    first.add("b", without_password(stores[1]), "public")
    assert first.look().problems() == []


def test_a_namespace_that_is_not_used_yet_is_given_to_another_cell(
    both: Administration, stores: list[str]
) -> None:
    both.assign("mail", "b")
    assert both.look().directory.cell_of("mail") == "b"
    with pytest.raises(psycopg.Error) as refusal:
        use(stores[0], "mail")
    assert refusal.value.sqlstate == "DU002"
    use(stores[1], "mail")


def test_a_namespace_with_rows_stays_where_it_is(both: Administration, stores: list[str]) -> None:
    use(stores[0], "mail")
    before = copy_of(stores[0])
    with pytest.raises(
        DirectoryError, match=r"namespace mail has events in cell a: .*duly cells move a --to ADDRESS"
    ):
        both.assign("mail", "b")
    assert copy_of(stores[0]) == copy_of(stores[1]) == before


def test_a_namespace_that_has_a_gate_stays_where_it_is_for_the_gate_would_hold_nothing_any_more(
    both: Administration, stores: list[str]
) -> None:
    execute(
        stores[0],
        "insert into gate (name, kind, lambda, owner, reason, created_at) values ('stop', 'pause', %s, '', '', now())",
        "mail/*",
    )
    with pytest.raises(DirectoryError, match=r"has gates in cell a: gates do not move.*duly gates delete"):
        both.assign("mail", "b")
    both.assign("mails", "b")


def test_a_namespace_that_has_an_objective_stays_where_it_is(both: Administration, stores: list[str]) -> None:
    execute(stores[0], "insert into start_objective values (%s, 0.9, '1 s', now())", "mail/send")

    with pytest.raises(
        DirectoryError, match=r"has objectives in cell a: objectives do not move.*duly slo reset"
    ):
        both.assign("mail", "b")


def test_an_assignment_that_was_killed_in_the_middle_is_said_takes_no_rows_and_is_completed_by_sync(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    both.assign("mail", "b")
    with monkeypatch.context() as patched:
        patched.setattr(both, "_write", die)
        with pytest.raises(KeyboardInterrupt):
            both.assign("mail", "a")
    for dsn in stores:
        with pytest.raises(psycopg.Error):
            use(dsn, "mail")
    (problem,) = both.look().problems()
    assert "duly cells sync" in problem
    assert both.sync().problems() == []
    use(stores[0], "mail")


def test_a_cell_in_which_namespaces_live_is_not_removed_and_an_empty_one_is(
    both: Administration, stores: list[str]
) -> None:
    both.assign("mail", "b")
    with pytest.raises(DirectoryError, match=r"cell b has namespaces: mail: .*`duly cells assign mail a`"):
        both.remove("b")
    both.assign("mail", "a")
    both.remove("b")
    assert [*both.look().directory.cells] == ["a"]


@contextmanager
def without_its_database(server: PostgresServer, dsn: str) -> Iterator[None]:
    """A cell whose database does not answer."""
    name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
    execute(server.admin_dsn, f"alter database {name} allow_connections false")
    try:
        yield
    finally:
        execute(server.admin_dsn, f"alter database {name} allow_connections true")


def test_a_change_needs_all_cells_unless_one_is_gone_for_good(
    both: Administration, stores: list[str], postgres_server: PostgresServer
) -> None:
    with without_its_database(postgres_server, stores[1]):
        (problem,) = both.look().problems()
        assert problem.startswith("cell b does not answer")
        with pytest.raises(DirectoryError, match="a change needs all cells"):
            both.assign("mail", "a")
        with pytest.raises(DirectoryError, match="a change needs all cells"):
            both.remove("b")
        both.remove("b", is_gone=True)
    assert [*both.look().directory.cells] == ["a"]


def test_two_processes_do_not_change_the_directory_at_once(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.cells.change_lock._LOCK_FOR", timedelta())
    with (
        Side(stores[0], "public", "cell") as side,
        locked(side, both.look().directory),
        pytest.raises(DirectoryError, match="another process"),
    ):
        both.assign("mail", "b")
    both.assign("mail", "b")


def test_nothing_changes_while_a_cell_is_fenced(both: Administration, stores: list[str]) -> None:
    execute(stores[1], "update cell_directory set state = 'fenced'")
    with pytest.raises(DirectoryError, match="complete its move"):
        both.assign("mail", "b")
    (problem,) = both.look().problems()
    assert "duly cells move b" in problem


def test_a_cell_that_was_restored_from_a_backup_is_named_with_what_it_still_takes(
    both: Administration, stores: list[str]
) -> None:
    both.assign("mail", "b")
    both.assign("mail", "a")
    # the backup is of the time when mail lived in b
    execute(stores[1], "update cell_directory set version = version - 1")
    execute(stores[1], "update cell_namespace set cell = 'b'")
    (problem,) = both.look().problems()
    assert "still takes tasks of mail" in problem
    assert "restore from a backup" in problem


def test_rights_are_not_copied_from_a_default_cell_that_was_restored_unless_it_is_named(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_STORE_DSN", stores[1])
    execute(stores[0], GRANT, "removed")
    assert CliRunner().invoke(app, ["cells", "sync"]).exit_code == 0
    both.assign("mail", "b")
    execute(stores[1], "delete from role_grant")
    execute(stores[1], GRANT, "recent")
    execute(stores[0], "update cell_directory set version = version - 1")  # the backup is of before

    refused = CliRunner().invoke(app, ["cells", "sync"])
    unknown = CliRunner().invoke(app, ["cells", "sync", "--from", "z"])
    kept = [grants(dsn) for dsn in stores]
    done = CliRunner().invoke(app, ["cells", "sync", "--from", "b"])

    assert (refused.exit_code, "duly cells sync --from b" in refused.stderr) == (1, True)
    assert (unknown.exit_code, "there is no cell z: there are a, b" in unknown.stderr) == (1, True)
    assert kept == [["removed"], ["recent"]]
    assert (done.exit_code, "copied to cell a: 2 grants" in done.stdout) == (0, True)
    assert [grants(dsn) for dsn in stores] == [["recent"], ["recent"]]
    assert CliRunner().invoke(app, ["cells", "sync"]).exit_code == 0


def test_a_newer_change_that_the_source_does_not_take_is_not_undone_by_a_copy_and_is_named(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_STORE_DSN", stores[0])
    for name in ("recent", "other"):
        execute(stores[1], GRANT, name)
    note = "insert into operator_change (kind, name, changed_at) values ('grants', %s, now())"
    execute(stores[1], note, grant_name("recent", "operator", "*"))
    execute(
        stores[0],
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not here'; end $$",
    )
    execute(
        stores[0],
        "create trigger refuse before insert on role_grant for each row execute function refuse()",
    )
    done = CliRunner().invoke(app, ["cells", "sync"])
    assert "cell b has a newer change, which cell a does not take: grants: RaiseException: not here" in (
        done.stderr.replace("\n", " ")
    )
    assert done.exit_code == 1  # something is left
    assert [grants(dsn) for dsn in stores] == [[], ["recent"]]


def test_nothing_is_copied_while_a_cell_cannot_say_what_was_changed(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_STORE_DSN", stores[0])
    execute(stores[1], GRANT, "recent")
    execute(stores[0], "alter table operator_change rename to not_migrated")
    refused = CliRunner().invoke(app, ["cells", "sync"])
    kept = grants(stores[1])
    execute(stores[0], "alter table not_migrated rename to operator_change")
    done = CliRunner().invoke(app, ["cells", "sync"])
    assert (refused.exit_code, "was not copied to cell b" in refused.stderr) == (69, True)
    assert kept == ["recent"]
    assert (done.exit_code, grants(stores[1])) == (0, [])


def grants(dsn: str) -> list[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [name for (name,) in connection.execute("select principal from role_grant order by principal")]


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        ("update cell_directory set own_cell = 'z'", "says that it is cell z"),
        ("update cell_directory set installation = gen_random_uuid()", "of another installation"),
        ("drop trigger duly_cell_guard on task_assoc", "lacks guards on task_assoc"),
        ("update alembic_version set version_num = '0001'", "different releases"),
        ("delete from cell_directory", "has no directory"),
    ],
    ids=["another cell", "another installation", "no guard", "another release", "no directory"],
)
def test_a_store_that_is_not_what_the_directory_says_is_named(
    both: Administration, stores: list[str], lie: str, problem: str
) -> None:
    execute(stores[1], lie)
    assert any(problem in each for each in both.look().problems())


def test_two_contents_of_one_version_are_refused_and_nothing_is_changed(
    both: Administration, stores: list[str]
) -> None:
    execute(stores[1], "insert into cell_namespace (namespace, cell) values ('mail', 'b')")
    with pytest.raises(DirectoryError, match="differ"):
        both.look()
    with pytest.raises(DirectoryError, match="differ"):
        both.sync()


def test_addresses_are_kept_without_what_is_secret_or_of_one_session() -> None:
    said = "postgresql://duly:secret@host:1/duly?options=-csearch_path%3Dx&sslmode=require&sslpassword=x&passfile=y"
    assert parse(without_password(said)) == {"host": "host", "port": "1", "dbname": "duly"}


def test_an_address_with_a_password_is_refused(first: Administration, stores: list[str]) -> None:
    with pytest.raises(DirectoryError, match="has no password"):
        first.add("b", stores[1], "public")
    assert [*copy_of(stores[0]).cells] == ["a"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"sslpassword": "x"}, "has no password"),
        ({"user": "owner"}, "has no user"),
        ({"sslmode": "disable", "sslcert": "x"}, "has no sslcert, sslmode"),
    ],
)
def test_an_address_that_says_how_to_sign_in_is_refused(
    first: Administration, stores: list[str], more: dict[str, str], problem: str
) -> None:
    address = psycopg.conninfo.make_conninfo(without_password(stores[1]), **more)
    with pytest.raises(DirectoryError, match=problem):
        first.add("b", address, "public")
    with pytest.raises(DirectoryError, match=problem):
        first.set_address(["a"], address)


@pytest.fixture
def promoted(both: Administration, stores: list[str], postgres_server: PostgresServer) -> Iterator[str]:
    """A copy of cell `b` at another address, as a promoted standby is; the former place is gone."""
    name = str(psycopg.conninfo.conninfo_to_dict(stores[1])["dbname"])
    execute(postgres_server.admin_dsn, f"create database {name}_promoted template {name}")
    with without_its_database(postgres_server, stores[1]):
        yield psycopg.conninfo.make_conninfo(stores[1], dbname=f"{name}_promoted")
    postgres_server.drop(f"{name}_promoted")


def test_a_cell_whose_server_failed_over_gets_its_new_address_in_all_cells(
    both: Administration, stores: list[str], promoted: str
) -> None:
    both.set_address(["b"], without_password(promoted))
    assert copy_of(stores[0]) == copy_of(promoted) == both.look().directory
    assert both.look().problems() == []


def test_cells_of_one_server_that_failed_over_get_their_new_address_together(
    first: Administration, stores: list[str]
) -> None:
    first.add("b", without_password(stores[1]), "public")
    first.add("c", without_password(stores[1]), "duly_c")
    now = without_password(psycopg.conninfo.make_conninfo(stores[1], hostaddr="127.0.0.1"))

    directory = first.set_address(["b", "c"], now)

    assert (directory.version, directory.cells["b"].address, directory.cells["c"].address) == (4, now, now)
    assert first.look().directory == directory
    assert first.look().problems() == []


def test_a_cell_that_was_removed_is_added_again_with_its_store(
    both: Administration, stores: list[str]
) -> None:
    both.remove("b")
    both.add("b", without_password(stores[1]), "public")
    assert copy_of(stores[0]) == copy_of(stores[1]) == both.look().directory
    assert both.look().problems() == []


def test_the_place_from_which_a_cell_was_moved_is_not_added_again(
    both: Administration, stores: list[str]
) -> None:
    both.remove("b")
    execute(stores[1], "update cell_directory set state = 'fenced'")
    with pytest.raises(DirectoryError, match="it is where the cell was moved from"):
        both.add("b", without_password(stores[1]), "public")


def test_an_address_at_which_the_cell_is_not_is_refused(
    both: Administration, stores: list[str], promoted: str
) -> None:
    execute(promoted, "update cell_directory set own_cell = 'z'")
    with pytest.raises(DirectoryError, match=r"is cell z of installation .*, and not cell b"):
        both.set_address(["b"], without_password(promoted))
    with pytest.raises(DirectoryError, match="there is no cell x"):
        both.set_address(["x"], without_password(promoted))
    assert copy_of(stores[0]).version == 2


def test_the_place_from_which_a_cell_was_moved_does_not_become_its_address(
    both: Administration, promoted: str
) -> None:
    execute(promoted, "update cell_directory set state = 'fenced'")
    with pytest.raises(DirectoryError, match="it is where the cell was moved from"):
        both.set_address(["b"], without_password(promoted))


def test_a_repeated_assignment_completes_what_was_killed_in_the_middle(
    both: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(both, "_write", die)
        with pytest.raises(KeyboardInterrupt):
            both.assign("mail", "b")
    both.assign("mail", "b")
    assert copy_of(stores[0]) == copy_of(stores[1])
    use(stores[1], "mail")


def test_no_namespace_is_given_to_a_cell_that_is_half_made(
    first: Administration, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(first, "_make", die)
        with pytest.raises(KeyboardInterrupt):
            first.add("b", without_password(stores[1]), "public")
    with pytest.raises(DirectoryError, match="duly cells add b"):
        first.assign("mail", "b")


def test_a_cell_that_was_restored_from_before_it_was_one_is_added_again_with_its_rows(
    both: Administration, stores: list[str]
) -> None:
    both.assign("mail", "b")
    use(stores[1], "mail")
    execute(stores[1], "truncate cell_directory, cell, cell_namespace")
    both.add("b", without_password(stores[1]), "public")
    assert both.look().problems() == []


def test_another_address_of_a_cell_is_not_added_as_one(both: Administration, stores: list[str]) -> None:
    alias = psycopg.conninfo.make_conninfo(without_password(stores[0]), hostaddr="127.0.0.1")
    with pytest.raises(DirectoryError, match="is cell a of installation"):
        both.add("c", alias, "public")


def test_the_first_cell_may_have_another_address_for_the_services_than_for_the_command(
    stores: list[str],
) -> None:
    administration = Administration(StoreSettings(dsn=stores[0]))
    directory = administration.init("a", "postgresql://ann@db.internal/duly?sslmode=require")
    assert psycopg.conninfo.conninfo_to_dict(directory.cells["a"].address) == {
        "host": "db.internal",
        "dbname": "duly",
    }
