"""Time tables on a real store: each tick has one task, however many Store Consumers there are, and whoever dies."""

import asyncio
from datetime import timedelta

import psycopg
import pytest
from structlog.testing import capture_logs

from duly_core.errors import StoreUnavailableError
from duly_core.results import store as results
from duly_core.tasks import store as store_tasks
from duly_core.tasks.task import Result
from duly_core.time_tables import store as time_tables
from duly_core.time_tables.time_table import Rhythm
from duly_wire.enums import CatchUp, Outcome, Overlap
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.time_tables import MINUTE, NAME
from tests.fixtures.waiting import wait_until


async def test_a_tick_becomes_a_task_whose_scheduled_time_is_the_tick(tables):
    row = await tables.make()
    await tables.until_due()

    fired = await tables.fire()

    assert fired.tasks == 1
    assert await tables.tasks() == [(row.next_tick_at, "new")]
    assert (await tables.row()).next_tick_at == row.next_tick_at + MINUTE


async def test_nothing_fires_before_its_time(tables):
    await tables.make(rhythm=Rhythm(every=timedelta(days=300)))

    assert (await tables.fire()).tables == 0


async def test_two_store_consumers_make_one_task_of_each_tick(tables):
    for number in range(50):
        await tables.make(f"table-{number}")
    await tables.until_due("table-0")

    rounds = await asyncio.gather(*(tables.fire() for _ in range(4)))
    rounds.append(await tables.fire())

    assert sum(fired.tasks for fired in rounds) == 50
    assert [len(await tables.tasks(f"table-{number}")) for number in range(50)] == [1] * 50


async def test_a_round_that_dies_before_its_commit_leaves_the_tick_to_the_next(tables, monkeypatch):
    await tables.make()
    await tables.until_due()

    async def die(*_):
        raise ConnectionError("the Store Consumer died")

    with monkeypatch.context() as patch:
        patch.setattr("duly_core.time_tables.ticks._move_on", die)
        died = await asyncio.gather(tables.fire(), return_exceptions=True)
    fired = await tables.fire()

    assert isinstance(died[0], ConnectionError)
    assert fired.tasks == 1
    assert len(await tables.tasks()) == 1


async def test_a_skipped_tick_leaves_no_task_behind(tables):
    await tables.make(overlap=Overlap.SKIP)
    await tables.until_due()
    await tables.fire()
    await tables.until_due()

    fired = await tables.fire()

    assert (fired.tasks, fired.left_out) == (0, [NAME])
    assert len(await tables.tasks()) == 1


async def test_a_buffered_tick_fires_once_the_task_before_has_ended(tables, task_states):
    await tables.make(overlap=Overlap.BUFFER_ONE)
    await tables.until_due()
    await tables.fire()
    await tables.until_due()
    await tables.fire()
    while_it_lives = await tables.fire()

    await store_tasks.cancel_tasks(tables.store, [(await tables.row()).last_task_id])
    waits = (await tables.row()).buffered_tick_at
    fired = await tables.fire()

    assert while_it_lives.tasks == 0
    assert (fired.tasks, (await tables.row()).last_tick_at) == (1, waits)
    assert (await tables.row()).buffered_tick_at is None


async def test_a_tick_cancels_a_task_that_nobody_runs_yet_and_takes_its_place(tables):
    await tables.make(overlap=Overlap.CANCEL_RUNNING)
    await tables.until_due()
    await tables.fire()
    await tables.until_due()

    fired = await tables.fire()

    assert (fired.tasks, fired.cancelled) == (1, 1)
    assert [status for _, status in await tables.tasks()] == [None, "new"]


async def test_a_tick_asks_a_running_task_to_stop_and_waits_for_its_end(tables, task_states):
    await tables.make(overlap=Overlap.CANCEL_RUNNING)
    await tables.until_due()
    await tables.fire()
    running = await task_states.take()
    await tables.until_due()

    fired = await tables.fire()
    beside_it = await tables.tasks()
    row = await task_states.row(running.task_id)
    result = Result(running.task_id, running.token, Outcome.CANCELLED)
    await results.set_results(tables.store, [result])
    after = await tables.fire()

    assert (fired.tasks, fired.cancelled, row["cancel_requested"]) == (0, 1, True)
    assert len(beside_it) == 1
    assert after.tasks == 1
    assert [status for _, status in await tables.tasks()] == [None, "new"]


async def test_a_claim_of_a_ticks_task_names_the_tick_at_each_attempt(tables, task_states):
    row = await tables.make()
    await tables.until_due()
    await tables.fire()

    claimed = await task_states.take()

    assert claimed.tick_at_us == round(row.next_tick_at.timestamp() * 1_000_000)
    assert (await task_states.claimed()).tick_at_us is None


async def test_all_that_was_missed_is_caught_up_with_in_several_rounds(tables, monkeypatch):
    monkeypatch.setattr("duly_core.time_tables.ticks.MOST_TASKS", 7)
    row = await tables.make(catch_up=CatchUp.ALL)
    await tables.until_due(ticks_more=29)

    counts = [(await tables.fire()).tasks for _ in range(6)]

    assert counts == [7, 7, 7, 7, 2, 0]
    assert [instant for instant, _ in await tables.tasks()] == [
        row.next_tick_at + place * MINUTE for place in range(30)
    ]


async def test_large_payloads_are_written_in_several_rounds(tables, monkeypatch):
    monkeypatch.setattr("duly_core.time_tables.ticks.MOST_BYTES", 1_000)
    for number in range(5):
        await tables.make(f"table-{number}", payload=b"x" * 400)
    await tables.until_due("table-0")

    counts = [(await tables.fire()).tasks for _ in range(4)]

    assert counts == [2, 2, 1, 0]


async def test_a_table_that_cannot_be_computed_is_put_off_and_stops_no_other(tables):
    await tables.make("broken")
    await tables.make()
    async with tables.store.connection() as connection:
        await connection.execute(
            "update time_table set every = null, cron = '@daily', zone = 'Mars/Base' where name = 'broken'"
        )
    await tables.until_due()

    with capture_logs() as lines:
        fired = await tables.fire()

    assert (fired.tasks, list(fired.put_off)) == (1, ["broken"])
    assert [(line["time_table"], line["exc_info"]) for line in lines] == [("broken", True)]
    broken = await tables.row("broken")
    assert "Mars/Base" in broken.problem
    assert broken.next_fire_at > broken.read_at


async def test_a_change_of_the_rhythm_moves_the_next_tick_and_another_change_does_not(tables):
    before = await tables.make()
    policy = await tables.make(overlap=Overlap.SKIP)
    rhythm = await tables.make(rhythm=Rhythm(every=timedelta(hours=3)))

    assert policy.next_tick_at == before.next_tick_at
    assert rhythm.next_tick_at > before.next_tick_at
    assert rhythm.revision == 3


async def test_a_table_made_anew_does_not_repeat_a_tick(tables):
    await tables.make()
    await tables.until_due()
    await tables.fire()
    instant = (await tables.row()).last_tick_at
    await time_tables.delete(tables.store, [NAME])
    await tables.make()
    async with tables.store.connection() as connection:
        await connection.execute(
            "update time_table set next_tick_at = %s, next_fire_at = %s", (instant, instant)
        )

    fired = await tables.fire()

    assert (fired.tables, fired.tasks) == (1, 0)
    assert len(await tables.tasks()) == 1


async def test_a_table_that_was_put_off_is_left_alone_until_then_though_a_tick_of_it_waits(tables):
    await tables.make()
    async with tables.store.connection() as connection:
        await connection.execute(
            """update time_table set every = null, cron = '@daily', zone = 'Mars/Base', buffered_tick_at = next_tick_at,
            next_fire_at = next_tick_at + interval '1 h'"""
        )

    first, second = await tables.fire(), await tables.fire()

    assert (list(first.put_off), first.tasks) == ([NAME], 0)
    assert (second.put_off, second.tasks) == ({}, 0)


async def test_the_last_tick_of_a_table_that_waits_and_was_put_off_is_tried_again(tables):
    await tables.make()
    async with tables.store.connection() as connection:
        await connection.execute(
            """update time_table
            set buffered_tick_at = next_tick_at, next_tick_at = null, next_fire_at = null, problem = 'locked'"""
        )

    fired = await tables.fire()

    assert fired.tasks == 1
    row = await tables.row()
    assert (row.problem, row.buffered_tick_at) == (None, None)


@pytest.mark.parametrize("session", [None, "reports"])
async def test_the_tasks_of_ticks_have_the_fair_key_of_their_time_table(tables, client, session):
    table = await client.create_table(
        "report", LAMBDA, every=timedelta(hours=1), fair_key="ada", session=session
    )
    await tables.until_due("report")
    await tables.fire()
    last = (await client.table("report")).last_task_id
    changed = await client.change_table("report", fair_key=None)

    assert (table.fair_key, (await client.get(last)).fair_key, changed.fair_key) == ("ada", "ada", "")
    async with tables.store.connection() as connection:
        found = await (await connection.execute(b"select fair_key from task_assoc")).fetchall()
    assert found == [("ada",)]


ATTRIBUTES = {"region": "eu", "order": 2**63 - 1, "urgent": True, "name": 'a "ü" \\ b'}


@pytest.mark.parametrize("session", [None, "reports"])
async def test_the_tasks_of_ticks_are_found_by_the_attributes_of_their_time_table(tables, client, session):
    table = await client.create_table(
        "report", LAMBDA, every=timedelta(hours=1), attributes=ATTRIBUTES, session=session
    )
    await tables.until_due("report")
    await tables.fire()
    last = (await client.table("report")).last_task_id
    changed = await client.change_table("report", attributes=None)

    assert (table.attributes, changed.attributes) == (ATTRIBUTES, {})
    assert (await client.get(last)).attributes == ATTRIBUTES
    assert [each.task_id async for each in client.list(attributes=ATTRIBUTES)] == [last]


async def test_the_tasks_of_a_backfill_are_found_by_the_attributes_of_their_time_table(tables, client):
    await client.create_table("report", LAMBDA, every=timedelta(hours=1), attributes={"region": "eu"})
    await client.create_table("plain", LAMBDA, every=timedelta(hours=1))
    now = (await tables.row("report")).read_at
    for name in ("report", "plain", "report"):
        await client.backfill_table(name, now - timedelta(hours=3), now)

    found = [each async for each in client.list(attributes={"region": "eu"})]

    assert len(found) == 3
    assert {each.time_table for each in found} == {"report"}


BEHIND = """
insert into time_table (
    name, lambda, collection, priority, payload_encoding, payload, cron, every_offset, zone, catch_up,
    catch_up_window, overlap, jitter, declared, created_at, updated_at, next_tick_at, next_fire_at
)
select 'table-' || number, %s, '', 3, 1, '{}', '* * * * *', '0', 'Europe/Berlin', 3, '1 day', %s, '0', false,
    now(), now(), date_trunc('minute', now()) - interval '17 h', date_trunc('minute', now()) - interval '17 h'
from generate_series(1, %s) as number
"""
"""Time tables of a tick a minute, 17 hours behind, that catch up with all."""


async def behind(tables, overlap, number):
    async with tables.store.connection() as connection:
        await connection.execute(BEHIND, [LAMBDA, int(overlap), number])


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.CANCEL_RUNNING])
async def test_many_time_tables_that_were_left_behind_by_an_outage_fire_once_each(tables, overlap):
    await behind(tables, overlap, 400)
    rounds = []

    while (fired := await tables.fire()).tables:
        rounds.append(fired)

    assert sum(fired.tasks for fired in rounds) == 400
    assert sum(fired.tables for fired in rounds) == 400


@pytest.mark.parametrize(
    ("limit", "value"), [("MOST_COMPUTED", 1), ("LONGEST_PLANNING", timedelta()), ("MOST_TASKS", 1)]
)
async def test_a_round_that_has_computed_enough_moves_on_what_it_planned(tables, monkeypatch, limit, value):
    monkeypatch.setattr(f"duly_core.time_tables.ticks.{limit}", value)
    for number in range(3):
        await tables.make(f"table-{number}")
    await tables.until_due("table-0")

    rounds = [await tables.fire() for _ in range(4)]

    assert [fired.tasks for fired in rounds] == [1, 1, 1, 0]


@pytest.mark.long  # waits for a lock until it is given up
async def test_a_tick_whose_key_another_transaction_holds_stops_no_other_time_table(tables, dsn):
    for number in range(3):
        await tables.make(f"table-{number}")
    row = await tables.row("table-1")
    await tables.until_due("table-0")
    with psycopg.connect(dsn) as other:
        key = f"time-table:table-1:{row.next_tick_at.isoformat()}"
        other.execute(
            "insert into idempotency_key (lambda, key, task_id, created_at) values (%s, %s, gen_random_uuid(), now())",
            [LAMBDA, key],
        )

        rounds = [await tables.fire() for _ in range(3)]
        other.rollback()

    put_off = await tables.row("table-1")
    assert sum(fired.tasks for fired in rounds) == 2
    assert [name for fired in rounds for name in fired.put_off] == ["table-1"]
    assert "locked" in put_off.problem
    await tables.until_due("table-1")
    assert (await tables.fire()).tasks == 1
    assert (await tables.row("table-1")).problem is None


async def test_a_transaction_that_stood_still_too_long_is_an_unavailable_store(tables, dsn):
    async def stand_still():
        async with tables.store.connection() as connection, connection.transaction():
            await connection.execute("set local idle_in_transaction_session_timeout = '1ms'")
            pid = connection.info.backend_pid
            with psycopg.connect(dsn, autocommit=True) as other:
                wait_until(
                    lambda: not other.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall()
                )
            await connection.execute("select")

    # what is sent to the closed connection may be answered by a reset, which takes Postgres's last words away
    with pytest.raises(StoreUnavailableError, match=r"idle-in-transaction|server closed the connection"):
        await stand_still()
