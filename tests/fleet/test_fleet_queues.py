"""Queues: live tasks counted by lambda, priority and status; estimates where there are many."""

import asyncio
import json
import re
from datetime import timedelta

import psycopg
import pytest

import duly
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.counting import queues as queue_counts
from duly_core.counting.queues import Count, CountLimits, count_queues, recount
from duly_core.errors import StoreUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_frontend.fleet import queue_lists
from duly_frontend.fleet.queue_lists import list_queues
from duly_frontend.fleet.queue_request import read_request
from duly_frontend.fleet.queue_snapshots import QueueSnapshots
from duly_wire.enums import Priority
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc
from tests.access.test_access import give_token, headers, operator
from tests.fixtures.services import refusal, serve_frontend
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import a_report

HOUR = timedelta(hours=1)


@pytest.fixture
def fleet(frontend):
    return fleet_pb2_grpc.FleetServiceStub(frontend.channel)


@pytest.fixture
def fill(dsn):
    """Write live tasks that are due, by SQL; they have no payload."""

    def write(name, count, *, priority=3, status="new", due="now() - interval '1 minute'"):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                """
                with made as (
                    insert into task (task_id, lambda, priority, created_at, scheduled_at)
                    select gen_random_uuid(), %s, %s, now(), now() from generate_series(1, %s) returning *
                )
                insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at, parked_on, parked_key, resources)
                select task_id, lambda, '', priority, %s, DUE, now(), case when %s = 'waiting' then 'db' end,
                    case when %s = 'waiting' then '' end, case when %s = 'waiting' then '[{"name": "db", "key": "", "weight": 1}]'::jsonb end
                from made
                """.replace("DUE", due).encode(),
                (name, priority, count, status, status, status, status),
            )

    return write


async def listed(client, *arguments, **options):
    return [each async for each in client.queues(*arguments, **options)]


async def test_live_tasks_are_counted_by_status(client, task_states, fleet):
    await fleet.ReportHost(a_report(lambdas=(LAMBDA,)))
    await task_states.processing()
    await task_states.claimed()
    await task_states.enqueued()
    await client.put_resource("database", 0)
    await task_states.new()
    await task_states.new(priority=Priority.HIGH)
    await client.schedule(LAMBDA, delay=HOUR)

    high, normal = await listed(client, [LAMBDA], include_rates=True)

    assert (high.lambda_name, high.priority, high.ready) == (LAMBDA, duly.Priority.HIGH, duly.TaskCount(1))
    numbers = [
        getattr(normal, name).count
        for name in ("ready", "scheduled", "backing_off", "waiting", "enqueued", "claimed", "processing")
    ]
    assert numbers == [1, 1, 0, 0, 1, 1, 1]
    assert normal.live == duly.TaskCount(5)
    assert normal.hosts == 1
    assert timedelta(minutes=50) < normal.next_due_at - normal.counted_at < HOUR
    assert normal.oldest_ready_at <= normal.counted_at
    assert normal.oldest_claim_at <= normal.counted_at
    assert (normal.recently_scheduled.count, high.recently_scheduled.count) == (5, 1)


async def test_tasks_that_wait_for_others_and_for_their_next_attempt_are_counted(store, fill, client):
    fill("a", 3, status="waiting", due="'infinity'")
    fill("a", 2, status="retriable_failure", due="now() + interval '1 hour'")
    fill("a", 1, status="retriable_failure")

    (queue,) = await listed(client)

    assert (queue.waiting.count, queue.backing_off.count, queue.ready.count) == (3, 2, 1)


async def test_queues_are_ordered_by_backlog_age_or_name_and_paged(fill, client):
    fill("b", 2, due="now() - interval '1 hour'")
    fill("a", 9)
    fill("c", 5, due="now() - interval '2 hours'")
    fill("d", 5, due="now() + interval '2 hours'")

    async def names(order=None, **options):
        return [each.lambda_name for each in await listed(client, order=order, page_size=1, **options)]

    assert await names() == ["a", "b", "c", "d"]
    assert await names(duly.QueueOrder.BACKLOG) == ["a", "c", "b", "d"]
    assert await names(duly.QueueOrder.AGE) == ["c", "b", "a", "d"]


async def test_patterns_and_priorities_choose_queues_and_empty_ones_are_shown_when_asked_for(
    client, task_states, fill
):
    for name in ("mail.read", "shop/mail.read", "mailer"):
        await task_states.register(name)
    fill("mail.read", 1, priority=1)

    async def names(*patterns, **options):
        found = await listed(client, patterns, include_empty=True, **options)
        return [(each.lambda_name, each.priority.name) for each in found]

    only = {"priorities": [duly.Priority.URGENT]}
    assert await names("mail.*", **only) == [("mail.read", "URGENT"), ("mail.send", "URGENT")]
    assert await names("*mail*read", "mailer", **only) == [
        ("mail.read", "URGENT"),
        ("mailer", "URGENT"),
        ("shop/mail.read", "URGENT"),
    ]
    assert len(await names("mail.read")) == 4
    assert [each.lambda_name for each in await listed(client)] == ["mail.read"]


async def test_a_pattern_of_many_asterisks_is_matched_in_no_time(client, task_states):
    await task_states.register("a" * 100)

    found = await asyncio.wait_for(listed(client, ["*a" * 100 + "*b"], include_empty=True), 5)

    assert found == []


async def test_a_request_that_is_out_of_bounds_is_refused(fleet):
    for fields, field in [
        ({"lambdas": ["No Name"]}, "lambdas[0]"),
        ({"lambdas": ["mail(*"]}, "lambdas[0]"),
        ({"lambdas": ["a"] * 101}, "lambdas"),
        ({"priorities": [9]}, "priorities"),
        ({"order": 9}, "order"),
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "bm90IGEgdG9rZW4="}, "page_token"),
    ]:
        refused = await refusal(fleet.ListQueues(fleet_pb2.ListQueuesRequest(**fields)))

        assert refused.field == field


async def test_beyond_a_limit_a_small_table_is_read_whole_and_counts_stay_exact(store, fill):
    fill("a", 300)
    fill("b", 50, due="now() + interval '1 hour'")
    fill("b", 70, status="waiting", due="'infinity'")
    fill("c", 60, status="enqueued", due="now() + interval '1 hour'")

    snapshot = await count_queues(store, CountLimits(pending=40, queue=40, others=40))

    assert {str(key): dict(each.counts) for key, each in snapshot.queues.items()} == {
        "a/normal": {"ready": Count(300)},
        "b/normal": {"scheduled": Count(50), "waiting": Count(70)},
        "c/normal": {"enqueued": Count(60)},
    }


async def test_a_sample_of_a_large_table_estimates_what_is_beyond_the_limits_and_says_so(store, fill):
    fill("big", 20_000)
    fill("later", 20_000, due="now() + interval '1 hour'")
    fill("small", 5)
    limits = CountLimits(pending=3_000, queue=1_000, others=100, pages=200)

    snapshot = await count_queues(store, limits)

    def count(name, kind):
        return snapshot.queues[QueueKey(name, Priority.NORMAL)].count(kind)

    assert count("small", "ready") == Count(5)
    for name, kind in (("big", "ready"), ("later", "scheduled")):
        number, is_estimated = count(name, kind)
        assert is_estimated
        assert 8_000 < number < 40_000
    assert count("later", "ready") == Count(0)


async def test_a_page_of_queues_is_counted_further_than_all_of_them(store, fill):
    for number in range(30):
        fill(f"lambda.{number}", 40)
    snapshot = await count_queues(store, CountLimits(pending=300, queue=1_000, pages=1))
    key = QueueKey("lambda.7", Priority.NORMAL)

    counted = await recount(store, snapshot, [key])

    assert snapshot.queues[key].count("ready").is_estimated
    assert counted[key].count("ready") == Count(40)
    assert counted[key].cut == frozenset()


async def test_retries_and_what_is_scheduled_for_later_are_told_apart_on_a_page_of_long_queues(store, fill):
    for name, first, second in (("long", 300, 200), ("short", 3, 2)):
        fill(name, first, status="retriable_failure", due="now() + interval '1 hour'")
        fill(name, second, due="now() + interval '2 hours'")
    limits = CountLimits(pending=1_000, queue=50, pages=1)
    snapshot = await count_queues(store, limits)
    long, short = (QueueKey(name, Priority.NORMAL) for name in ("long", "short"))

    counted = await recount(store, snapshot, [long, short])

    assert snapshot.queues[long].cut >= {"scheduled", "backing_off"}
    assert dict(snapshot.queues[short].counts) == {"scheduled": Count(2), "backing_off": Count(3)}
    assert dict(counted[long].counts) == {"scheduled": Count(200), "backing_off": Count(300)}
    assert counted[short] == snapshot.queues[short]


async def test_pages_of_one_list_and_of_others_have_each_queue_once(client, fill, task_states):
    names = [f"lambda.{number:02}" for number in range(12)]
    for place, name in enumerate(names):
        fill(name, 1 + place % 5)
    await task_states.register("idle")

    by_backlog = await listed(client, order=duly.QueueOrder.BACKLOG, page_size=5)
    in_one_page = await listed(client, order=duly.QueueOrder.BACKLOG)
    some = await listed(client, [names[3], names[3], "idle", "lambda.1*"], page_size=2)
    named = await listed(client, [names[3], names[5], "idle"], page_size=1)
    with_empty = await listed(client, ["idle", names[3]], include_empty=True, page_size=3)

    assert [each.lambda_name for each in by_backlog] == [each.lambda_name for each in in_one_page]
    assert sorted(each.lambda_name for each in by_backlog) == names
    assert [each.ready.count for each in by_backlog] == sorted((1 + n % 5 for n in range(12)), reverse=True)
    assert [each.lambda_name for each in some] == [names[3], names[10], names[11]]
    assert [each.lambda_name for each in named] == [names[3], names[5]]
    assert [each.lambda_name for each in with_empty] == ["idle"] * 4 + [names[3]]


async def count_thirty_long_queues(store, fill):
    """Count queues of forty due tasks up to ten of each; the limits, the count and the queues."""
    keys = [QueueKey(f"lambda.{number:02}", Priority.NORMAL) for number in range(30)]
    for key in keys:
        fill(key.lambda_name, 40)
    limits = CountLimits(pending=300, queue=1_000, pages=1)
    return limits, await count_queues(store, limits), keys


async def test_a_page_that_was_counted_further_is_not_counted_again_while_its_snapshot_is_kept(store, fill):
    limits, snapshot, keys = await count_thirty_long_queues(store, fill)
    for_fifteen = await recount(store, snapshot, keys[:15], limits)

    fill(keys[0].lambda_name, 5)

    assert await recount(store, snapshot, keys[:15], limits) == for_fifteen
    assert for_fifteen[keys[0]].cut
    # of fewer queues more can be counted, and is
    further = await recount(store, snapshot, keys[:1], limits)
    assert further[keys[0]].count("ready") == Count(45)
    assert (await recount(store, snapshot, keys[:15], limits))[keys[0]].count("ready") == Count(45)


async def test_two_who_count_a_page_further_at_once_keep_the_deeper_count(store, fill):
    limits, snapshot, keys = await count_thirty_long_queues(store, fill)

    both = await asyncio.gather(
        recount(store, snapshot, keys[:1], limits), recount(store, snapshot, keys, limits)
    )

    assert snapshot.recounted[keys[0]][1].count("ready") == Count(40)
    assert both[0][keys[0]].count("ready") == Count(40)
    assert all(both[1][key].cut for key in keys[1:])


class CountingLoans(Store):
    """Counts how often a connection is lent."""

    loans = 0

    def connection(self):
        self.loans += 1
        return super().connection()


async def test_a_count_holds_no_connection_from_one_statement_to_the_next(dsn, task_states, fill):
    for number in range(30):
        fill(f"lambda.{number}", 40)
    limits = CountLimits(pending=300, queue=1_000, pages=1)
    async with CountingLoans(StoreSettings(dsn=dsn)) as store:
        snapshot = await count_queues(store, limits)
        for_all = store.loans
        counted = await recount(store, snapshot, list(snapshot.queues), limits)

    assert len(counted) == 30
    # which queues there are, what is pending, what is taken, what waits, and a sample
    assert (for_all, store.loans) == (5, 6)


async def test_a_count_goes_on_when_who_asked_first_no_longer_waits(store, fill, monkeypatch):
    fill("a", 1)
    began, may_end, counts = asyncio.Event(), asyncio.Event(), []

    async def count(store):
        counts.append(store)
        began.set()
        await may_end.wait()
        return await queue_counts.count_queues(store)

    monkeypatch.setattr("duly_frontend.fleet.queue_snapshots.count_queues", count)
    snapshots = QueueSnapshots()
    first = asyncio.ensure_future(snapshots.get(store))
    await asyncio.wait_for(began.wait(), 10)
    first.cancel()
    second = asyncio.ensure_future(snapshots.get(store))
    may_end.set()

    found = await asyncio.wait_for(second, 10)

    assert first.cancelled()
    assert [str(key) for key in found.queues] == ["a/normal"]
    assert len(counts) == 1
    snapshots.close()


async def test_who_waits_for_a_count_when_the_frontend_stops_is_told_so(store, monkeypatch):
    began = asyncio.Event()

    async def count(_store):
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("duly_frontend.fleet.queue_snapshots.count_queues", count)
    snapshots = QueueSnapshots()
    waiting = [asyncio.ensure_future(snapshots.get(store)) for _ in range(2)]
    await asyncio.wait_for(began.wait(), 10)

    snapshots.close()
    told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)

    assert [str(each) for each in told] == ["this server stops"] * 2
    with pytest.raises(StoreUnavailableError, match="this server stops"):
        await snapshots.get(store)


async def test_a_list_that_is_kept_for_one_caller_is_not_shown_to_another_who_may_see_less(store, fill):
    fill("bill.pay", 2)
    fill("mail.send", 1)
    await operator(store)
    await give_token(store, "duly_b_x", "bob")
    await access.add_grants(store, [Grant("bob", Role.OWNER, "mail.*")])
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        stub = fleet_pb2_grpc.FleetServiceStub(served.channel)

        async def names(*token):
            answer = await stub.ListQueues(fleet_pb2.ListQueuesRequest(), metadata=headers(*token))
            return [getattr(each, "lambda") for each in answer.queues], answer.total_queues

        seen = [await names(), await names("duly_b_x"), await names()]

    everything = (["bill.pay", "mail.send"], 2)
    assert seen == [everything, (["mail.send"], 1), everything]


async def test_a_list_is_sorted_once_for_all_who_waited_for_a_count(store, fill, monkeypatch):
    fill("a", 1)
    fill("b", 2)
    sorted_lists = []

    def in_order(*arguments):
        sorted_lists.append(arguments)
        return original(*arguments)

    original = queue_lists._in_order
    monkeypatch.setattr(queue_lists, "_in_order", in_order)
    snapshot = await count_queues(store)
    query = read_request(fleet_pb2.ListQueuesRequest())

    answers = await asyncio.gather(*(list_queues(store, snapshot, query) for _ in range(10)))
    for order in fleet_pb2.QueueOrder.values():
        for name in ("a", "b"):
            request = fleet_pb2.ListQueuesRequest(lambdas=[name], order=order)
            await list_queues(store, snapshot, read_request(request))

    assert {len(each.queues) for each in answers} == {2}
    assert len(sorted_lists) == 1 + 2 * len(fleet_pb2.QueueOrder.values())
    assert len(snapshot.lists) == 4


async def test_a_count_that_failed_is_not_kept(store, fill, monkeypatch):
    fill("a", 1)
    outcomes = iter([StoreUnavailableError("away"), None])

    async def count(store):
        if error := next(outcomes):
            raise error
        return await queue_counts.count_queues(store)

    monkeypatch.setattr("duly_frontend.fleet.queue_snapshots.count_queues", count)
    snapshots = QueueSnapshots()

    with pytest.raises(StoreUnavailableError):
        await snapshots.get(store)

    assert len((await snapshots.get(store)).queues) == 1
    snapshots.close()


async def test_who_watches_together_shares_one_count(frontend, client, fill, monkeypatch):
    fill("a", 1)
    counted = []

    async def count(store):
        counted.append(store)
        return await queue_counts.count_queues(store)

    monkeypatch.setattr("duly_frontend.fleet.queue_snapshots.count_queues", count)

    answers = await asyncio.gather(*(listed(client) for _ in range(5)))

    assert len(counted) == 1
    assert {len(each) for each in answers} == {1}


async def test_queues_are_shown_on_the_command_line(run_duly, fill):
    fill("mail.send", 3)
    fill("report.make", 7, priority=1)

    shown = (await run_duly("queues")).stdout.splitlines()
    as_json = (await run_duly("queues", "mail.*", "--json")).stdout

    assert re.split(" {2,}", shown[0]) == [
        *("PRIORITY", "READY", "FOR", "SCHEDULED", "BACKING OFF", "WAITING", "HELD", "HOSTS", "LAMBDA")
    ]
    assert [line.split()[-1] for line in shown[1:]] == ["report.make", "mail.send"]
    told = json.loads(as_json)
    assert (told["lambda"], told["ready"], told["live"]["count"]) == (
        "mail.send",
        {"count": 3, "estimated": False},
        3,
    )
