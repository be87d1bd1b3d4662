"""Tasks of callbacks, of time tables and of transactions in sessions: in order, without a deadlock, and nothing is left behind."""

import asyncio
import json
import os
import random
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import duly
from duly import transactional
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import Applied, NewTask, ResourceNeed, Result, Session
from duly_core.time_tables.time_table import Rhythm, TickPolicy, TimeTable
from duly_wire.enums import FailureKind, Outcome, Overlap, Priority, SessionOrder
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import count, until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA
from tests.fixtures.time_tables import MINUTE, NAME

KEY = "vlan-7"


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    return store


def a_task(key: str | None = KEY, **fields) -> NewTask:
    session = None if key is None else Session(key, fields.pop("order", SessionOrder.SCHEDULED))
    return NewTask(
        **{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}", "session": session}
        | fields
    )


async def claim_all(store):
    picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 1000, 0)]
    return (
        await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 1000, CLAIM_TIMEOUT)
    ).tasks


async def succeed(store, claimed, children=None):
    written = await set_results(
        store,
        [
            Result(
                each.task_id,
                each.token,
                Outcome.SUCCESS,
                children=tuple((children or {}).get(each.task_id, ())),
            )
            for each in claimed
        ],
    )
    return written.verdicts


async def run_to_the_end(store):
    """Claim and finish what may run until nothing does; the ids in the order in which they ran."""
    order = []
    while claimed := await claim_all(store):
        order += [task.task_id for task in claimed]
        assert set(await succeed(store, claimed)) <= {Applied.APPLIED}
    return order


# ---- tasks that callbacks schedule -------------------------------------------------------------------------


@pytest.mark.parametrize("key_of_parent", [None, KEY, "another"])
async def test_children_run_one_at_a_time_in_the_order_of_the_calls(registered, dsn, key_of_parent):
    await schedule.schedule(registered, [parent := a_task(key_of_parent)])
    children = [a_task() for _ in range(5)]
    random.shuffle(children)

    await succeed(registered, await claim_all(registered), {parent.task_id: children})

    assert len(await claim_all(registered)) == 1
    await tasks.cancel_tasks(registered, [children[3].task_id])
    state = (await sessions.get_sessions(registered, [SessionId("", KEY)], 10))[SessionId("", KEY)]
    assert (state.head, [*state.waiting]) == (
        children[0].task_id,
        [children[1].task_id, children[2].task_id, children[4].task_id],
    )


async def test_a_child_goes_behind_those_that_wait_in_the_session_of_its_parent(registered, dsn):
    parent, waiting = a_task(), a_task()
    await schedule.schedule(registered, [parent, waiting])
    child = a_task()

    await succeed(registered, await claim_all(registered), {parent.task_id: [child]})

    assert await run_to_the_end(registered) == [waiting.task_id, child.task_id]
    assert count(dsn, "session") == 0


async def test_a_lost_claim_leaves_neither_children_nor_a_session_behind(registered, dsn):
    await schedule.schedule(registered, [parent := a_task("another")])
    (claimed,) = await claim_all(registered)

    verdicts = await succeed(registered, [claimed._replace(token=b"x" * 16)], {parent.task_id: [a_task()]})

    assert verdicts == [Applied.LOST]
    assert (count(dsn, "session"), count(dsn, "task")) == (1, 1)


async def test_a_child_that_cannot_be_written_leaves_no_session_behind(registered, dsn):
    await schedule.schedule(registered, [parent := a_task(None)])

    await succeed(
        registered,
        await claim_all(registered),
        {parent.task_id: [a_task(), a_task(lambda_name="nobody.knows")]},
    )

    assert (count(dsn, "session"), count(dsn, "task_assoc")) == (0, 0)


async def test_a_child_that_is_due_earlier_comes_before_an_unclaimed_head(registered):
    hour = timedelta(hours=1)
    later = a_task(order=SessionOrder.DUE, delay=hour)
    parent = a_task(None)
    await schedule.schedule(registered, [later, parent])
    child = a_task(order=SessionOrder.DUE)

    await succeed(registered, await claim_all(registered), {parent.task_id: [child]})

    assert [task.task_id for task in await claim_all(registered)] == [child.task_id]


async def test_parents_with_children_in_each_others_sessions_do_not_deadlock(registered, dsn):
    """The end of a parent locks its session, then a resource; its child joins another session, whose head frees that resource."""
    await whole.put_resource(registered, ResourceLimit("database", 100))
    keys = [f"s{number}" for number in range(6)]
    need = (ResourceNeed("database"),)
    parents = [a_task(key, resources=need) for key in keys]
    await schedule.schedule(registered, parents)
    left = 240

    while claimed := await claim_all(registered):
        children = {
            task.task_id: [a_task(key, resources=need) for key in random.sample(keys, 2 if left > 0 else 0)]
            for task in claimed
        }
        left -= sum(map(len, children.values()))
        halves = [claimed[0::2], claimed[1::2]]
        # both at a time: each waits for what the other holds, unless all lock in one order
        answers = await asyncio.wait_for(
            asyncio.gather(*(succeed(registered, half, children) for half in halves if half)), 20
        )
        assert {verdict for verdicts in answers for verdict in verdicts} == {Applied.APPLIED}

    assert (count(dsn, "session"), count(dsn, "task_assoc")) == (0, 0)


async def test_a_parent_waits_for_the_sessions_of_its_children_before_it_locks_anything_else(registered, dsn):
    await whole.put_resource(registered, ResourceLimit("database", 1))
    parent = a_task(None, resources=(ResourceNeed("database"),))
    await schedule.schedule(registered, [parent, a_task()])
    claimed = {task.task_id: task for task in await claim_all(registered)}
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from session for update")
        ending = asyncio.create_task(
            succeed(registered, [claimed[parent.task_id]], {parent.task_id: [a_task()]})
        )
        await until_a_statement_waits_for_a_lock(dsn)

        await other.execute("set local lock_timeout = '5s'")
        await other.execute("select from resource_use for update")
        await other.rollback()

    assert await ending == [Applied.APPLIED]


# ---- ticks of time tables ----------------------------------------------------------------------------------


async def make(tables, name=NAME, key=KEY, **policy):
    table = TimeTable(
        name,
        LAMBDA,
        Rhythm(every=MINUTE),
        policy=TickPolicy(**policy),
        session=Session(key),
        resources=(ResourceNeed("database"),),
    )
    answer = await whole.put_time_table(tables.store, table)
    assert answer.row is not None
    assert answer.row.definition == table


async def test_ticks_run_one_at_a_time_and_keep_what_the_time_table_says(tables):
    await make(tables)
    for _ in range(3):
        await tables.until_due()
        assert (await tables.fire()).tasks == 1

    assert [status for _, status in await tables.tasks()] == ["new", "waiting", "waiting"]
    (first,) = await claim_all(tables.store)
    row = (await tasks.get_tasks(tables.store, [first.task_id]))[first.task_id]
    assert (row["session"], row["resources"]) == (f"/{KEY}", [{"name": "database", "key": "", "weight": 1}])


async def test_a_tick_that_ends_the_task_before_it_is_written_after_that_end(tables):
    await make(tables, overlap=Overlap.CANCEL_RUNNING)
    await tables.until_due()
    await tables.fire()
    await tables.until_due()

    first = await tables.fire()
    second = await tables.fire()

    assert (first.tasks, first.left, first.cancelled) == (0, 1, 1)
    assert (second.tasks, second.left) == (1, 0)
    assert [status for _, status in await tables.tasks()] == [None, "new"]


async def test_backfills_of_tables_in_one_session_and_rounds_do_not_deadlock(tables):
    names = [f"table-{number}" for number in range(4)]
    for name in names:
        await make(tables, name)
    await tables.until_due(names[0])
    now = (await tables.row(names[0])).read_at.replace(second=0, microsecond=0)
    past = [now - MINUTE * number for number in range(1, 40)]

    await asyncio.wait_for(
        asyncio.gather(
            *(tables.backfill(name, sorted(random.sample(past, 30))) for name in names * 2),
            tables.fire(),
            tables.fire(),
        ),
        30,
    )

    state = (await sessions.get_sessions(tables.store, [SessionId("", KEY)], 1))[SessionId("", KEY)]
    written = [len(await tables.tasks(name)) for name in names]
    assert state.length == sum(written)
    assert min(written) > 30


# ---- tasks of transactions ---------------------------------------------------------------------------------


async def test_tasks_of_transactions_run_in_the_order_of_the_commits_and_of_the_calls(registered, dsn):
    with psycopg.connect(dsn) as early, psycopg.connect(dsn) as late:
        first = [transactional.schedule(late, LAMBDA, number, session=KEY) for number in range(3)]
        second = transactional.schedule(early, LAMBDA, session=KEY)
        early.commit()
        late.commit()

    order = [str(UUID(bytes=task_id)) for task_id in await run_to_the_end(registered)]

    assert order == [second, *first]
    assert [count(dsn, table) for table in ("session", "session_entry")] == [0, 0]


async def test_a_transaction_that_lasts_does_not_hold_up_the_ends_of_tasks_in_its_session(registered, dsn):
    await schedule.schedule(registered, [a_task()])
    claimed = await claim_all(registered)
    with psycopg.connect(dsn) as connection:
        task_id = transactional.schedule(connection, LAMBDA, session=KEY)

        assert await asyncio.wait_for(succeed(registered, claimed), 5) == [Applied.APPLIED]
        connection.commit()

    assert [str(UUID(bytes=each)) for each in await run_to_the_end(registered)] == [task_id]


async def test_a_transaction_or_a_savepoint_that_is_rolled_back_leaves_nothing_in_a_session(registered, dsn):
    with psycopg.connect(dsn) as connection:
        transactional.schedule(connection, LAMBDA, session=KEY)
        connection.rollback()
        kept = transactional.schedule(connection, LAMBDA, session=KEY)
        with connection.transaction(force_rollback=True):
            transactional.schedule(connection, LAMBDA, session=KEY)
        connection.commit()

    assert [str(UUID(bytes=each)) for each in await run_to_the_end(registered)] == [kept]


async def test_transactions_that_use_sessions_in_other_orders_do_not_deadlock(registered, dsn):
    keys = [f"s{number}" for number in range(5)]

    def transact():
        with psycopg.connect(dsn) as connection:
            for _ in range(10):
                for key in random.sample(keys, 4):
                    transactional.schedule(connection, LAMBDA, session=key)
                connection.commit()

    async def end_some():
        for _ in range(30):
            await succeed(registered, await claim_all(registered))

    await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(transact) for _ in range(4)), end_some()), 60)

    await run_to_the_end(registered)
    assert [count(dsn, table) for table in ("session", "session_entry", "task_assoc")] == [0, 0, 0]
    assert count(dsn, "task") == 160


async def test_a_client_that_repeats_what_a_transaction_scheduled_finds_it(frontend, registered, dsn):
    with psycopg.connect(dsn) as connection:
        options = {"session": duly.Session(KEY, on_failure=duly.SessionPolicy.BLOCK), "idempotency_key": "k"}
        task_id = transactional.schedule(connection, LAMBDA, 1, **options)
        assert transactional.schedule(connection, LAMBDA, 1, **options) == task_id
        connection.commit()

    async with duly.AsyncClient(frontend.address) as client:
        again = await client.schedule(LAMBDA, 1, **options)
        with pytest.raises(duly.KeyConflictError):
            await client.schedule(LAMBDA, 1, session="another", idempotency_key="k")

    assert (again.task_id, again.created) == (task_id, False)


async def test_a_task_of_a_transaction_that_fails_blocks_its_session_as_it_says(registered, dsn):
    with psycopg.connect(dsn) as connection:
        for _ in range(2):
            transactional.schedule(
                connection, LAMBDA, session=duly.Session(KEY, on_failure=duly.SessionPolicy.BLOCK)
            )
        connection.commit()
    (claimed,) = await claim_all(registered)

    await set_results(
        registered,
        [Result(claimed.task_id, claimed.token, Outcome.FATAL_FAILURE, failure_kind=FailureKind.CALLBACK)],
    )

    state = (await sessions.get_sessions(registered, [SessionId("", KEY)], 1))[SessionId("", KEY)]
    assert (state.blocked_by, state.head, state.length) == (claimed.task_id, None, 1)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"session": "x" * 256}, "session"),
        ({"session": duly.Session("k", duly.SessionOrder.DUE)}, "session.order"),
        ({"resources": ["nobody-knows"]}, "resources"),
        ({"resources": ["lambda:mail.send"]}, "resources"),
        ({"resources": ["other/database"]}, "resources"),
        ({"resources": ["tenant"]}, "resources"),
        ({"resources": [duly.ResourceNeed("database", key="k")]}, "resources"),
        ({"resources": ["database", "database"]}, "resources"),
        ({"resources": ["database"] * 9}, "resources"),
        ({"resources": [duly.ResourceNeed("database", weight=1001)]}, "resources"),
    ],
)
async def test_a_transaction_is_told_what_is_wrong_with_a_session_or_a_resource(
    registered, dsn, options, field
):
    for limit in ("database", "other/database"):
        await whole.put_resource(registered, ResourceLimit(limit, 1))
    await whole.put_resource(registered, ResourceLimit("tenant", 1, per_key=True))

    with psycopg.connect(dsn) as connection, pytest.raises(duly.DulyError) as refused:
        transactional.schedule(connection, LAMBDA, **options)

    assert isinstance(refused.value, duly.InvalidTaskError | duly.UnknownResourceError)
    assert field in (getattr(refused.value, "field", "") or str(refused.value))
    assert count(dsn, "task") == 0


@pytest.mark.parametrize(
    "resources",
    [
        '{"name": "database"}',
        "[1]",
        "[[]]",
        "[null]",
        '[{"name": 1, "keys": 2}]',
        '[{"name": "database", "weight": "x"}]',
        "3",
    ],
)
async def test_what_is_no_list_of_resources_is_refused_in_sql(registered, dsn, resources):
    await whole.put_resource(registered, ResourceLimit("database", 1))

    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("select duly_schedule(%s, resources => %s::json)", [LAMBDA, resources])

    assert refused.value.sqlstate in ("DY001", "DY005")


async def test_resources_in_sql_are_kept_as_the_frontend_keeps_them(frontend, registered, dsn):
    await whole.put_resource(registered, ResourceLimit("database", 1))
    await whole.put_resource(registered, ResourceLimit("tenant", 1, per_key=True))
    needs = [
        duly.ResourceNeed("tenant", key="é", weight=3),
        duly.ResourceNeed("database"),
        duly.ResourceNeed("tenant", key="a"),
    ]
    with psycopg.connect(dsn) as connection:
        first = transactional.schedule(connection, LAMBDA, resources=needs, idempotency_key="k")
        text = json.dumps(["database"])
        connection.execute("select duly_schedule(%s, resources => %s::json)", [LAMBDA, text])
        connection.commit()

    async with duly.AsyncClient(frontend.address) as client:
        again = await client.schedule(LAMBDA, resources=needs[::-1], idempotency_key="k")

    assert (again.task_id, again.created) == (first, False)
    assert len(await claim_all(registered)) == 1
