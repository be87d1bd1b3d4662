"""The steps of an upgrade: locks that wait briefly, cuts that are continued, contract steps that wait for older processes."""

import asyncio
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

import duly_core.postgres.schema.migrate as migrate_module
from duly_cli.__main__ import app
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.schema.check import SchemaState, look_at_schema
from duly_core.postgres.schema.migrate import migrate, version_of
from duly_core.postgres.schema.plan import State, plan
from duly_core.postgres.schema.steps import FIRST, NEEDED, NEWEST, STEPS, Kind, read_steps
from duly_core.postgres.settings import StoreSettings
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.rows import ATTEMPT, insert

CHAIN = {
    "9001_notes": "-- Attempts may have notes.\n-- step: expand\n-- locks: attempt access exclusive\n"
    "alter table attempt add column note text;",
    "9002_notes_written": "-- Older attempts get theirs.\n-- step: backfill\n-- reads: attempt\n"
    "update attempt set note = 'none' where (task_id, fence) in "
    "(select task_id, fence from attempt where note is null limit %(batch)s)",
    "9003_by_note": "-- Attempts are found by their notes.\n-- step: index\n-- locks: attempt share\n"
    "-- reads: attempt\ncreate index concurrently attempt_by_note on attempt (note) where note is not null",
    "9004_note_checked": "-- Notes are short.\n-- step: expand\n-- locks: attempt access exclusive\n"
    "alter table attempt add constraint attempt_note check (length(note) < 100) not valid;",
    "9005_note_valid": "-- All notes are short.\n-- step: expand\n-- locks: attempt share update exclusive\n-- reads: attempt\n"
    "alter table attempt validate constraint attempt_note;",
    "9006_no_claimed_at": "-- Nobody reads claimed_at any more.\n-- step: contract\n-- locks: attempt access exclusive\n"
    "alter table attempt drop column claimed_at;",
}
"""Steps of each kind, as a later release may have them, with what each file says."""

ROWS = 7


@pytest.fixture
def steps(tmp_path):
    for name, text in CHAIN.items():
        (tmp_path / f"{name}.sql").write_text(text)
    return (*STEPS, *read_steps(tmp_path))


@pytest.fixture
def store(postgres_server, monkeypatch):
    """A store of this release, with some attempts, whose backfills take three rows at a time."""
    monkeypatch.setattr(migrate_module, "BATCH", 3)
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    dsn = postgres_server.dsn_of(name)
    migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(ROWS):
            insert(connection, "attempt", ATTEMPT | {"task_id": str(new_task_id())})
    yield dsn
    postgres_server.drop(name)


def state_of(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        notes = connection.execute("select count(to_jsonb(each) ->> 'note') from attempt as each").fetchone()[
            0
        ]
        indexes = connection.execute("select count(*) from pg_index where not indisvalid").fetchone()[0]
        return version_of(connection), notes, indexes


def report(dsn, service, schema_version, *, age=timedelta(0), stopped=False):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into service_instance values (%s, %s, 'db-1', '0.1.0', '', now(), now() - %s, '10 s', %s, null, null, %s)",
            [uuid4().hex, service, age, stopped, schema_version],
        )


def test_each_kind_of_step_runs_and_the_contract_waits_for_its_word(store, steps):
    expanded = migrate(store, steps=steps)
    before = state_of(store)
    contracted = migrate(store, steps=steps, contract=True)

    assert [step.version for step in expanded.done] == ["9001", "9002", "9003", "9004", "9005"]
    assert expanded.waiting.version == "9006"
    assert before == ("9005", ROWS, 0)
    assert [step.version for step in contracted.done] == ["9006"]
    assert migrate(store, steps=steps, contract=True).done == ()


def test_a_contract_waits_for_processes_that_do_not_know_it(store, steps):
    migrate(store, steps=steps)
    report(store, "frontend", None)
    report(store, "hsc", "9005")
    report(store, "hsc", "9006")
    report(store, "store_consumer", "9005", stopped=True)
    report(store, "store_consumer", "9005", age=timedelta(minutes=5))

    migrated = migrate(store, steps=steps, contract=True)

    assert migrated.waiting.version == "9006"
    assert migrated.waits_for == ("frontend on db-1 (release 0.1.0)", "hsc on db-1 (release 0.1.0)")


def test_a_step_behind_a_contract_is_refused_while_an_older_process_is_alive(store, steps, tmp_path):
    (tmp_path / "9007_more.sql").write_text("-- More.\n-- step: expand\ncreate table more (a int);")
    later = (*STEPS, *read_steps(tmp_path))
    report(store, "hsc", "9005")

    with pytest.raises(SettingsError, match=r"step 9006 .* hsc on db-1 .* run `duly migrate` again"):
        migrate(store, steps=later)

    assert state_of(store)[0] == "9005"


async def test_a_process_does_not_start_on_a_schema_that_has_lost_what_it_uses(store, steps):
    migrate(store, steps=steps)
    expanded = await look_at_schema(StoreSettings(dsn=store))
    migrate(store, steps=steps, contract=True)
    contracted = await look_at_schema(StoreSettings(dsn=store))

    assert (expanded, contracted) == (SchemaState.USABLE, SchemaState.CONTRACTED)
    assert plan(store).state is State.CONTRACTED


def cut_after(dsn, steps, statements):
    """Migrate in a process that kills itself after so many statements; True: it was done before."""
    child = os.fork()
    if child == 0:
        left = statements
        execute = psycopg.Connection.execute

        def counted(*arguments, **named):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return execute(*arguments, **named)

        psycopg.Connection.execute = counted
        try:
            migrate(dsn, steps=steps, contract=True)
        except BaseException:  # noqa: BLE001 (the child must not go on as a test)
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) == 0


def has_column(dsn, name):
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select from information_schema.columns where table_name = 'attempt' and column_name = %s", [name]
        )
        return found.rowcount > 0


def test_a_migration_that_is_killed_again_and_again_is_continued_by_the_same_command(store, steps):
    seen = []
    for statements in range(0, 200, 3):  # each start again costs; the next test has a cut at each statement
        if cut_after(store, steps, statements):
            break
        seen.append(state_of(store))

    assert seen == sorted(seen, key=lambda state: state[0])
    assert len({version for version, _, _ in seen}) > len(CHAIN) / 2
    assert state_of(store) == ("9006", ROWS, 0)
    assert not has_column(store, "claimed_at")
    assert migrate(store, steps=steps, contract=True).done == ()


@pytest.mark.timeout(300)
@pytest.mark.long  # a database for each statement; the test before kills one migration all along
def test_a_migration_that_is_killed_at_any_statement_is_continued_by_the_same_command(
    store, steps, postgres_server
):
    seen = []
    for statements in range(200):
        name = f"duly_test_{uuid4().hex[:12]}"
        postgres_server._create(name, psycopg.conninfo.conninfo_to_dict(store)["dbname"])
        copy = postgres_server.dsn_of(name)
        was_done = cut_after(copy, steps, statements)
        seen.append(state_of(copy)[0])
        migrate(copy, steps=steps, contract=True)
        end = (state_of(copy), has_column(copy, "claimed_at"))
        postgres_server.drop(name)
        assert end == (("9006", ROWS, 0), False)
        if was_done:
            break

    assert {*seen} == {NEWEST, "9001", "9002", "9003", "9004", "9005", "9006"}


def test_an_index_that_a_cut_left_half_built_is_built_again(store, steps):
    migrate(store, steps=[step for step in steps if step.version <= "9002"])
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute("create index attempt_by_note on only attempt (note) where note is not null")
        connection.execute("create index attempt_first_attempt_by_note on attempt_first (note)")
        connection.execute(
            "update pg_index set indisvalid = false where indexrelid = 'attempt_first_attempt_by_note'::regclass"
        )

    migrate(store, steps=steps)

    with psycopg.connect(store) as connection:
        (definition,) = connection.execute(
            "select pg_get_indexdef('attempt_first_attempt_by_note'::regclass)"
        ).fetchone()
    assert state_of(store) == ("9005", ROWS, 0)
    assert "WHERE (note IS NOT NULL)" in definition


@pytest.mark.parametrize(
    ("done", "held", "passing"),
    [
        (NEWEST, "select from attempt", "select from attempt"),
        (
            "9002",
            "lock table only attempt in row exclusive mode",
            "update attempt set note = 'a' where false",
        ),
    ],
    ids=["expand", "index of a partitioned table"],
)
async def test_a_step_that_waits_for_a_table_lets_others_pass_and_tries_again(
    store, steps, done, held, passing
):
    migrate(store, steps=[step for step in steps if step.version <= done])
    with psycopg.connect(store) as holder, psycopg.connect(store, autocommit=True) as other:
        holder.execute(held)
        migrating = asyncio.create_task(asyncio.to_thread(migrate, store, steps=steps))
        await until_a_statement_waits_for_a_lock(store)
        other.execute("set statement_timeout = '5 s'")
        await asyncio.to_thread(other.execute, passing)  # stands behind the step until that gives up
        during = state_of(store)[0]
        holder.rollback()
        await migrating

    assert during == done
    assert state_of(store)[0] == "9005"


def test_who_holds_a_table_for_long_is_named(store, steps, monkeypatch):
    monkeypatch.setattr(migrate_module, "_RETRY_FOR", timedelta(0))
    with psycopg.connect(store, application_name="a dump") as reader:
        reader.execute("select from attempt")

        with pytest.raises(
            StoreUnavailableError, match=r"step 9001 .* pid \d+ \(a dump, idle in transaction\) since"
        ):
            migrate(store, steps=steps)

    assert state_of(store)[0] == NEWEST


def test_the_plan_says_what_would_run_and_changes_nothing(store, steps):
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute("analyze attempt")
    report(store, "hsc", "9005")

    made = plan(store, steps=steps)

    estimate = ROWS + 1  # Postgres expects a row in the empty partition
    assert (made.state, made.version, made.needed, made.newest) == (State.OLDER, NEWEST, "9005", "9006")
    assert [(step.version, step.kind, step.rows, step.older_release_works) for step in made.steps] == [
        ("9001", Kind.EXPAND, 0, True),
        ("9002", Kind.BACKFILL, estimate, True),
        ("9003", Kind.INDEX, estimate, True),
        ("9004", Kind.EXPAND, 0, True),
        ("9005", Kind.EXPAND, estimate, True),
        ("9006", Kind.CONTRACT, 0, False),
    ]
    assert made.steps[-1].waits_for == ("hsc on db-1 (release 0.1.0)",)
    assert str(made.steps[2].locks[0]) == "attempt share"
    assert state_of(store)[0] == NEWEST


def test_the_command_shows_the_way_from_the_base_release(base_dsn):
    checked = CliRunner().invoke(app, ["migrate", "--check", "--dsn", base_dsn])
    asked = CliRunner().invoke(app, ["migrate", "--check", "--json", "--dsn", base_dsn])
    planned = CliRunner().invoke(app, ["migrate", "--plan", "--dsn", base_dsn])
    done = CliRunner().invoke(app, ["migrate", "--dsn", base_dsn])
    after = CliRunner().invoke(app, ["migrate", "--check", "--json", "--dsn", base_dsn])

    assert (checked.exit_code, checked.stdout) == (
        1,
        f"the store's schema is {FIRST}, and this release needs {NEEDED}: run `duly migrate`\n",
    )
    answer = json.loads(asked.stdout)
    assert (answer["state"], answer["usable"], len(answer["steps"])) == ("older", False, len(STEPS))
    for line in (
        f"step {STEPS[0].version} (expand): {STEPS[0].title}",
        "  locks: service_instance access exclusive",
        "  rewrites a table: no",
        "  the older release works meanwhile and afterwards: yes",
    ):
        assert line in planned.stdout.splitlines()
    assert (planned.exit_code, done.exit_code) == (0, 0)
    assert json.loads(after.stdout)["state"] == "usable"


def test_a_file_that_is_no_step_is_refused(tmp_path):
    (Path(tmp_path) / "9001_odd.sql").write_text("drop table task;")

    with pytest.raises(ValueError, match="name it NNNN_words"):
        read_steps(tmp_path)
