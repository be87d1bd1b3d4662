"""Time tables over the wire: created, changed, shown, paused, deleted, backfilled, declared, refused."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest

import duly
from duly_frontend.time_tables import definitions
from duly_wire.v1 import registry_pb2, time_tables_pb2
from tests.fixtures.lost_replies import lose_first_reply
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.time_tables import NAME

HOUR = timedelta(hours=1)


@pytest.fixture
async def client(frontend, tables):
    async with duly.AsyncClient(frontend.address) as opened:
        yield opened


async def test_a_time_table_is_shown_as_it_was_created(client):
    made = await client.create_table(
        NAME, LAMBDA, {"to": "ann"}, cron="30 2 * * 1-5", zone="Europe/Berlin", overlap=duly.Overlap.SKIP
    )

    shown = await client.table(NAME, next_ticks=3)

    assert (shown.payload, shown.cron, shown.zone, shown.overlap) == (
        {"to": "ann"},
        "30 2 * * 1-5",
        "Europe/Berlin",
        duly.Overlap.SKIP,
    )
    assert shown.next_ticks[0] == made.next_tick_at == shown.next_fire_at
    assert len(shown.next_ticks) == 3


async def test_creating_the_same_twice_does_no_harm_and_another_of_that_name_is_refused(client):
    first = await client.create_table(NAME, LAMBDA, every=HOUR)

    again = await client.create_table(NAME, LAMBDA, every=HOUR)

    assert again == first
    with pytest.raises(duly.TimeTableConflictError, match="revision 1"):
        await client.create_table(NAME, LAMBDA, every=2 * HOUR)


async def test_a_change_leaves_the_rest_as_it_is(client):
    await client.create_table(NAME, LAMBDA, {"to": "ann"}, cron="@daily", zone="Asia/Tokyo", jitter=HOUR)

    changed = await client.change_table(NAME, every=HOUR, jitter=None)

    assert (changed.every, changed.cron, changed.zone, changed.jitter) == (HOUR, None, "", timedelta())
    assert changed.revision == 2
    assert (await client.table(NAME)).payload == {"to": "ann"}


async def test_a_change_that_another_one_overtook_is_refused(client, frontend):
    await client.create_table(NAME, LAMBDA, every=HOUR)
    table = time_tables_pb2.TimeTable(name=NAME, cron="@daily", **{"lambda": LAMBDA})
    new = time_tables_pb2.NewTimeTable(table=table, if_revision=7)

    response = await frontend.time_tables.PutTimeTables(time_tables_pb2.PutTimeTablesRequest(tables=[new]))

    assert "revision 1" in response.results[0].error.message


async def test_a_paused_time_table_does_not_fire_and_a_resumed_one_goes_on_from_now(client, tables):
    await client.create_table(NAME, LAMBDA, every=timedelta(minutes=1))
    paused = await client.pause_table(NAME, note="the mail server is being moved")
    await tables.until_due(ticks_more=3)

    fired = await tables.fire()
    resumed = await client.resume_table(NAME)

    assert (paused.pause_note, fired.tasks) == ("the mail server is being moved", 0)
    assert resumed.paused_at is None
    assert resumed.next_tick_at > (await tables.row()).read_at


async def test_a_deleted_time_table_is_gone_and_its_task_is_not(client, tables):
    await client.create_table(NAME, LAMBDA, every=HOUR)
    await tables.until_due()
    await tables.fire()

    await client.delete_table(NAME)

    assert await client.tables() == []
    assert len(await tables.tasks()) == 1
    for call in (
        client.table,
        client.pause_table,
        client.resume_table,
        client.delete_table,
        client.change_table,
    ):
        with pytest.raises(duly.TimeTableNotFoundError, match=NAME):
            await call(NAME)


async def test_a_delete_whose_reply_was_lost_answers_as_the_first(client, monkeypatch):
    created = await client.create_table(NAME, LAMBDA, {"to": "ann"}, every=HOUR)
    caller = client._caller
    lose_first_reply(monkeypatch, caller.time_tables, "DeleteTimeTables")

    deleted = await client.delete_table(NAME)

    assert (deleted.name, deleted.payload, deleted.revision) == (NAME, {"to": "ann"}, created.revision)
    assert await client.tables() == []


async def test_tables_are_listed_by_name_beyond_a_page(client, monkeypatch):
    monkeypatch.setattr("duly.time_tables.calls._PAGE", 2)
    for number in (3, 1, 2, 5, 4):
        await client.create_table(f"t{number}", LAMBDA, every=HOUR)

    assert [table.name for table in await client.tables()] == ["t1", "t2", "t3", "t4", "t5"]
    assert await client.tables(lambda_name="no.other") == []


async def test_a_backfill_schedules_each_past_tick_once(client, tables):
    await client.create_table(NAME, LAMBDA, every=HOUR)
    end = (await tables.row()).read_at
    start = end - 10 * HOUR

    counted = await client.backfill_table(NAME, start, end, dry_run=True)
    first = await client.backfill_table(NAME, start, end)
    second = await client.backfill_table(NAME, start - HOUR, end)

    assert (counted.ticks, counted.created) == (10, 0)
    assert (first.ticks, first.created) == (10, 10)
    assert (second.ticks, second.created) == (11, 1)
    instants = [instant for instant, _ in await tables.tasks()]
    assert instants == [instants[0] + place * HOUR for place in range(11)]


async def test_a_task_names_its_time_table(client, tables):
    await client.create_table(NAME, LAMBDA, every=HOUR)
    await tables.until_due()
    await tables.fire()

    task = await client.get((await client.table(NAME)).last_task_id)

    assert (task.time_table, task.scheduled_at) == (NAME, (await client.table(NAME)).last_tick_at)


async def test_what_could_never_work_is_refused_with_field_and_fix(client):
    for options, field, said in [
        ({}, "cron", "either cron or every"),
        ({"cron": "0 0 30 2 *"}, "cron", "never fires"),
        ({"cron": "0 0 31 4,6 *"}, "cron", "never fires"),
        ({"cron": "61 * * * *"}, "cron", "bad minute"),
        ({"cron": "* * * *"}, "cron", "five fields"),
        ({"cron": "* * * * * *"}, "cron", "five fields"),
        ({"cron": "@noon"}, "cron", "@hourly"),
        ({"cron": ",".join(map(str, range(60))) * 4 + " * * * *"}, "cron", "at most 256"),
        ({"cron": "@daily", "zone": "Europe/Berlim"}, "zone", "Europe/Berlin"),
        ({"cron": "@daily", "zone": "localtime"}, "zone", "is no time zone"),
        ({"cron": "@daily", "zone": "../../etc/passwd"}, "zone", "is no time zone"),
        ({"cron": "@daily", "offset": HOUR}, "offset", "belongs to `every`"),
        ({"every": -HOUR}, "every", "from 1s"),
        ({"every": timedelta()}, "every", "from 1s"),
        ({"every": HOUR, "zone": "Europe/Berlin"}, "zone", "leave it out"),
        ({"every": HOUR, "offset": HOUR}, "offset", "less than"),
        ({"every": HOUR, "jitter": HOUR}, "jitter", "shorter"),
        ({"every": HOUR, "jitter": -HOUR}, "jitter", "from 0"),
        ({"every": HOUR, "catch_up_window": HOUR}, "catch_up_window", "choose ALL"),
        (
            {"cron": "* * * * *", "catch_up": duly.CatchUp.ALL, "catch_up_window": timedelta(days=8)},
            "catch_up_window",
            "10,000",
        ),
        ({"every": HOUR, "collection": "A B"}, "collection", "1 to 128"),
        ({"every": HOUR, "fair_key": "é" * 65}, "fair_key", "128"),
        ({"every": HOUR, "attributes": {"A": 1}}, "attributes[0].name", "lower-case"),
        ({"every": HOUR, "attributes": {f"a{n}": n for n in range(9)}}, "attributes", "at most 8"),
        ({"every": HOUR, "attributes": {"a": "x" * 257}}, "attributes[0].text", "256"),
        ({"every": HOUR, "attributes": {"a": 1.5}}, "attributes", "integers"),
    ]:
        with pytest.raises(duly.InvalidTaskError, match=said) as refused:
            await client.create_table(NAME, LAMBDA, **options)

        assert refused.value.field == field
        assert await client.tables() == []


async def test_attributes_that_an_older_frontend_would_leave_out_are_refused(client, monkeypatch):
    plain = await client.create_table("plain", LAMBDA, every=HOUR)
    known = [each for each in definitions.TABLE_FIELDS if each != "attributes"]
    monkeypatch.setattr(definitions, "TABLE_FIELDS", known)

    for refused in (
        client.create_table(NAME, LAMBDA, every=HOUR, attributes={"region": "eu"}),
        client.change_table("plain", attributes={"region": "eu"}),
    ):
        with pytest.raises(duly.DulyError, match="the Frontend is of an older release"):
            await refused

    (left,) = await client.tables()
    assert (left.name, left.revision) == ("plain", plain.revision)


async def test_a_name_a_lambda_and_a_payload_that_cannot_be_are_refused(client, task_states):
    await task_states.register("small.one", payload_limit=10)

    with pytest.raises(duly.InvalidTaskError, match="name"):
        await client.create_table("Mail Digest", LAMBDA, every=HOUR)
    with pytest.raises(duly.UnknownLambdaError, match=r"no\.such"):
        await client.create_table(NAME, "no.such", every=HOUR)
    with pytest.raises(duly.PayloadTooLargeError, match="at most 10"):
        await client.create_table(NAME, "small.one", "x" * 20, every=HOUR)
    assert await client.tables() == []


async def test_an_impossible_backfill_is_refused_and_writes_nothing(client, tables):
    await client.create_table(NAME, LAMBDA, every=timedelta(seconds=1))
    now = (await tables.row()).read_at

    for start, end, said in (
        (now - 10 * HOUR, now, "10,000"),
        (now, now - HOUR, "earlier"),
        (now, now + HOUR, "future"),
        (datetime(1, 1, 1, tzinfo=UTC), None, "1970"),
    ):
        with pytest.raises(duly.InvalidTaskError, match=said):
            await client.backfill_table(NAME, start, end)
    with pytest.raises(duly.TimeTableNotFoundError):
        await client.backfill_table("no.such", now - HOUR, now)
    assert await tables.tasks() == []


def declared(**rhythm):
    """What an application says of LAMBDA and its time table."""
    table = time_tables_pb2.TimeTable(name=NAME, **rhythm)
    return registry_pb2.RegisterLambdasRequest(
        lambdas=[registry_pb2.Lambda(name=LAMBDA, time_tables=[table])]
    )


async def test_a_declared_time_table_is_written_with_its_lambda_and_the_newest_declaration_holds(
    client, frontend
):
    await frontend.registry.RegisterLambdas(declared(cron="@daily"))
    first = await client.table(NAME)

    await frontend.registry.RegisterLambdas(declared(cron="@daily"))
    same = await client.table(NAME)
    await frontend.registry.RegisterLambdas(declared(cron="@hourly"))
    changed = await client.table(NAME)

    assert (first.cron, first.declared, first.lambda_name) == ("@daily", True, LAMBDA)
    assert same == first
    assert (changed.cron, changed.revision) == ("@hourly", 2)


async def test_no_declaration_undoes_a_pause(client, frontend):
    await frontend.registry.RegisterLambdas(declared(cron="@daily"))
    await client.pause_table(NAME)

    await frontend.registry.RegisterLambdas(declared(cron="@hourly"))

    table = await client.table(NAME)
    assert table.paused_at is not None
    assert table.cron == "@hourly"


async def test_a_declaration_gives_way_to_what_an_operator_defined_and_says_so(client, frontend):
    await frontend.registry.RegisterLambdas(declared(cron="@daily"))
    await client.change_table(NAME, cron="@weekly")

    response = await frontend.registry.RegisterLambdas(declared(cron="@hourly"))

    assert (await client.table(NAME)).cron == "@weekly"
    assert "defined by an operator" in response.results[0].warning


async def test_a_lambda_with_an_unusable_time_table_is_refused_as_a_whole(client, frontend):
    response = await frontend.registry.RegisterLambdas(declared(cron="0 0 30 2 *"))

    assert response.results[0].error.field == f"time_tables['{NAME}'].cron"
    assert await client.tables() == []


async def test_calls_that_ask_too_much_are_refused(frontend):
    names = [f"t{number}" for number in range(101)]

    many = await refusal(
        frontend.time_tables.GetTimeTables(time_tables_pb2.GetTimeTablesRequest(names=names))
    )
    far = await refusal(
        frontend.time_tables.GetTimeTables(time_tables_pb2.GetTimeTablesRequest(names=[NAME], next=1_001))
    )

    null = await refusal(
        frontend.time_tables.GetTimeTables(time_tables_pb2.GetTimeTablesRequest(names=["a\x00"]))
    )

    assert (many.field, far.field, null.field) == ("names", "next", "names")


async def test_many_time_tables_are_declared_in_one_call_and_declared_again(frontend, client):
    tables = [time_tables_pb2.TimeTable(name=f"t{number:03}", cron="0 2 * * *") for number in range(300)]
    request = registry_pb2.RegisterLambdasRequest(
        lambdas=[registry_pb2.Lambda(name=LAMBDA, time_tables=tables)]
    )
    await client.create_table("t007", LAMBDA, every=HOUR)
    await frontend.registry.RegisterLambdas(request)
    before = {table.name: table for table in await client.tables()}

    tables[1].cron, tables[2].payload = "0 3 * * *", b"x" * 300_000
    request = registry_pb2.RegisterLambdasRequest(
        lambdas=[registry_pb2.Lambda(name=LAMBDA, time_tables=tables)]
    )
    request.lambdas[0].payload_limit = 1_000_000
    (result,) = (await frontend.registry.RegisterLambdas(request)).results
    after = {table.name: table for table in await client.tables()}

    assert "'t007' was defined by an operator" in result.warning
    assert "more" not in result.warning
    assert len(before) == len(after) == 300
    assert {name for name in after if after[name].revision != before[name].revision} == {"t001", "t002"}
    assert (after["t001"].cron, after["t007"].every) == ("0 3 * * *", HOUR)
    assert after["t002"].next_tick_at == before["t002"].next_tick_at != after["t001"].next_tick_at


async def test_a_name_that_two_lambdas_declare_is_written_once_and_said_so(frontend, client):
    lambdas = [registry_pb2.Lambda(name=name) for name in (LAMBDA, "mail.sort")]
    for each in lambdas:
        each.time_tables.add(name=NAME, cron="@daily")

    first, second = (
        await frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
    ).results

    assert first.warning == ""
    assert f"it is declared for '{LAMBDA}' too" in second.warning
    assert [table.lambda_name for table in await client.tables()] == [LAMBDA]


async def test_more_time_tables_than_one_call_takes_are_refused(frontend):
    lambdas = [registry_pb2.Lambda(name=f"lambda.{number}") for number in range(6)]
    for each in lambdas:
        each.time_tables.extend([time_tables_pb2.TimeTable(name="t", cron="@daily")] * 1_000)

    answer = await refusal(
        frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
    )

    assert answer.field == "lambdas.time_tables"
    assert "at most 5,000 in one call, not 6,000" in answer.message


@pytest.mark.long  # a hundred megabytes of payloads
async def test_a_change_of_large_time_tables_is_answered_without_their_payloads(
    frontend, client, task_states
):
    await task_states.register("large", payload_limit=1_000_000)
    names = [f"t{number}" for number in range(9)]
    for name in names:
        await client.create_table(name, "large", b"x" * 950_000, every=HOUR)

    read = await refusal(
        frontend.time_tables.GetTimeTables(time_tables_pb2.GetTimeTablesRequest(names=names))
    )
    paused = await frontend.time_tables.PauseTimeTables(time_tables_pb2.PauseTimeTablesRequest(names=names))
    deleted = await frontend.time_tables.DeleteTimeTables(
        time_tables_pb2.DeleteTimeTablesRequest(names=[*names[:2], "unknown"])
    )

    assert "the answer would have more than" in read.message
    assert [result.table.HasField("paused_at") for result in paused.results] == [True] * 9
    assert {result.table.table.payload for result in paused.results} == {b""}
    assert [len(result.table.table.payload) for result in deleted.results] == [950_000, 950_000, 0]
    assert [result.HasField("table") for result in deleted.results] == [True, True, False]


async def test_a_caller_that_asks_for_thousands_of_ticks_uses_up_its_time(tables):
    await tables.make()
    many = time_tables_pb2.GetTimeTablesRequest(names=[NAME], next=1_000)
    few = time_tables_pb2.GetTimeTablesRequest(names=[NAME])
    bounds = {"caller_share": 0.001, "caller_burst": timedelta(microseconds=1)}

    async with serve_frontend(tables.store, **bounds) as frontend:
        shown = await frontend.time_tables.GetTimeTables(many)
        refused = await refusal(frontend.time_tables.GetTimeTables(many))
        later = await frontend.time_tables.GetTimeTables(few)

    assert len(shown.results[0].table.next_ticks) == 1_000
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(later.results) == 1
