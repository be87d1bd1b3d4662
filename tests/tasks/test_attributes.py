"""Attributes of tasks: what is written, what is found, and by whom."""

import re
from uuid import UUID

import pytest
from psycopg import AsyncClientCursor

import duly
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import HSC
from duly_core.results.store import set_results
from duly_core.search.store import tasks_by_attribute
from duly_core.tasks import attributes
from duly_core.tasks.schedule import schedule
from duly_core.tasks.task import NewTask, Result, Scheduling
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, graphs_pb2, task_pb2
from tests.fixtures.roles import settings_as
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA

THEIRS = "shop/bill.pay"


@pytest.fixture
async def registered(frontend, task_states):
    await task_states.register()


async def rows(store):
    async with store.connection() as connection:
        cursor = await connection.execute("select name, value from task_attribute order by name, value")
        return await cursor.fetchall()


async def found(client, **which):
    return [task.task_id async for page in client.list_pages(**which) for task in page]


async def test_attributes_read_back_with_their_types_and_find_their_task(client, store, registered):
    given = {"order": 17, "kind": "mail", "urgent": True, "big": -(2**63)}
    first = await client.schedule(LAMBDA, attributes=given)
    second = await client.schedule(LAMBDA, attributes={"order": "17"})
    await client.schedule(LAMBDA)

    assert dict((await client.get(first)).attributes) == given
    assert type((await client.get(second)).attributes["order"]) is str
    assert await found(client, attributes={"order": 17}) == [second.task_id, first.task_id]
    assert await found(client, attributes={"order": 17, "urgent": True}) == [first.task_id]
    assert await found(client, attributes={"order": 17, "urgent": False}) == []
    assert [dict(task.attributes) async for task in client.list(attributes={"kind": "mail"})] == [given]
    assert len(await rows(store)) == 5


async def test_a_task_without_attributes_writes_no_row(client, store, registered):
    await client.schedule(LAMBDA, idempotency_key="k")

    assert await rows(store) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([("Order", 1)], "attributes[0].name"),
        ([("", 1)], "attributes[0].name"),
        ([("a" * 65, 1)], "attributes[0].name"),
        ([("a", "x" * 257)], "attributes[0].text"),
        ([("a", "")], "attributes[0].text"),
        ([("a", "x\x00")], "attributes[0].text"),
        ([("a", 1), ("a", 2)], "attributes"),
        ([(f"a{number}", 1) for number in range(9)], "attributes"),
        ([("a", None)], "attributes[0]"),
    ],
)
async def test_bad_attributes_are_refused_and_nothing_is_written(frontend, store, registered, given, field):
    made = task_pb2.Attributes()
    for name, value in given:
        each = made.attributes.add(name=name)
        if isinstance(value, str):
            each.text = value
        elif value is not None:
            each.number = value
    asked = {"lambda": LAMBDA, "attributes": made.SerializeToString()}

    answer = await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[asked]))

    assert answer.results[0].error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
    assert answer.results[0].error.field == field
    assert not (await frontend.stub.ListTasks(frontend_pb2.ListTasksRequest())).tasks


async def test_bytes_that_are_no_attributes_are_refused(frontend, registered):
    for data in (b"\xff", b"\x00" * 5_000):
        asked = {"lambda": LAMBDA, "attributes": data}
        answer = await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[asked]))
        assert answer.results[0].error.field == "attributes"


@pytest.mark.parametrize("given", [{"a": 1.5}, {"a": None}, {1: "a"}, ["a"], {"a": 2**63}])
async def test_the_sdk_names_the_argument_that_is_wrong(client, registered, given):
    with pytest.raises(duly.InvalidTaskError, match="attributes"):
        await client.schedule(LAMBDA, attributes=given)


async def test_a_repeat_with_other_attributes_is_a_conflict(task_states, store):
    await task_states.register()
    new = (await task_states.new())._replace(task_id=new_task_id().bytes, attributes=(("order", 17),))

    first, again, other, none = [
        (await schedule(store, [each]))[0].verdict
        for each in (new, new, new._replace(attributes=(("order", 18),)), new._replace(attributes=()))
    ]

    assert (first, again, other, none) == (
        Scheduling.CREATED,
        Scheduling.REPEATED,
        Scheduling.CONFLICT,
        Scheduling.CONFLICT,
    )
    assert await rows(store) == [("order", "17")]


async def test_tasks_of_one_call_with_and_without_attributes_are_written_together(client, store, registered):
    receipts = await client.schedule_many(
        [
            duly.NewTask(LAMBDA, attributes={"order": 1}),
            duly.NewTask(LAMBDA),
            duly.NewTask(LAMBDA, session="s", attributes={"order": 1}),
            duly.NewTask(LAMBDA, unique="u", attributes={"order": 1}),
        ]
    )

    assert sorted(await found(client, attributes={"order": 1})) == sorted(
        str(receipts[place]) for place in (0, 2, 3)
    )


async def test_nodes_of_graphs_have_attributes(frontend, client, registered):
    made = task_pb2.Attributes(attributes=[{"name": "order", "number": 17}]).SerializeToString()
    task_id = str(new_task_id())
    node = {"label": "a", "task": {"lambda": LAMBDA, "attributes": made, "task_id": task_id}}
    graph = graphs_pb2.ScheduleGraphRequest(graph_id=str(new_task_id()), name="g", nodes=[node])
    assert not (await frontend.graphs.ScheduleGraph(graph)).HasField("error")

    assert await found(client, attributes={"order": 17}) == [task_id]


async def test_an_hsc_of_its_own_role_writes_those_of_a_task_that_a_callback_schedules(
    store, task_states, claimed_task
):
    child = NewTask(new_task_id().bytes, LAMBDA, b"{}", attributes=(("order", 17),))
    ended = Result(claimed_task.task_id, claimed_task.token, Outcome.SUCCESS, children=(child,))

    async with Store(settings_as(store, HSC)) as own:
        await set_results(own, [ended])

    assert await rows(store) == [("order", "17")]


async def test_pages_of_a_search_have_each_task_once(client, registered, monkeypatch):
    monkeypatch.setattr(attributes, "MOST_READ", 3)
    receipts = await client.schedule_many(
        [duly.NewTask(LAMBDA, attributes={"order": 1, "even": number % 2 == 0}) for number in range(40)]
    )
    ids = [str(each) for each in receipts]

    assert await found(client, attributes={"order": 1}, page_size=4) == ids[::-1]
    assert await found(client, attributes={"order": 1, "even": True}, page_size=4) == ids[::2][::-1]
    assert await found(client, attributes={"order": 1}, statuses=[duly.TaskStatus.SUCCESS], page_size=4) == []


async def test_a_filter_that_is_not_valid_is_refused(frontend, registered):
    for given in ([("A", "1")], [("a", "")], [("a", "x" * 257)], [(f"a{n}", "1") for n in range(9)]):
        request = frontend_pb2.ListTasksRequest(
            attributes=[{"name": name, "value": value} for name, value in given]
        )
        refused = await refusal(frontend.stub.ListTasks(request))
        assert refused.code.name == "INVALID_ARGUMENT"
        assert refused.field.startswith("attributes")


# ---- changes of many -------------------------------------------------------------------------------------


async def scheduled(client, count, **attributes):
    new = [duly.NewTask(LAMBDA, attributes=attributes or None) for _ in range(count)]
    return [each.task_id for each in await client.schedule_many(new)]


async def statuses(client, task_ids):
    return {each.status for each in await client.get_many(task_ids)}


@pytest.mark.parametrize("most_read", [1, 3, 2_000])
async def test_a_cancel_takes_the_tasks_with_all_attributes_and_no_others(
    client, registered, monkeypatch, most_read
):
    monkeypatch.setattr(attributes, "MOST_READ", most_read)
    wanted = await scheduled(client, 9, order=17, late=True)
    others = [
        *await scheduled(client, 7, order=17),
        *await scheduled(client, 2, order=18, late=True),
        *await scheduled(client, 2),
    ]
    which = {"attributes": {"order": "17", "late": True}}

    counted = await client.cancel_where(dry_run=True, **which)
    at_most = await client.cancel_where(dry_run=True, limit=4, **which)
    some = await client.cancel_where(limit=2, **which)
    rest = await client.cancel_where(**which)

    assert (counted, at_most, some, rest) == (9, 4, 2, 7)
    assert await statuses(client, wanted) == {duly.TaskStatus.CANCELLED}
    assert await statuses(client, others) == {duly.TaskStatus.NEW}
    assert await client.cancel_where(lambda_name="mail.other", attributes={"order": 17}) == 0


@pytest.mark.parametrize("most_read", [1, 3, 2_000])
async def test_a_purge_takes_the_finished_tasks_with_all_attributes(
    client, registered, monkeypatch, most_read
):
    ended = await scheduled(client, 5, order=17)
    await client.cancel_many([*ended, *(others := await scheduled(client, 3, order=18))])
    live = await scheduled(client, 3, order=17)
    monkeypatch.setattr(attributes, "MOST_READ", most_read)

    counted = await client.purge(dry_run=True, attributes={"order": 17})
    purged = await client.purge(attributes={"order": 17})

    assert (counted, purged) == (5, 5)
    assert await client.get_many(ended) == [None] * 5
    assert await statuses(client, others) == {duly.TaskStatus.CANCELLED}
    assert await statuses(client, live) == {duly.TaskStatus.NEW}


async def test_a_change_by_attributes_that_has_none_is_refused_and_changes_nothing(client, registered):
    live = await scheduled(client, 2, order=17)
    await client.cancel_many(ended := await scheduled(client, 2, order=18))

    for change in (client.cancel_where, client.purge):
        with pytest.raises(duly.InvalidTaskError, match="attributes has none"):
            await change(attributes={})

    assert await statuses(client, live) == {duly.TaskStatus.NEW}
    assert await statuses(client, ended) == {duly.TaskStatus.CANCELLED}


async def test_a_page_of_a_change_reads_a_bounded_number_of_tasks(frontend, client, registered, monkeypatch):
    await scheduled(client, 40, order=17)
    (last,) = await scheduled(client, 1, order=17, late=True)
    monkeypatch.setattr(attributes, "MOST_READ", 2)
    request = frontend_pb2.CancelTasksRequest(
        attributes=[{"name": "order", "value": "17"}], priorities=[task_pb2.PRIORITY_LOW], after="attributes:"
    )

    request.dry_run = True
    counted = await frontend.stub.CancelTasks(request)
    request.dry_run = False
    answer = await frontend.stub.CancelTasks(request)

    assert (counted.count, counted.more, counted.next_after) == (0, True, answer.next_after)
    assert (answer.count, answer.more) == (0, True)
    assert answer.next_after < f"attributes:{last}"


async def test_the_place_of_a_page_names_no_task_that_its_caller_may_not_see(store, registered):
    ids = [new_task_id().bytes for _ in range(3)]
    ids[1:] = [
        (int.from_bytes(each[:6]) + number).to_bytes(6) + each[6:] for number, each in enumerate(ids[1:], 5)
    ]
    async with store.connection() as connection:
        await attributes.keep_of(connection, dict.fromkeys(ids, (("order", 17),)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attributes, "MOST_READ", 3)
        found = await attributes.find_after(store, [("order", "17")], None)

    assert found.task_ids == ids[:2]
    assert ids[1] < found.read_to < ids[2]


@pytest.mark.parametrize("after", ["", str(UUID(int=7 << 76 | 2 << 62))])
async def test_a_change_by_attributes_must_say_so_where_an_older_frontend_would_refuse_it(
    frontend, client, registered, after
):
    """One that does not know the filter would take all tasks."""
    task_ids = await scheduled(client, 1, order=17)
    for call, request in (
        (frontend.stub.CancelTasks, frontend_pb2.CancelTasksRequest),
        (frontend.stub.PurgeTasks, frontend_pb2.PurgeTasksRequest),
    ):
        refused = await refusal(call(request(attributes=[{"name": "order", "value": "17"}], after=after)))
        assert (refused.code.name, refused.field) == ("INVALID_ARGUMENT", "after")
        older = await refusal(call(request(after="attributes:")))  # what an older one reads
        assert (older.code.name, older.field) == ("INVALID_ARGUMENT", "after")
        bad = await refusal(call(request(attributes=[{"name": "A", "value": "1"}], after="attributes:")))
        assert bad.field == "attributes[0].name"
    assert await statuses(client, task_ids) == {duly.TaskStatus.NEW}


@pytest.mark.parametrize("value", ["old", "new"])
async def test_a_page_of_a_change_reads_no_tasks_of_another_value(store, monkeypatch, value):
    monkeypatch.setattr(attributes, "MOST_READ", 200)
    async with store.connection() as connection:
        await connection.set_autocommit(True)
        await connection.execute("alter table task_attribute set (autovacuum_enabled = false)")
        await connection.execute(OLD_AND_NEW)
        await connection.execute("analyze task_attribute")

    plan = await plan_of(store, attributes.find_after_query([("kind", value)], None))

    assert "using task_attribute_pkey" in plan
    assert "Rows Removed by Filter" not in plan


async def test_the_plan_of_a_search_reads_the_index_from_its_newest_entry(store):
    async with store.connection() as connection:
        await connection.set_autocommit(True)
        await connection.execute(
            "insert into task_attribute select 'kind', 'mail', gen_random_uuid() from generate_series(1, 20000)"
        )
        await connection.execute(
            "insert into task_attribute select 'order', number::text, gen_random_uuid() from generate_series(1, 20000) as number"
        )
        await connection.execute("analyze task_attribute")

    found = await attributes.find(store, [("kind", "mail"), ("order", "7")], None)
    plan = await plan_of(
        store, attributes.find_query([("kind", "mail"), ("order", "7")], UUID(int=2**127).bytes)
    )

    assert found == ([], None)
    assert "task_attribute_pkey" in plan
    assert "Seq Scan" not in plan
    removed = re.findall(r"Rows Removed by Filter: (\d+)", plan)
    assert all(int(rows) < 8 for rows in removed)  # the other attributes of one task, if its index is used


OLD_AND_NEW = """
insert into task_attribute select 'kind', case when number <= 16000 then 'old' else 'new' end, duly_first_id(now() + number * interval '1 second')
from generate_series(1, 20000) as number
"""


@pytest.mark.parametrize("before", [None, UUID(int=2**128 - 1).bytes])
@pytest.mark.parametrize("value", ["old", "new"])
async def test_a_page_of_a_value_reads_no_newer_tasks_of_another(store, monkeypatch, value, before):
    monkeypatch.setattr(attributes, "MOST_READ", 200)
    async with (
        store.connection() as connection
    ):  # analyzed, but not vacuumed: the heap is read for each entry
        await connection.set_autocommit(True)
        await connection.execute("alter table task_attribute set (autovacuum_enabled = false)")
        await connection.execute(OLD_AND_NEW)
        await connection.execute("analyze task_attribute")

    queries = [
        attributes.find_query([("kind", value)], before),
        tasks_by_attribute("kind", value, None, 5),
    ]

    for query in queries:
        plan = await plan_of(store, query)
        assert "using task_attribute_pkey" in plan
        assert "Rows Removed by Filter" not in plan
    assert len((await attributes.find(store, [("kind", value)], before)).task_ids) in (199, 200)


async def plan_of(store, query):
    async with store.connection() as connection:
        cursor = AsyncClientCursor(connection)
        await cursor.execute(f"explain (analyze, timing off) {query[0]}".encode(), query[1])
        return "\n".join(line for (line,) in await cursor.fetchall())
