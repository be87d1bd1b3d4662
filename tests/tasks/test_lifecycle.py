"""The state machine as data, held against the statements that write it."""

import re
from importlib.resources import files
from itertools import chain

import pytest

from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS, fragment
from duly_core.tasks.lifecycle import FINAL, HELD, LIVE, READY, Status
from tests.fixtures.moves import MOVES, Writer

NAMES = [move.name for move in MOVES]
OUT_OF_HELD = [move for move in MOVES if move.before & HELD]
BY_SILENCE = {"reclaim", "quarantine_silent", "cancel_silent"}
"""The Store Consumer's: the holder is silent, so the deadline stands for the token."""


def reachable(start: Status) -> frozenset[Status]:
    """Every status that a task standing at `start` can still come to, `start` included."""
    seen = {start}
    while True:
        further = set(chain.from_iterable(move.after for move in MOVES if move.before & seen)) - seen
        if not further:
            return frozenset(seen)
        seen |= further


def statuses(text):
    return frozenset(Status(part) for part in text.strip().split("|") if part)


def writes_of(sql):
    """The parts of a statement that write task_assoc, each up to its end."""
    return re.findall(r"(?:update|delete from) task_assoc.*?(?=returning|\Z)", sql, re.DOTALL)


def function(name):
    """The text of a function of the schema."""
    (body,) = re.findall(rf"create function {name}\(.*?as \$\$(.*?)\$\$", schema_sql("public"), re.DOTALL)
    return body


def test_every_statement_makes_the_move_that_the_table_names():
    text = files("duly_core.tasks").joinpath("transitions.sql").read_text(encoding="utf-8")
    written = {
        name: (statuses(before), statuses(after))
        for name, before, after in re.findall(r"^-- name: (\w+)\n-- move: (.*)->(.*)$", text, re.MULTILINE)
    }

    assert written.keys() == TRANSITIONS.keys()
    assert written == {move.name: (move.before, move.after) for move in MOVES}


def test_every_move_has_a_name_of_its_own():
    assert len(set(NAMES)) == len(NAMES)


def test_every_status_is_either_live_or_final():
    assert set(Status) == LIVE | FINAL
    assert set() == LIVE & FINAL
    assert HELD | READY | {Status.ENQUEUED, Status.WAITING} == LIVE


def test_only_a_redrive_of_a_dead_letter_leaves_a_final_status():
    leaving = [(move.name, move.before, move.after) for move in MOVES if move.before & FINAL]

    assert leaving == [("redrive", {Status.FATAL_FAILURE}, {Status.NEW, Status.WAITING})]


def test_a_redrive_repeats_the_status_it_expects_where_it_writes():
    (write,) = re.findall(r"update task\s.*?(?=returning)", TRANSITIONS["redrive"].sql, re.DOTALL)

    assert "task.status::text = 'fatal_failure'" in write


@pytest.mark.parametrize("status", sorted(LIVE))
def test_every_live_status_has_a_way_out_to_each_end(status):
    assert reachable(status) >= {Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED}


@pytest.mark.parametrize("status", [Status.NEW, Status.WAITING])
def test_every_status_can_be_come_to_from_those_in_which_tasks_begin(status):
    assert reachable(status) == set(Status)


@pytest.mark.parametrize("status", sorted(FINAL - {Status.FATAL_FAILURE}))
def test_nothing_can_be_come_to_from_any_other_final_status(status):
    assert reachable(status) == {status}


@pytest.mark.parametrize("status", sorted(LIVE))
def test_somebody_else_moves_every_live_task_when_its_own_actor_is_gone(status):
    """A host or a client may vanish; what the Store Consumer does must be enough to go on."""
    moves = [move for move in MOVES if status in move.before and move.writer is Writer.STORE_CONSUMER]

    assert {after for move in moves for after in move.after} & {Status.ENQUEUED, Status.FATAL_FAILURE}


@pytest.mark.parametrize("move", OUT_OF_HELD, ids=lambda move: move.name)
def test_a_move_out_of_held_compares_the_token_or_waits_for_silence_or_asks(move):
    writes = writes_of(TRANSITIONS[move.name].sql)

    assert writes
    for write in writes:
        if move.name in BY_SILENCE:
            assert move.writer is Writer.STORE_CONSUMER
            assert "next_trigger_at <= (select least(%(as_of)b::timestamptz, duly_now()))" in write
        elif move.name == "request_cancel":
            assert move.before == move.after == HELD
        elif (
            move.name == "claim_again"
        ):  # its caller knows the prefix only, and the row is locked where it is compared
            sql = TRANSITIONS[move.name].sql
            assert re.search(
                r"holder = .*\n.*uuid_send\(token\).* = any \(%\(lost\)b[^)]*\)\n.*\n\s+for update", sql
            )
        else:
            assert move.writer is Writer.HSC
            assert re.search(r"assoc\.token = \w+\.token", write)


@pytest.mark.parametrize("move", [move for move in MOVES if move.before], ids=lambda move: move.name)
def test_a_move_repeats_the_status_it_expects_where_it_writes(move):
    for write in writes_of(TRANSITIONS[move.name].sql):
        (compared,) = re.findall(r"assoc\.status::text (?:in \(([^)]*)\)|= ('\w+'))", write)
        expected = {Status(name) for name in re.findall(r"'(\w+)'", "".join(compared))}

        assert expected == move.before


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_a_move_to_a_live_status_sets_a_next_trigger_and_one_to_an_end_leaves_no_assoc(move):
    sql = TRANSITIONS[move.name].sql
    if called := {"unblock_sessions": "duly_unblock_session", "enter_nodes": "duly_enter_nodes"}.get(
        move.name
    ):
        sql = function(called)  # it writes
    if move.name in ("request_cancel", "update_waiting"):  # it is looked at when it would have been
        assert "next_trigger_at" not in sql
        return
    if move.after & LIVE:
        assert re.search(r"set [^;]*next_trigger_at = |insert into task_assoc \([^)]*next_trigger_at", sql)
    if move.after & FINAL:
        assert "delete from task_assoc" in sql
        assert "task.status is null" in sql  # an end is never written over another


@pytest.mark.parametrize("move", OUT_OF_HELD, ids=lambda move: move.name)
def test_a_move_that_ends_an_attempt_without_success_records_it(move):
    ends_badly = move.name not in {"request_cancel", "claim_again", "claim_repeated"} and move.after - {
        Status.PROCESSING,
        Status.SUCCESS,
    }

    assert ("insert into attempt" in TRANSITIONS[move.name].sql) == bool(ends_badly)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_a_task_is_ended_by_the_one_text_for_that_and_by_nothing_else(move):
    sql = TRANSITIONS[move.name].sql
    end = fragment(
        "end_task",
        {"fail": "done", "fail_handed_over": "done", "drop_gated": "cancelled"}.get(move.name, "ended"),
    )
    assert (end in sql) == bool(move.after & FINAL)

    rest = sql.replace(end, "")

    assert "finished_at = excluded" not in rest
    if move.after & FINAL:
        assert "ended as (\n    delete from task_assoc" in rest


def test_the_history_is_written_by_the_one_text_for_that():
    for statement in TRANSITIONS.values():
        for source in re.findall(r"insert into attempt .*?from (\w+)\n", statement.sql, re.DOTALL):
            name = "rewrite_attempt" if statement.name == "fail_handed_over" else "record_attempt"
            assert fragment(name, source) in statement.sql


def test_statements_leave_numbers_and_defaults_to_python():
    written = "".join(
        files("duly_core.tasks").joinpath(name).read_text(encoding="utf-8")
        for name in ("fragments.sql", "transitions.sql", "reads.sql")
    )

    assert "coalesce(lambda." not in written
    assert not re.findall(r"\b\d+ as (?:failure|attempt)_kind", written)


def test_no_statement_reads_another_clock_than_the_stores():
    for statement in (TRANSITIONS | READS | LOCKS).values():
        assert not re.search(r"(?<!duly_)now\(\)|current_timestamp|clock_timestamp", statement.sql), (
            statement.name
        )


def test_statements_that_only_read_make_no_move():
    for name in ("reads.sql", "locks.sql"):
        assert "-- move:" not in files("duly_core.tasks").joinpath(name).read_text(encoding="utf-8")
    assert not [each.name for each in LOCKS.values() if re.search(r"\b(insert|delete)\b", each.sql)]
    assert not [each.name for each in READS.values() if re.search(r"\b(update|insert|delete)\b", each.sql)]
