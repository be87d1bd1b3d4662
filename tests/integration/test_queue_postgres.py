"""What the Postgres queue promises beyond the contract."""

import asyncio
import re
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from duly_core.errors import QueueUnavailableError, SettingsError
from duly_core.queues import postgres_link, postgres_wakeups
from duly_core.queues.factory import open_receiver, open_sender
from duly_core.queues.message import pack
from duly_core.queues.postgres_connection import connection_string
from duly_core.queues.postgres_link import PostgresLink
from duly_core.queues.postgres_statements import DEPTH, READY, RECEIVE
from duly_core.queues.settings import QueueSettings
from tests.fixtures.queues import NO_WAIT, SECOND, message, queue_of
from tests.fixtures.waiting import until

DEADLINE = 5


@pytest.fixture
def installation(postgres_queue):
    return postgres_queue


@pytest.fixture
async def database(dsn):
    """The hand of an operator on the same database."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def stranger(database):
    """A role that may do nothing here."""
    role = f"stranger_{uuid4().hex}"
    await database.execute(f"create role {role}")
    yield role
    await database.execute(f"drop role {role}")


async def insert(database, body):
    await database.execute(
        "insert into queue_message (lambda, priority, reference_count, visible_at, body)"
        " values (%s, %s, 1, duly_now(), %s)",
        (queue_of().lambda_name, int(queue_of().priority), body),
    )


@pytest.fixture
def looks(monkeypatch):
    """The times at which anybody took messages from a queue."""
    seen = []
    run = PostgresLink.run

    async def watched(self, statement, parameters, **options):
        if statement == RECEIVE:
            seen.append(parameters["lambda"])
        return await run(self, statement, parameters, **options)

    monkeypatch.setattr(PostgresLink, "run", watched)
    return seen


async def test_who_has_taken_all_that_there_was_does_not_look_again_before_it_is_told(
    sender, receiver, looks
):
    sent, received = [message() for _ in range(10)], []
    for each in sent:
        waiting = asyncio.ensure_future(receiver.receive(queue_of(), 10, 5 * SECOND))
        await until(lambda: looks)  # the first looks before it waits
        await sender.send([each])
        received += await waiting

    assert [each.task_ids for each in received] == [each.task_ids for each in sent]
    assert len(looks) < len(sent) + 4  # a look before and after each would be twice as many


async def test_who_has_taken_as_many_as_asked_for_looks_again_at_once(sender, receiver, looks):
    sent = [message(), message()]
    await sender.send(sent)

    received = [await receiver.receive(queue_of(), 1, 5 * SECOND) for _ in sent]

    assert [each.task_ids for (each,) in received] == [each.task_ids for each in sent]
    assert len(looks) == 2


async def test_what_was_sent_between_two_receives_is_not_missed(sender, receiver):
    await sender.send([message()])
    await receiver.receive(queue_of(), 10, SECOND)
    second = message()
    await sender.send([second])

    received = await receiver.receive(queue_of(), 10, 5 * SECOND)

    assert [each.task_ids for each in received] == [second.task_ids]


async def test_what_nobody_told_of_is_found_within_the_look_interval(database, sender, receiver):
    await sender.send([message()])
    await receiver.receive(queue_of(), 10, SECOND)
    await insert(database, pack(message().task_ids))  # no notification

    assert len(await receiver.receive(queue_of(), 10, DEADLINE * SECOND)) == 1


PLAN_OF = {
    "receive": (RECEIVE, "queue_message_visible"),
    "depth": (DEPTH, "queue_message_visible"),
    "ready": (READY, "queue_message_visible"),
}
VALUES = {
    "lambda": "another",  # of a long queue a few are taken, of a short one all is counted
    "priority": 3,
    "max_messages": 10,
    "visibility": SECOND,
    "lambdas": ["someone's"],
    "priorities": [3],
}


def nodes(plan):
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize("rows", [0, 10])
async def test_plans_that_were_made_for_a_small_queue_find_messages_by_index_in_a_long_one(dsn, rows):
    with psycopg.connect(
        connection_string(dsn), autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as opened:
        fill = (
            "insert into queue_message (lambda, priority, reference_count, visible_at, body)"
            " select 'another', 3, 1, duly_now() - interval '1 s', '' from generate_series(1, %s)"
        )
        opened.execute("set plan_cache_mode = force_generic_plan")
        opened.execute(fill, [rows])
        opened.execute("vacuum (analyze) queue_message")
        executions = {}
        for name, (statement, _) in PLAN_OF.items():
            names = list(dict.fromkeys(re.findall(r"%\((\w+)\)b", statement)))
            text = re.sub(r"%\((\w+)\)b", lambda found: f"${names.index(found[1]) + 1}", statement)  # noqa: B023
            opened.execute(f"prepare {name} as {text}")
            marks = ", ".join(["%s"] * len(names))
            values = [VALUES[each] for each in names]
            executions[name] = psycopg.ClientCursor(opened).mogrify(f"execute {name}({marks})", values)
            opened.execute(executions[name])
        opened.execute(fill, [5_000])

        wrong = {}
        for name, (_, index) in PLAN_OF.items():
            (((explained,),),) = opened.execute(
                f"explain (analyze, format json) {executions[name]}"
            ).fetchall()
            plan = list(nodes(explained["Plan"]))
            touched = sum(
                node.get(counted, 0) * node["Actual Loops"]
                for node in plan
                for counted in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
            )
            if index not in {node.get("Index Name") for node in plan} or touched > 200:
                wrong[name] = explained
    assert wrong == {}


async def count(database):
    return (await (await database.execute("select count(*) from queue_message")).fetchone())[0]


async def test_a_stale_receipt_does_not_delete(installation, sender, receiver):
    sent = message()
    await sender.send([sent])
    stale = await receiver.receive(sent.queue, 1, SECOND)
    await installation.receive_after_visibility(receiver, sent.queue)

    await receiver.delete(stale)

    assert len(await installation.receive_after_visibility(receiver, sent.queue)) == 1


async def test_receivers_that_take_at_once_never_hold_the_same_message(installation, sender, receiver):
    sent = [message() for _ in range(60)]
    await sender.send(sent)
    hosts = [receiver, await installation.open_receiver(), await installation.open_receiver()]

    taken = await asyncio.gather(*(host.receive(queue_of(), 3, SECOND) for host in hosts for _ in range(5)))

    assert sorted(each.task_ids for received in taken for each in received) == sorted(
        each.task_ids for each in sent[:45]
    )


async def test_the_oldest_message_comes_first(sender, receiver):
    sent = [message() for _ in range(20)]
    await sender.send(sent[:10])
    await sender.send(sent[10:])

    received = await receiver.receive(queue_of(), 15, NO_WAIT)

    assert [each.task_ids for each in received] == [each.task_ids for each in sent[:15]]


async def test_a_foreign_body_is_deleted_and_the_message_behind_it_delivered(database, sender, receiver):
    sent = message()
    await insert(database, b"drop table task")
    await sender.send([sent])

    with capture_logs() as logs:
        received = await receiver.receive(sent.queue, 1, NO_WAIT)

    assert [each.task_ids for each in received] == [sent.task_ids]
    assert await count(database) == 1
    assert [log["event"] for log in logs] == ["foreign_message_dropped"]
    assert "drop table" not in str(logs)


async def test_a_notification_alone_wakes_a_waiting_receive(monkeypatch, installation, sender):
    monkeypatch.setattr(postgres_wakeups, "_LOOK_INTERVAL", 60.0)
    receiver = await installation.open_receiver()
    for _ in range(3):  # the first may be seen by the first look of all, the others may not
        polling = asyncio.create_task(receiver.receive(queue_of(), 1, 20 * SECOND))
        await sender.depth([queue_of()])

        await sender.send([message()])

        await receiver.delete(await asyncio.wait_for(polling, DEADLINE))


async def test_a_message_whose_notification_was_lost_is_found_by_looking(database, sender, receiver):
    polling = asyncio.create_task(receiver.receive(queue_of(), 1, 20 * SECOND))
    await sender.depth([queue_of()])

    await insert(database, b"duly1:" + bytes(16))

    assert len(await asyncio.wait_for(polling, DEADLINE)) == 1


async def test_a_message_whose_visibility_ends_during_a_poll_is_found(installation, sender, receiver):
    await sender.send([message()])
    await receiver.receive(queue_of(), 1, SECOND)
    polling = asyncio.create_task(receiver.receive(queue_of(), 1, 20 * SECOND))
    await sender.depth([queue_of()])

    await installation.clock.tick(installation.settings.visibility + SECOND)

    assert len(await asyncio.wait_for(polling, DEADLINE)) == 1


async def test_it_goes_on_after_all_its_connections_were_ended(database, sender, receiver):
    await sender.send([message()])
    await receiver.delete(await receiver.receive(queue_of(), 1, SECOND))
    await database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'duly queue' and datname = current_database()"
    )

    async def persist(attempt):
        while True:
            try:
                return await attempt()
            except QueueUnavailableError:
                continue

    async with asyncio.timeout(DEADLINE):
        await persist(lambda: sender.send([message()]))
        received = await persist(lambda: receiver.receive(queue_of(), 1, 20 * SECOND))

    assert len(received) == 1


async def test_a_waiting_receive_survives_the_loss_of_the_listener(database, sender, receiver):
    await receiver.receive(queue_of(), 1, NO_WAIT)
    polling = asyncio.create_task(receiver.receive(queue_of(), 1, 20 * SECOND))
    await sender.depth([queue_of()])
    await database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'"
    )

    await sender.send([message()])

    assert len(await asyncio.wait_for(polling, DEADLINE)) == 1


async def test_a_store_that_was_not_migrated_is_named_as_the_reason(database, sender, receiver):
    await database.execute("drop table queue_message")

    with pytest.raises(QueueUnavailableError, match="start a Frontend, Store Consumer or HSC first"):
        await sender.send([message()])
    with pytest.raises(QueueUnavailableError, match="start a Frontend, Store Consumer or HSC first"):
        await receiver.receive(queue_of(), 1, SECOND)


async def test_a_role_without_rights_is_named_as_the_reason(database, installation, stranger):
    dsn = make_conninfo(installation.dsn, options=f"-c role={stranger}")
    receiver = await replace(installation, dsn=dsn).open_receiver()

    with pytest.raises(QueueUnavailableError, match="permission denied"):
        await receiver.receive(queue_of(), 1, NO_WAIT)


async def test_the_queue_may_live_in_another_database_than_the_store(installation):
    elsewhere = QueueSettings(dsn=installation.dsn)
    sender = await replace(installation, settings=elsewhere, dsn="host=elsewhere.invalid").open_sender()

    assert await sender.send([message()]) == []


async def test_a_dsn_that_cannot_be_read_is_refused_without_repeating_its_password():
    with pytest.raises(SettingsError) as refusal:
        await open_sender(QueueSettings(dsn="postgresql//duly:secret@host"), "")

    assert "secret" not in str(refusal.value)


async def test_closing_leaves_no_connection_half_way():
    under_way, ended = set(), set()

    async def never_answer(reader, writer):
        under_way.add(writer)
        while await reader.read(1_000):
            pass
        ended.add(writer)
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        dsn = f"postgresql://duly@{host}:{port}/duly?connect_timeout=60"  # not by itself while we look
        receiver = await open_receiver(QueueSettings(backend="postgres"), dsn)
        await until(lambda: len(under_way) == 2)  # the pool's and the one that listens

        await receiver.close()

        await until(lambda: ended == under_way)
    assert len(ended) == 2


async def test_what_a_cancelled_receive_took_is_given_back_at_once(sender, receiver, monkeypatch):
    sent = message()
    await sender.send([sent])
    run = PostgresLink.run
    polling = []

    async def take_and_be_cancelled(link, statement, parameters, **options):
        rows = await run(link, statement, parameters, **options)
        if statement is RECEIVE and polling:
            polling.pop().cancel()
            await asyncio.sleep(0)
        return rows

    monkeypatch.setattr(PostgresLink, "run", take_and_be_cancelled)
    polling.append(asyncio.ensure_future(receiver.receive(sent.queue, 1, 20 * SECOND)))
    cancelled = polling[0]
    await asyncio.wait({cancelled}, timeout=DEADLINE)
    assert cancelled.cancelled()

    # long before its visibility ends
    assert [each.task_ids for each in await receiver.receive(sent.queue, 1, 5 * SECOND)] == [sent.task_ids]


async def test_a_statement_that_postgres_does_not_answer_is_given_up_in_time(line, monkeypatch):
    monkeypatch.setattr(postgres_link, "_ANSWER_WAIT", SECOND / 5)
    link = PostgresLink(line.dsn)
    await link.open()
    await link.run("select 1", {})
    line.freeze()

    # merely cancelled, it would take ten seconds more
    with pytest.raises(QueueUnavailableError, match="did not answer"):
        await asyncio.wait_for(link.run("select 1", {}), DEADLINE)

    await line.cut()
    await link.close()
