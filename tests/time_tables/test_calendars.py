"""Calendars over the wire and on the store: put, checked, listed, deleted; what a change makes of ticks."""

import asyncio
from datetime import UTC, date, datetime, time, timedelta

import pytest

import duly
from duly_core.time_tables import calendars
from duly_wire.v1 import registry_pb2, time_tables_pb2
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.time_tables import NAME

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CHRISTMAS = date(2026, 12, 25)


@pytest.fixture
async def client(frontend, tables):
    async with duly.AsyncClient(frontend.address) as opened:
        yield opened


async def today(tables):
    async with tables.store.connection() as connection:
        ((now,),) = await (await connection.execute("select duly_now()")).fetchall()
    return now.astimezone(UTC).date()


async def test_a_calendar_is_shown_as_it_was_put_and_changed_where_it_was_named(client):
    made = await client.put_calendar(
        "office", holidays=["DE-BY", "XNYS"], closed=[CHRISTMAS], hours=["MON-FRI 09:00-17:00"], note="Munich"
    )
    changed = await client.put_calendar("office", weekend=[], open=[date(2026, 12, 26)], note=None)

    shown = await client.calendar("office", dates=[CHRISTMAS, date(2026, 12, 26), date(2026, 12, 28)])

    assert (made.weekend, made.revision, made.note) == (("SAT", "SUN"), 1, "Munich")
    assert (changed.changed, changed.revision) == (("weekend", "open", "note"), 2)
    assert (shown.holidays, shown.weekend, shown.closed) == (("DE-BY", "XNYS"), (), (CHRISTMAS,))
    assert [(day.open, day.reason, day.hours) for day in shown.days] == [
        (False, "a closed date of the calendar", ()),
        (True, "", ("00:00-24:00",)),  # a Saturday that has no hours of its own
        (True, "", ("09:00-17:00",)),
    ]
    assert shown.days[0].next_open == date(2026, 12, 26)
    assert [each.name for each in await client.calendars()] == ["office"]


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"holidays": ["DE-XX"]}, "holidays", "DE has no subdivision 'XX'"),
        ({"holidays": ["XX"]}, "holidays", "no country or market"),
        ({"holidays": ["DE"] * 9}, "holidays", "at most 8"),
        ({"weekend": ["SATURDAY"]}, "weekend", "is no weekday"),
        (
            {"weekend": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]},
            "weekend",
            "no working day within a year",
        ),
        ({"closed": ["2026-2-3"]}, "closed", "write it as 2026-12-24"),
        ({"closed": [CHRISTMAS], "open": [CHRISTMAS]}, "open", "is closed, too"),
        ({"hours": ["9 to 5"]}, "hours", "says no business hours"),
        ({"note": "x" * 257}, "note", "at most 256"),
    ],
)
async def test_a_calendar_that_makes_no_sense_is_refused_and_nothing_changes(client, options, field, message):
    with pytest.raises(duly.InvalidTaskError, match=message) as refused:
        await client.put_calendar("office", **options)

    assert refused.value.field == field
    assert await client.calendars() == []


async def test_a_calendar_is_changed_only_at_the_revision_that_was_read(client):
    first = await client.put_calendar("office", note="a", if_revision=0)
    again = await client.put_calendar("office", note="a", if_revision=0)
    await client.put_calendar("office", note="b", if_revision=1)

    with pytest.raises(duly.CalendarConflictError, match="revision 2"):
        await client.put_calendar("office", note="c", if_revision=1)
    with pytest.raises(duly.CalendarNotFoundError):
        await client.put_calendar("shop", note="c", if_revision=1)
    with pytest.raises(duly.CalendarNotFoundError):
        await client.calendar("shop")
    assert again.revision == first.revision == 1


async def test_a_calendar_in_use_is_not_deleted_and_its_time_tables_are_named(client):
    await client.put_calendar("office", holidays=["DE"])
    await client.create_table(NAME, LAMBDA, cron="0 8 * * *", calendar="office")

    with pytest.raises(duly.CalendarInUseError, match=NAME):
        await client.delete_calendar("office")

    assert (await client.calendar("office")).time_tables == (NAME,)
    changed = await client.change_table(NAME, calendar=None)
    await client.delete_calendar("office")
    assert (changed.calendar, changed.on_closed, await client.calendars()) == ("", None, [])
    with pytest.raises(duly.CalendarNotFoundError):
        await client.delete_calendar("office")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"calendar": "shop"}, duly.CalendarNotFoundError, "no calendar 'shop'"),
        ({"calendar": "other/office"}, duly.CalendarNotFoundError, "of this namespace only"),
        ({"on_closed": duly.OnClosed.NEXT}, duly.InvalidTaskError, "belongs to a calendar"),
        ({"business_hours": True}, duly.InvalidTaskError, "belongs to a calendar"),
        ({"working_day": -1}, duly.InvalidTaskError, "belongs to a calendar"),
        ({"calendar": "office", "working_day": 32}, duly.InvalidTaskError, "-31 from the end"),
        ({"calendar": "office", "cron": "0 8 * * 6"}, duly.InvalidTaskError, "it never fires"),
        (
            {"calendar": "office", "cron": None, "every": HOUR, "on_closed": duly.OnClosed.NEXT},
            duly.InvalidTaskError,
            "use SKIP",
        ),
    ],
)
async def test_a_time_table_that_its_calendar_cannot_serve_is_refused(client, options, error, message):
    await client.put_calendar("office", holidays=["DE"])
    await client.put_calendar("other/office", holidays=["DE"])

    with pytest.raises(error, match=message):
        await client.create_table(NAME, LAMBDA, **{"cron": "0 8 * * *"} | options)

    assert await client.tables() == []


async def test_a_preview_shows_what_becomes_of_each_tick(client):
    await client.put_calendar("office", holidays=["DE"], closed=[date(2026, 12, 24)])
    await client.create_table(NAME, LAMBDA, cron="0 8 * * *", calendar="office", on_closed=duly.OnClosed.NEXT)

    start = datetime(2026, 12, 23, tzinfo=UTC)
    planned = (await client.table(NAME, planned=6, planned_from=start)).planned

    monday = datetime(2026, 12, 28, 8, tzinfo=UTC)
    assert [(each.nominal_at.day, each.tick_at, each.reason[:8], each.merged) for each in planned] == [
        (23, datetime(2026, 12, 23, 8, tzinfo=UTC), "", False),
        (24, monday, "a closed", True),
        (25, monday, "holiday:", True),
        (26, monday, "Saturday", True),
        (27, monday, "Sunday i", True),
        (28, monday, "", False),
    ]


async def test_a_change_of_a_calendar_moves_the_next_ticks_of_its_time_tables(client, tables):
    day = await today(tables)
    await client.put_calendar("office", weekend=[])
    before = await client.create_table(NAME, LAMBDA, cron="0 8 * * *", calendar="office")
    await client.create_table("other", LAMBDA, cron="0 8 * * *")

    changed = await client.put_calendar("office", closed=[day, day + DAY])

    after = await client.table(NAME)
    assert before.next_tick_at.date() <= day + DAY
    assert (changed.moved_tables, after.next_tick_at) == (1, datetime.combine(day + 2 * DAY, time(8), UTC))
    assert after.revision == before.revision
    assert (await client.table("other")).next_tick_at == before.next_tick_at


async def test_a_tick_that_fired_does_not_fire_again_where_a_changed_calendar_moves_it(client, tables):
    day = await today(tables)
    await client.put_calendar("office", weekend=[])
    await client.create_table(
        NAME, LAMBDA, cron=f"0 * {day.day} * *", calendar="office", on_closed=duly.OnClosed.NEXT
    )
    first = (await client.table(NAME)).next_tick_at
    await tables.until_due()
    await tables.fire()

    await client.put_calendar("office", closed=[day])
    moved = await client.table(NAME)
    await tables.until_due()
    while (await tables.row()).next_tick_at.date() == moved.next_tick_at.date():
        await tables.fire()
        await tables.until_due()

    fired = [at for at, _ in await tables.tasks()]
    assert fired[0] == first
    assert first + DAY not in fired  # the tick of this hour had its task
    assert fired[1:]


async def test_a_moved_tick_has_one_task_and_a_backfill_leaves_it_out(client, tables):
    day = await today(tables)
    await client.put_calendar("office", weekend=[], closed=[day, day + DAY])
    await client.create_table(
        NAME, LAMBDA, cron=f"0 */6 {day.day} * *", calendar="office", on_closed=duly.OnClosed.NEXT
    )
    await tables.until_due()
    fired = await tables.fire()
    ((at, _),) = await tables.tasks()

    (task,) = [each async for each in client.list()]
    explained = await client.explain(task)
    done = await client.backfill_table(NAME, at - DAY)

    assert (fired.tasks, at) == (1, datetime.combine(day + 2 * DAY, time(), UTC))
    assert (done.ticks, done.created) == (1, 0)
    assert "which its calendar moved from" in explained.history[0].reason


async def test_ticks_and_changes_of_the_calendar_at_the_same_time_make_one_task_of_each_tick(client, tables):
    await client.put_calendar("office", weekend=[])
    for number in range(20):
        await client.create_table(f"table-{number}", LAMBDA, every=timedelta(minutes=1), calendar="office")
    await tables.until_due("table-0")

    rounds = await asyncio.gather(
        *(tables.fire() for _ in range(3)),
        *(
            client.put_calendar("office", note=f"{number}", weekend=["MON"] if number % 2 else [])
            for number in range(4)
        ),
        *(
            client.create_table(f"new-{number}", LAMBDA, cron="@daily", calendar="office")
            for number in range(4)
        ),
    )
    last = await tables.fire()

    assert sum(fired.tasks for fired in [*rounds[:3], last]) <= 20
    for number in range(20):
        assert len(await tables.tasks(f"table-{number}")) <= 1
    assert (await client.calendar("office")).time_tables[:4] == ("new-0", "new-1", "new-2", "new-3")


async def test_what_a_worker_declares_may_name_a_calendar(client, frontend):
    await client.put_calendar("office", holidays=["DE"])
    tables = [
        time_tables_pb2.TimeTable(name=name, cron="0 8 * * *", calendar=calendar)
        for name, calendar in ((NAME, "office"), ("other", "shop"))
    ]
    request = registry_pb2.RegisterLambdasRequest(
        lambdas=[registry_pb2.Lambda(name=LAMBDA, time_tables=tables)]
    )

    answer = await frontend.registry.RegisterLambdas(request)

    assert (await client.table(NAME)).calendar == "office"
    assert "no calendar 'shop'" in answer.results[0].warning


async def test_a_time_table_waits_for_the_deletion_of_the_calendar_that_it_names(client, tables, dsn):
    await client.put_calendar("office", holidays=["DE"])

    async with tables.store.connection() as connection, connection.transaction():
        await calendars.lock_calendars(connection)
        await connection.execute("delete from calendar")
        creating = asyncio.create_task(client.create_table(NAME, LAMBDA, cron="@daily", calendar="office"))
        await until_a_statement_waits_for_a_lock(dsn)

    with pytest.raises(duly.CalendarNotFoundError):
        await creating
    assert await client.tables() == []


async def test_without_the_lock_a_time_table_would_name_a_calendar_that_is_gone(client, tables, monkeypatch):
    await client.put_calendar("office", holidays=["DE"])

    async def no_lock(_):
        pass

    monkeypatch.setattr("duly_core.time_tables.store.lock_calendars", no_lock)
    async with tables.store.connection() as connection, connection.transaction():
        await calendars.lock_calendars(connection)
        await connection.execute("delete from calendar")
        await client.create_table(NAME, LAMBDA, cron="@daily", calendar="office")

    assert ((await tables.row()).calendar, await client.calendars()) == ("office", [])
