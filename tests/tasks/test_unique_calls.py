"""Unique keys from the wire, the SDK and the shell, against a Frontend that serves."""

import asyncio
from datetime import timedelta

import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration

import duly
from duly_core.rpc.requests import unique as rules
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import LAMBDA, SECOND

KEY = "user:7"
REPLACE = duly.Unique(KEY, on_conflict=duly.OnConflict.REPLACE)
REJECT = duly.Unique(KEY, on_conflict=duly.OnConflict.REJECT)


async def schedule(frontend, *tasks):
    request = frontend_pb2.ScheduleRequest(tasks=tasks)
    return list((await frontend.stub.Schedule(request)).results)


def asked(unique, **fields):
    data = unique if isinstance(unique, bytes) else frontend_pb2.Unique(**unique).SerializeToString()
    return frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"{}", "unique": data} | fields)


SOME = Duration(seconds=5)
ENCRYPTED = {"payload": b"\xd0\x01\x01k...", "payload_encoding": task_pb2.ENCODING_ENCRYPTED}
USES = task_pb2.AttachmentUses(uses=[task_pb2.AttachmentUse(hash=bytes(32), name="a")]).SerializeToString()
WRONG = [
    (b"\xff", {}, "unique"),
    (b"\n\x00" * 600, {}, "unique"),
    ({"key": "k" * 256}, {}, "unique.key"),
    ({"key": "k", "held_while": 9}, {}, "unique.held_while"),
    ({"key": "k", "on_conflict": 9}, {}, "unique.on_conflict"),
    ({"key": "k", "period": Duration(seconds=-1)}, {}, "unique.period"),
    ({"key": "k", "period": Duration(seconds=32 * 86_400)}, {}, "unique.period"),
    ({"held_while": 1}, ENCRYPTED, "unique.key"),
    ({"key": "k", "on_conflict": 3}, {"idempotency_key": "a"}, "idempotency_key"),
    ({"key": "k", "on_conflict": 3}, {"attachments": USES}, "attachments"),
    ({"key": "k", "on_conflict": 3}, {"session": task_pb2.Session(key="s", order=2)}, "session.order"),
    ({"debounce": {"wait": SOME, "at_most": SOME}}, {}, "unique.key"),
    ({"key": "k", "debounce": {"wait": SOME}}, {}, "unique.debounce.at_most"),
    ({"key": "k", "debounce": {"at_most": SOME}}, {}, "unique.debounce.wait"),
    ({"key": "k", "debounce": {"wait": SOME, "at_most": Duration(seconds=4)}}, {}, "unique.debounce.at_most"),
    (
        {"key": "k", "debounce": {"wait": SOME, "at_most": Duration(seconds=8 * 86_400)}},
        {},
        "unique.debounce.at_most",
    ),
    ({"key": "k", "on_conflict": 1, "debounce": {"wait": SOME, "at_most": SOME}}, {}, "unique.on_conflict"),
    ({"key": "k", "held_while": 1, "debounce": {"wait": SOME, "at_most": SOME}}, {}, "unique.held_while"),
    ({"key": "k", "period": SOME, "debounce": {"wait": SOME, "at_most": SOME}}, {}, "unique.period"),
    ({"key": "k", "debounce": {"wait": SOME, "at_most": SOME}}, {"delay": SOME}, "delay"),
]


@pytest.mark.parametrize(("unique", "fields", "field"), WRONG)
async def test_what_cannot_be_names_its_field_and_changes_nothing(
    frontend, task_states, unique, fields, field
):
    (result,) = await schedule(frontend, asked(unique, **fields))

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)


async def test_each_is_answered_by_what_was_done_and_with_the_task_that_has_the_key(client, task_states):
    plain, first, other = await client.schedule_many(
        [duly.NewTask(LAMBDA), duly.NewTask(LAMBDA, 1, unique=KEY), duly.NewTask(LAMBDA, 2, unique="other")]
    )

    ignored = await client.schedule(LAMBDA, 3, unique=KEY)
    replaced = await client.schedule(LAMBDA, 4, unique=REPLACE)
    with pytest.raises(duly.UniqueKeyTakenError, match=f"task {first} has this key") as refused:
        await client.schedule(LAMBDA, 5, unique=REJECT)

    assert [each.conflict for each in (plain, first, other)] == [None] * 3
    assert ignored == duly.ScheduledTask(first.task_id, False, duly.OnConflict.IGNORE)
    assert replaced == duly.ScheduledTask(first.task_id, False, duly.OnConflict.REPLACE)
    assert refused.value.task_id == first.task_id
    task = await client.get(first)
    assert (task.payload, task.unique_key) == (4, KEY)


async def test_without_a_key_tasks_of_one_payload_are_one(client, task_states):
    first = await client.schedule(LAMBDA, {"a": 1}, unique=duly.Unique())

    same = await client.schedule(LAMBDA, {"a": 1}, unique=duly.Unique())
    other = await client.schedule(LAMBDA, {"a": 2}, unique=duly.Unique())

    assert same.task_id == first.task_id
    assert other.conflict is None


async def test_a_task_that_runs_is_not_replaced_if_its_key_is_held_until_it_ends(client, task_states):
    unique = duly.Unique(KEY, held_while=duly.HeldWhile.LIVE, on_conflict=duly.OnConflict.REPLACE)
    first = await client.schedule(LAMBDA, 1, unique=unique)
    await task_states.take()

    with pytest.raises(duly.UniqueKeyTakenError, match="cannot be changed") as refused:
        await client.schedule(LAMBDA, 2, unique=unique)

    assert refused.value.task_id == first.task_id


async def test_a_debounce_is_due_after_its_calls(client, task_states):
    debounce = duly.Debounce(KEY, wait=5 * SECOND, at_most=60 * SECOND)

    first = await client.schedule(LAMBDA, 1, debounce=debounce)
    await client.schedule(LAMBDA, 2, debounce=debounce)

    task = await client.get(first)
    assert task.payload == 2
    assert timedelta() < task.next_trigger_at - task.created_at - 5 * SECOND < 60 * SECOND


async def test_plain_tasks_do_not_wait_for_a_key_that_somebody_has_locked(client, task_states, dsn):
    await client.schedule(LAMBDA, 1, unique=KEY)
    await task_states.end_all_that_may_run()
    async with await psycopg.AsyncConnection.connect(dsn) as locking:
        await locking.execute("select from unique_key for update")
        waits = asyncio.create_task(client.schedule(LAMBDA, 2, unique=KEY))
        await until_a_statement_waits_for_a_lock(dsn)

        plain = await client.schedule(LAMBDA, 3)

        assert plain.created
        assert not waits.done()
    assert (await waits).conflict is None


async def test_a_dead_letter_whose_key_is_taken_says_by_which_task(client, run_duly, task_states):
    dead = await client.schedule(LAMBDA, 1, unique=KEY)
    await task_states.fail(await task_states.take())
    live = await client.schedule(LAMBDA, 2, unique=KEY)

    with pytest.raises(duly.UniqueKeyTakenError, match=f"task {live} has its unique key"):
        await client.redrive(dead)
    told = await run_duly("redrive", dead.task_id)

    assert told.exit_code == 1
    assert f"task {live} has its unique key" in told.stderr


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"unique": 7}, "unique"),
        ({"unique": ""}, "unique"),
        ({"unique": duly.Unique(7)}, "unique.key"),
        ({"unique": duly.Unique("k", held_while="live")}, "unique.held_while"),
        ({"unique": duly.Unique("k", on_conflict=3)}, "unique.on_conflict"),
        ({"unique": duly.Unique("k", period=timedelta())}, "unique.period"),
        ({"debounce": 5}, "debounce"),
        ({"debounce": duly.Debounce("", SECOND, SECOND)}, "debounce.key"),
        ({"debounce": duly.Debounce("k", 5, SECOND)}, "debounce.wait"),
        ({"debounce": duly.Debounce("k", 2 * SECOND, SECOND)}, "debounce.at_most"),
        ({"unique": "k", "debounce": duly.Debounce("k", SECOND, SECOND)}, "debounce"),
    ],
)
def test_the_sdk_refuses_what_it_can_tell(options, field):
    with pytest.raises(duly.InvalidTaskError) as refused:
        duly.NewTask(LAMBDA, **options).to_proto()

    assert refused.value.field == field


async def test_the_shell_says_which_task_has_the_key(run_duly, task_states):
    first = await run_duly("schedule", LAMBDA, "1", "--unique", KEY, "--held-while", "live", "--period", "1h")
    ignored = await run_duly("schedule", LAMBDA, "2", "--unique", KEY)
    replaced = await run_duly("schedule", LAMBDA, "3", "--unique", KEY, "--debounce", "5s", "--at-most", "1m")
    rejected = await run_duly("schedule", LAMBDA, "4", "--unique", KEY, "--on-conflict", "reject")
    shown = await run_duly("get", first.stdout.strip())

    assert ignored.stdout == replaced.stdout == first.stdout
    assert (first.stderr, ignored.stderr) == (
        "",
        "this task has the unique key: no other one was scheduled\n",
    )
    assert "has the new payload" in replaced.stderr
    assert rejected.exit_code == 1
    assert f"task {first.stdout.strip()} has this key" in rejected.stderr
    assert KEY in shown.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--held-while", "live"),
        ("--debounce", "5s"),
        ("--unique", "k", "--debounce", "5s"),
        ("--unique", "k", "--at-most", "5s"),
        ("--unique", "k", "--debounce", "5s", "--at-most", "1m", "--on-conflict", "reject"),
        ("--unique", "k", "--on-conflict", "perhaps"),
    ],
)
async def test_the_shell_refuses_options_that_do_not_go_together(run_duly, task_states, options):
    refused = await run_duly("schedule", LAMBDA, "1", *options)

    assert refused.exit_code == 2
    assert "--" in refused.stderr


def test_the_longest_times_are_those_of_the_documents():
    assert (timedelta(days=31), timedelta(days=7)) == (rules.LONGEST_PERIOD, rules.LONGEST_DEBOUNCE)
