"""`Mover`: a cell moves to another database with all its rows, is killed anywhere, given up, refused."""

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duly_core.cells.administration import Administration
from duly_core.cells.directory import Cell, DirectoryError
from duly_core.cells.moving import steps
from duly_core.cells.moving.copies import forward, make_cell, read_copy
from duly_core.cells.moving.errors import MoveError, MoveTakenError, SwitchedError
from duly_core.cells.moving.move import find_mover, run
from duly_core.cells.moving.mover import Mover
from duly_core.cells.moving.sides import Side, with_password_of, without_password
from duly_core.cells.moving.steps import Step, next_step
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.settings import StoreSettings
from tests.fixtures.logical_postgres import SCHEMA, LogicalPostgres, TwoPlaces
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import wait_until

BEFORE_THE_SWITCH = [Step.PREPARE, Step.PUBLISH, Step.SUBSCRIBE, Step.COPY, Step.FENCE]


class Killed(BaseException):
    """The moving process dies."""


def mover(places: TwoPlaces, target: str = "", **options: object) -> Mover:
    return Mover(places.directory, "a", places.source, target or places.target, {}, **options)  # type: ignore[arg-type]


def up_to(places: TwoPlaces, last: Step) -> None:
    """Do the steps of a move up to one, each in a process of its own."""

    def done() -> bool:
        with mover(places) as each:
            return each.run_once() is last

    wait_until(done, timedelta(seconds=60))


def in_schema(dsn: str) -> psycopg.Connection:
    return psycopg.connect(make_conninfo(dsn, options=f"-c search_path={SCHEMA}"), autocommit=True)


def schedule(dsn: str) -> str:
    """Schedule a task in the cell, as an application does in its own transaction; return its id."""
    with in_schema(dsn) as connection:
        return str(connection.execute("select duly_schedule(%s)", [LAMBDA]).fetchone()[0])


def tasks(dsn: str) -> list[str]:
    with in_schema(dsn) as connection:
        return [
            str(found)
            for (found,) in connection.execute("select task_id from task order by task_id").fetchall()
        ]


def leftovers(places: TwoPlaces) -> int:
    """Publications, slots and subscriptions of both sides."""
    with in_schema(places.source) as source, in_schema(places.target) as target:
        return sum(
            connection.execute(statement).fetchone()[0]
            for connection in (source, target)
            for statement in (
                "select count(*) from pg_publication",
                "select count(*) from pg_subscription where subdbid = (select oid from pg_database where datname = current_database())",
                "select count(*) from pg_replication_slots where database = current_database()",
            )
        )


def tidies(dsn: str) -> bool:
    """Tell whether Store Consumers add and drop partitions there."""
    with in_schema(dsn) as connection:
        return connection.execute("select true from turn where name = 'upkeep'").fetchone() is not None


def test_a_cell_moves_with_all_its_rows_in_steps_each_of_which_another_process_may_do(
    two_places: TwoPlaces,
) -> None:
    scheduled = [schedule(two_places.source)]
    for last in BEFORE_THE_SWITCH[:-1]:
        up_to(two_places, last)
        scheduled.append(schedule(two_places.source))

    up_to(two_places, Step.DONE)

    assert tasks(two_places.target) == sorted(scheduled)
    with Side(two_places.target, SCHEMA, "target") as side:
        copy = read_copy(side)
    assert copy is not None
    assert (copy.own, copy.fenced, copy.directory.version) == ("a", False, two_places.directory.version + 1)
    assert copy.directory.cells["a"].address == without_password(two_places.target)
    assert leftovers(two_places) == 0
    assert tidies(two_places.target)
    schedule(two_places.target)


def test_the_former_place_refuses_every_write_for_ever_and_says_where_the_cell_is(
    two_places: TwoPlaces,
) -> None:
    up_to(two_places, Step.DONE)
    with pytest.raises(psycopg.Error) as refusal:
        schedule(two_places.source)
    assert refusal.value.sqlstate == "DU001"
    with Side(two_places.source, SCHEMA, "source") as side:
        copy = read_copy(side)
    assert copy is not None
    assert copy.fenced
    assert copy.directory.cells["a"].address == without_password(two_places.target)


def test_a_move_that_is_killed_at_any_of_its_lines_goes_on_and_loses_nothing(two_places: TwoPlaces) -> None:
    scheduled: list[str] = []
    heard: set[str] = set()

    def die_at_a_new_line(line: str) -> None:
        if line not in heard and not line.startswith("copy:"):
            heard.add(line)
            raise Killed(line)

    def done() -> bool:
        try:
            scheduled.append(schedule(two_places.source))
        except psycopg.Error as error:
            assert error.sqlstate == "DU001"  # noqa: PT017 (fenced: callers wait)
        try:
            with mover(two_places, tell=die_at_a_new_line) as each:
                return each.run_once() is Step.DONE
        except Killed:
            return False

    wait_until(done, timedelta(seconds=90))

    assert len(heard) > len(Step)
    assert tasks(two_places.target) == sorted(scheduled)
    assert leftovers(two_places) == 0


def test_only_one_process_moves_a_cell_at_a_time(two_places: TwoPlaces) -> None:
    with mover(two_places), pytest.raises(MoveTakenError, match="another process"), mover(two_places):
        pass


def test_a_cell_on_its_way_to_one_target_does_not_go_to_another(
    two_places: TwoPlaces, logical_postgres: LogicalPostgres
) -> None:
    up_to(two_places, Step.PUBLISH)
    other = logical_postgres.create()
    with mover(two_places, other) as second, pytest.raises(MoveTakenError, match=r"on its way to .*--abort"):
        second.run_once()
    logical_postgres.drop(other)


@pytest.mark.parametrize("last", BEFORE_THE_SWITCH)
def test_a_move_that_is_given_up_before_its_switch_leaves_the_cell_as_it_was(
    two_places: TwoPlaces, last: Step
) -> None:
    up_to(two_places, last)
    with mover(two_places) as each:
        each.give_up()
    schedule(two_places.source)
    assert leftovers(two_places) == 0
    assert tidies(two_places.source)


def test_a_move_past_its_switch_cannot_be_given_up(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.SWITCH)
    with mover(two_places) as each, pytest.raises(MoveError, match="without --abort"):
        each.give_up()
    with pytest.raises(psycopg.Error):
        schedule(two_places.source)


def test_a_move_that_was_given_up_beside_a_switch_does_not_switch(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.FENCE)

    def give_up_after_the_comparison(line: str) -> None:
        if line.startswith("switch: both sides"):
            # the lock is at the source: a process that lost its connection there holds it no more
            first.source.close()
            with mover(two_places) as second:
                second.give_up()

    first = mover(two_places, tell=give_up_after_the_comparison)
    with first, pytest.raises(MoveError, match=r"given up meanwhile.*the fence is still up"):
        first.run_once()
    schedule(two_places.source)


def test_a_move_whose_target_is_gone_can_be_given_up_at_the_source_alone(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.SUBSCRIBE)
    gone = make_conninfo(two_places.target, port=1)
    with mover(two_places, gone) as each, pytest.raises(StoreUnavailableError):
        each.give_up()
    with Side(two_places.target, SCHEMA, "target") as side:  # its server dies
        side.run(f"alter subscription {each.name} disable")
    with mover(two_places, gone) as each:
        each.give_up(target_is_gone=True)
    schedule(two_places.source)
    assert tidies(two_places.source)


def test_a_difference_between_the_sides_takes_the_fence_down_and_names_the_table(
    two_places: TwoPlaces,
) -> None:
    task_id = schedule(two_places.source)
    up_to(two_places, Step.FENCE)
    with in_schema(two_places.target) as connection:
        connection.execute("delete from task where task_id = %s", [task_id])
    with mover(two_places) as each, pytest.raises(MoveError, match="differ in task; the fence is down"):
        each.run_once()
    schedule(two_places.source)


def test_a_target_that_does_not_catch_up_in_time_takes_the_fence_down(
    two_places: TwoPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CLOSE", 1 << 40)  # others write WAL on this server, too
    up_to(two_places, Step.SUBSCRIBE)
    with mover(two_places, longest_fence=timedelta()) as each:
        wait_until(lambda: next_step(each.look()) is Step.FENCE)
        each._end_workers()  # of the target, which then follows no more
        schedule(two_places.source)
        assert each.run_once() is Step.FENCE
        with pytest.raises(MoveError, match=r"did not catch up .*the fence is down"):
            each.run_once()
    schedule(two_places.source)


def test_a_switch_that_nobody_was_told_of_is_completed_from_the_old_directory(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.SWITCH)
    administration = Administration(StoreSettings(dsn=two_places.source, schema_name=SCHEMA))
    known = administration.look().directory
    found = find_mover(known, "a", two_places.target, lambda address: with_password(two_places, address))
    assert found is not None
    lines: list[str] = []
    run(found, lines.append)
    assert leftovers(two_places) == 0
    known = administration.look().directory
    assert known.version == two_places.directory.version + 1
    assert (
        find_mover(known, "a", two_places.target, lambda address: with_password(two_places, address)) is None
    )


def with_password(places: TwoPlaces, address: str) -> str:
    """Both databases are on one server: they have one password."""
    return with_password_of(places.source, address)


def test_other_cells_are_told_and_those_that_do_not_answer_are_named(
    two_places: TwoPlaces, logical_postgres: LogicalPostgres, cell_template: str
) -> None:
    other = logical_postgres.create(cell_template)
    directory = two_places.directory.with_cell(Cell("b", without_password(other), SCHEMA))
    third = logical_postgres.create(cell_template)
    directory = directory.with_cell(Cell("c", without_password(third), SCHEMA))
    for dsn, name in ((other, "b"), (third, "c")):
        with Side(dsn, SCHEMA, "cell") as side, side.connection.transaction():
            make_cell(side, directory, name)
    with Side(two_places.source, SCHEMA, "cell") as side:
        forward(side, directory)
    others = {"a": two_places.source, "b": other, "c": third}
    with Mover(directory, "a", two_places.source, two_places.target, others) as first:
        wait_until(lambda: first.run_once() is Step.SWITCH)
    logical_postgres.drop(third)
    mover_of_two = Mover(directory, "a", two_places.source, two_places.target, others)
    run(mover_of_two, lambda _: None)
    assert mover_of_two.not_told == ["c"]
    with Side(other, SCHEMA, "cell") as side:
        copy = read_copy(side)
    assert copy is not None
    assert (copy.own, copy.directory.version) == ("b", directory.version + 1)
    logical_postgres.drop(other)


def test_a_target_with_rows_is_refused(
    two_places: TwoPlaces, logical_postgres: LogicalPostgres, cell_template: str
) -> None:
    other = logical_postgres.create(cell_template)
    with (
        mover(two_places, other) as each,
        pytest.raises(MoveError, match=r"has rows in duly_a\.lambda.*drop schema"),
    ):
        each.run_once()
    logical_postgres.drop(other)


def test_another_cell_is_no_target(
    two_places: TwoPlaces, logical_postgres: LogicalPostgres, cell_template: str
) -> None:
    other = logical_postgres.create(cell_template)
    with Side(other, SCHEMA, "cell") as side, side.connection.transaction():
        make_cell(side, two_places.directory, "b")
    with mover(two_places, other) as each, pytest.raises(MoveError, match="is cell b already"):
        each.run_once()
    logical_postgres.drop(other)


def test_the_place_where_the_cell_is_is_no_target(two_places: TwoPlaces) -> None:
    with mover(two_places, two_places.source) as each, pytest.raises(MoveError):
        each.give_up()


def test_a_source_that_is_another_cell_than_the_directory_says_is_refused(two_places: TwoPlaces) -> None:
    with in_schema(two_places.source) as connection:
        connection.execute("update cell_directory set own_cell = 'z'")
    with mover(two_places) as each, pytest.raises(MoveError, match="is cell z, and the directory says a"):
        each.run_once()


def test_a_target_with_the_schema_of_another_release_is_refused(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.PREPARE)
    with in_schema(two_places.target) as connection:
        connection.execute("insert into turn values ('registry')")
        connection.execute("update alembic_version set version_num = '0001'")
    with mover(two_places) as each, pytest.raises(MoveError, match="run `duly migrate` at the older one"):
        each.run_once()


def test_a_source_that_cannot_replicate_is_refused_with_what_to_set(
    two_places: TwoPlaces, postgres_server: PostgresServer
) -> None:
    plain = postgres_server.create()
    dsn = postgres_server.dsn_of(plain)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"alter schema public rename to {SCHEMA}")
    with Side(dsn, SCHEMA, "cell") as side, side.connection.transaction():
        make_cell(side, two_places.directory, "a")
    with (
        mover(replace(two_places, source=dsn)) as each,
        pytest.raises(MoveError, match="set wal_level = logical"),
    ):
        each.run_once()
    postgres_server.drop(plain)


def test_a_mover_that_lost_its_lock_does_not_take_down_the_fence_of_a_move_that_another_has_switched(
    two_places: TwoPlaces,
) -> None:
    up_to(two_places, Step.FENCE)

    def lose_the_lock_to_one_that_switches(line: str) -> None:
        if line.startswith("switch: the target has all"):
            first.source.close()
            up_to(two_places, Step.SWITCH)
            with in_schema(two_places.target) as connection:
                connection.execute("insert into event_key (key) values ('/differs')")

    first = mover(two_places, tell=lose_the_lock_to_one_that_switches)
    with first, pytest.raises(MoveError, match="the fence is still up"):
        first.run_once()
    with pytest.raises(psycopg.Error) as refusal:
        schedule(two_places.source)
    assert refusal.value.sqlstate == "DU001"


def test_a_source_of_another_release_is_refused_before_anything_is_made_at_the_target(
    two_places: TwoPlaces,
) -> None:
    with in_schema(two_places.source) as connection:
        connection.execute("update alembic_version set version_num = '0001'")
    with mover(two_places) as each, pytest.raises(MoveError, match="run `duly migrate` there"):
        each.run_once()
    with psycopg.connect(two_places.target) as connection:
        assert connection.execute("select to_regnamespace(%s)", [SCHEMA]).fetchone() == (None,)


def test_a_failed_switch_of_a_second_process_leaves_the_first_one_nothing_to_switch(
    two_places: TwoPlaces,
) -> None:
    up_to(two_places, Step.FENCE)

    def fail(line: str) -> None:
        if line.startswith("switch: the target has all"):
            raise StoreUnavailableError("the target stumbles")

    def let_another_fail(line: str) -> None:
        if line.startswith("switch: both sides"):
            first.source.close()
            with mover(two_places, tell=fail) as second, pytest.raises(MoveError, match="the fence is down"):
                second.run_once()

    first = mover(two_places, tell=let_another_fail)
    with first, pytest.raises(MoveError, match="another process goes on"):
        first.run_once()
    scheduled = schedule(two_places.source)
    up_to(two_places, Step.DONE)
    assert scheduled in tasks(two_places.target)


def test_a_move_is_not_given_up_after_a_switch_that_came_while_its_workers_ended(
    two_places: TwoPlaces,
) -> None:
    up_to(two_places, Step.FENCE)
    with mover(two_places) as gives_up:
        end_workers = gives_up._end_workers

        def switch_meanwhile() -> None:
            gives_up.source.close()
            up_to(two_places, Step.SWITCH)
            end_workers()

        gives_up._end_workers = switch_meanwhile  # type: ignore[method-assign]
        with pytest.raises(SwitchedError):
            gives_up.give_up()
    with pytest.raises(psycopg.Error):
        schedule(two_places.source)


def test_a_fence_that_a_killed_abort_left_comes_down_before_the_tables_are_copied_again(
    two_places: TwoPlaces,
) -> None:
    scheduled = schedule(two_places.source)
    up_to(two_places, Step.FENCE)
    with mover(two_places) as each:
        each._drop_subscription(gives_up=True)
    with in_schema(two_places.target) as connection:
        connection.execute(f"drop schema {SCHEMA} cascade")
    with mover(two_places, compares=False) as each:
        each.run_once()
    also = schedule(two_places.source)
    up_to(two_places, Step.DONE)
    assert tasks(two_places.target) == sorted([scheduled, also])


def test_a_target_that_an_earlier_move_filled_is_refused(two_places: TwoPlaces) -> None:
    up_to(two_places, Step.FENCE)
    with mover(two_places) as each:
        each.give_up()
    with mover(two_places) as each, pytest.raises(MoveError, match="drop schema"):
        each.run_once()


def test_a_cell_that_is_away_is_heard_of_before_the_fence(two_places: TwoPlaces) -> None:
    away = "host=127.0.0.1 port=1 dbname=x connect_timeout=2"
    directory = two_places.directory.with_cell(Cell("d", away, SCHEMA))
    up_to(two_places, Step.SUBSCRIBE)
    with Mover(directory, "a", two_places.source, two_places.target, {"d": away}) as each:
        wait_until(lambda: next_step(each.look()) is Step.FENCE)
        with pytest.raises(DirectoryError, match="needs all cells"):
            each.run_once()
    schedule(two_places.source)
