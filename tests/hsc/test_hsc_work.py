"""ClaimWork over the real wire: when it is answered, who gets what, and what becomes of answers that nobody gets."""

import asyncio
import os
from collections import Counter
from datetime import timedelta

import grpc
import pytest

import duly
from duly_core.config.live_sections import LiveHscSettings, LiveStoreConsumerSettings
from duly_core.errors import StoreUnavailableError
from duly_core.graphs import predecessors as graph_places
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.settings import StoreSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_core.tasks import schedule
from duly_core.tasks.polling import next_triggers
from duly_core.tasks.task import TOKEN_PREFIX_BYTES, NewTask
from duly_hsc.__main__ import build
from duly_hsc.work import due_check
from duly_wire.enums import EdgeCondition, Priority
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2
from tests.fixtures.failpoints import Failpoints
from tests.fixtures.graph_states import end, write_graph
from tests.fixtures.service_processes import until_health_is
from tests.fixtures.services import TIMING, refusal, serve_hsc
from tests.fixtures.task_states import LAMBDA, SECOND
from tests.fixtures.waiting import until

OTHER = "report.make"
DEADLINE = 20
NOBODY_POLLS = timedelta(minutes=2)


class Tuning:
    """The settings of triggering, which a test changes."""

    def __init__(self):
        self.set()

    def set(self, **settings):
        self._now = LiveStoreConsumerSettings(**{"poll_interval": NOBODY_POLLS} | settings)

    def __call__(self):
        return self._now


@pytest.fixture
def live_settings():
    return Tuning()


@pytest.fixture
async def hsc(store, task_states, live_settings):
    """An HSC that gets no notifications but the test's, and looks by itself once in two minutes."""
    async with serve_hsc(store, live_settings=live_settings) as served:
        yield served


@pytest.fixture
def points(tmp_path, monkeypatch):
    return Failpoints.in_this_process(tmp_path, monkeypatch)


def request(*lambdas, most=10, timeout=15 * SECOND, holder="host", prefix=None, lost=()):
    return hsc_pb2.ClaimWorkRequest(
        holder=holder,
        lambdas=lambdas or [LAMBDA],
        max_tasks=most,
        timeout=to_duration(timeout),
        token_prefix=os.urandom(TOKEN_PREFIX_BYTES) if prefix is None else prefix,
        lost_prefixes=lost,
    )


async def ask(hsc, *lambdas, **asked):
    response = await hsc.stub.ClaimWork(request(*lambdas, **asked), timeout=DEADLINE)
    return list(response.tasks)


def asking(hsc, *lambdas, **asked):
    return asyncio.ensure_future(ask(hsc, *lambdas, **asked))


async def waiting(hsc, callers=1):
    """Wait until so many calls wait, and nobody looks."""
    await until(lambda: hsc.work._waiting == callers and not hsc.work._running)


def ids(tasks):
    return [task.claim.task_id for task in tasks]


# ---- when it is answered -----------------------------------------------------------------------------------


async def test_what_is_due_is_claimed_at_once_under_the_callers_prefix(hsc, task_states):
    tasks = [await task_states.new(payload=b"%d" % number) for number in range(3)]
    asked = request(holder="executor-1")

    response = await hsc.stub.ClaimWork(asked, timeout=DEADLINE)

    assert {task.claim.task_id: task.payload for task in response.tasks} == {
        task.task_id: task.payload for task in tasks
    }
    numbers = [bytes([0, number]) for number in range(3)]
    assert sorted(task.claim.token for task in response.tasks) == [asked.token_prefix + n for n in numbers]
    assert {(task.attempt, task.fence) for task in response.tasks} == {(1, 1)}
    assert response.terms.claim_timeout.ToTimedelta() == TIMING.claim_timeout
    assert (await task_states.row(tasks[0].task_id))["holder"] == "executor-1"


async def test_a_call_waits_until_a_hint_says_that_something_is_due(hsc, task_states):
    answer = asking(hsc)
    await waiting(hsc)
    task = await task_states.new()
    assert not answer.done()

    hsc.work.note_due(timedelta(), {LAMBDA})

    assert ids(await answer) == [task.task_id]


async def test_the_answer_tells_how_long_the_call_waited_before_its_claims_were_made(hsc, task_states):
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    answer = asyncio.ensure_future(hsc.stub.ClaimWork(request(), timeout=DEADLINE))
    await waiting(hsc)
    await task_states.new()
    arrived_by = loop.time()
    await asyncio.wait({answer}, timeout=0.3)
    hsc.work.note_due(timedelta())
    hinted_at = loop.time()

    waited = (await answer).waited.ToTimedelta().total_seconds()

    assert hinted_at - arrived_by <= waited <= loop.time() - began_at


async def test_a_hint_of_what_is_due_in_a_moment_is_gone_by_then(hsc, task_states):
    answer = asking(hsc)
    await waiting(hsc)
    task = await task_states.new(delay=0.3 * SECOND)

    hsc.work.note_due(0.3 * SECOND, {LAMBDA})

    assert ids(await answer) == [task.task_id]


async def test_the_next_due_instant_is_known_from_the_last_look_and_needs_no_hint(hsc, task_states):
    task = await task_states.new(delay=0.5 * SECOND)

    assert ids(await ask(hsc)) == [task.task_id]


async def test_with_every_hint_lost_the_poll_interval_finds_what_is_due(hsc, task_states, live_settings):
    live_settings.set(poll_interval=0.3 * SECOND)
    answer = asking(hsc)
    await waiting(hsc)

    task = await task_states.new()

    assert ids(await answer) == [task.task_id]


async def test_sets_of_lambdas_that_have_nothing_due_cost_one_statement_together_an_interval(
    hsc, task_states, live_settings, points, monkeypatch
):
    asked = []

    async def recorded(store, queues, within):
        asked.append({queue.lambda_name for queue in queues})
        return await next_triggers(store, queues, within)

    monkeypatch.setattr(due_check, "next_triggers", recorded)
    names = [LAMBDA, OTHER, "third.run"]
    answers = [asking(hsc, name) for name in names]
    await waiting(hsc, 3)
    points.arm("hsc.claim_work.before", "delay 1ms")

    live_settings.set(poll_interval=0.05 * SECOND)
    hsc.work.settings_changed()
    # on a busy machine the calls began at different times, and come together only after a while
    await until(lambda: asked.count({*names}) > 3)
    together = asked[asked.index({*names}) :]
    looks = len(points.hits("hsc.claim_work.before"))
    task = await task_states.new()

    assert ids(await answers[0]) == [task.task_id]
    assert together == [{*names}] * len(together)
    assert looks == 0
    for answer in answers[1:]:
        answer.cancel()


async def test_more_queues_than_one_statement_takes_are_asked_for_in_parts(
    hsc, task_states, live_settings, monkeypatch
):
    sizes = []

    async def recorded(store, queues, within):
        sizes.append(len(queues))
        return await next_triggers(store, queues, within)

    monkeypatch.setattr(due_check, "next_triggers", recorded)
    monkeypatch.setattr(hsc.work._due_check, "_most_queues", 4)
    live_settings.set(poll_interval=0.1 * SECOND)
    answer = asking(hsc, "third.run", OTHER, LAMBDA)
    await waiting(hsc)
    await until(lambda: sum(sizes) >= 3 * len(Priority))

    task = await task_states.new()

    assert ids(await answer) == [task.task_id]
    assert max(sizes) == 4


async def test_where_the_store_does_not_say_whether_something_is_due_a_look_does(
    hsc, task_states, live_settings, monkeypatch
):
    async def unanswered(*_):
        raise StoreUnavailableError("Postgres is away")

    monkeypatch.setattr(due_check, "next_triggers", unanswered)
    live_settings.set(poll_interval=0.3 * SECOND)
    answer = asking(hsc)
    await waiting(hsc)

    task = await task_states.new()

    assert ids(await answer) == [task.task_id]


async def test_without_exactness_a_hint_changes_nothing_until_the_settings_do(
    hsc, task_states, live_settings
):
    live_settings.set(exact=False)
    answer = asking(hsc)
    await waiting(hsc)
    task = await task_states.new()
    hsc.work.note_due(timedelta(), {LAMBDA})
    assert not hsc.work._running

    live_settings.set(exact=True)
    hsc.work.settings_changed()

    assert ids(await answer) == [task.task_id]


async def test_a_call_that_finds_nothing_is_answered_with_nothing_when_its_time_is_over(hsc):
    assert await ask(hsc, timeout=0.05 * SECOND) == []
    assert await ask(hsc, timeout=timedelta()) == []


async def test_a_lambda_of_which_a_look_found_nothing_costs_no_second_look_before_its_time(
    hsc, task_states, points
):
    points.arm("hsc.claim_work.before", "delay 1ms")
    await ask(hsc, timeout=timedelta())
    looks = len(points.hits("hsc.claim_work.before"))
    for _ in range(5):
        await ask(hsc, timeout=timedelta())

    assert looks == len(points.hits("hsc.claim_work.before")) == 1


# ---- who gets what -----------------------------------------------------------------------------------------


async def test_hosts_that_wait_share_what_becomes_due(hsc, task_states):
    answers = [asking(hsc, holder=holder, most=4) for holder in ("one", "two")]
    await waiting(hsc, 2)
    for _ in range(4):
        await task_states.new()

    hsc.work.note_due(timedelta(), {LAMBDA})

    assert [len(tasks) for tasks in await asyncio.gather(*answers)] == [2, 2]


async def test_of_two_calls_of_one_host_one_is_answered_and_the_other_waits(hsc, task_states):
    answers = [asking(hsc) for _ in range(2)]
    await waiting(hsc, 2)
    await task_states.new()
    await task_states.new()

    hsc.work.note_due(timedelta(), {LAMBDA})

    done, pending = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert [len(answer.result()) for answer in done] == [2]
    await waiting(hsc, 1)
    hsc.work.close()
    assert [await answer for answer in pending] == [[]]


async def test_lambdas_take_turns(hsc, task_states):
    await task_states.register(OTHER)
    for name in (LAMBDA, OTHER):
        for _ in range(6):
            await task_states.new(lambda_name=name)

    tasks = await ask(hsc, LAMBDA, OTHER, most=4)

    assert Counter(getattr(task, "lambda") for task in tasks) == {LAMBDA: 2, OTHER: 2}


async def test_a_lambda_that_floods_delays_another_by_few_starts(hsc, task_states):
    await task_states.register(OTHER)
    for _ in range(300):
        await task_states.new()
    for _ in range(20):
        await task_states.new(lambda_name=OTHER)

    started = [getattr(task, "lambda") for _ in range(10) for task in await ask(hsc, LAMBDA, OTHER, most=10)]

    assert len(started) == 100
    assert [started[at : at + 10].count(OTHER) for at in range(0, 50, 10)] == [5, 5, 5, 5, 0]


async def test_lower_priorities_get_their_share_while_better_ones_wait(store, task_states):
    for priority, count in ((Priority.HIGH, 40), (Priority.LOW, 5)):
        for _ in range(count):
            await task_states.new(priority=priority)
    async with serve_hsc(store, low_priority_share=0.25) as hsc:
        priorities = [task.priority for _ in range(8) for task in await ask(hsc, most=4)]

    assert len(priorities) == 32
    assert priorities[:4] == [Priority.HIGH] * 4
    assert priorities.count(Priority.LOW) >= 4


async def test_a_changed_share_of_lower_priorities_holds_from_the_next_looks_on(store, task_states):
    for priority, count in ((Priority.HIGH, 80), (Priority.LOW, 40)):
        for _ in range(count):
            await task_states.new(priority=priority)
    now = LiveHscSettings(low_priority_share=0)
    async with serve_hsc(store, live_hsc=lambda: now) as hsc:
        before = [task.priority for _ in range(8) for task in await ask(hsc, most=4)]
        now = LiveHscSettings(low_priority_share=0.5)
        after = [task.priority for _ in range(8) for task in await ask(hsc, most=4)]

    assert before == [Priority.HIGH] * 32
    assert 12 <= after.count(Priority.LOW) <= 20


async def test_when_more_is_due_than_those_who_wait_here_take_other_hscs_are_told(hsc, task_states, dsn):
    told: asyncio.Queue = asyncio.Queue()
    listening, stop = asyncio.Event(), asyncio.Event()
    listener = Listener(
        StoreSettings(dsn=dsn), lambda ahead, lambdas: told.put_nowait((ahead, set(lambdas))), listening.set
    )
    running = asyncio.ensure_future(listener.run(stop))
    await listening.wait()
    for _ in range(3):
        await task_states.new()

    await ask(hsc, most=1)

    assert await asyncio.wait_for(told.get(), DEADLINE) == (timedelta(), {LAMBDA})
    stop.set()
    await running


# ---- answers that nobody gets ------------------------------------------------------------------------------


async def test_what_a_lost_reply_held_is_claimed_anew_and_no_more(hsc, task_states, points):
    first = [(await task_states.new()).task_id for _ in range(2)]
    points.arm("hsc.claim_work.after", "drop_reply once")
    prefix = os.urandom(TOKEN_PREFIX_BYTES)
    refused = await refusal(ask(hsc, prefix=prefix))
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    another = await task_states.new()

    anew = os.urandom(TOKEN_PREFIX_BYTES)
    tasks = await ask(hsc, prefix=anew, lost=[prefix])

    assert sorted(ids(tasks)) == sorted(first)
    assert {task.claim.token[:TOKEN_PREFIX_BYTES] for task in tasks} == {anew}
    assert await task_states.status(another.task_id) == "new"
    assert {(await task_states.row(task_id))["fence"] for task_id in first} == {1}


async def test_where_a_lost_reply_held_nothing_what_is_due_is_claimed(hsc, task_states):
    task = await task_states.new()

    tasks = await ask(hsc, lost=[os.urandom(TOKEN_PREFIX_BYTES)])

    assert ids(tasks) == [task.task_id]


async def test_a_look_that_failed_is_told_to_its_callers_and_the_next_one_finds_the_task(
    hsc, task_states, points
):
    task = await task_states.new()
    points.arm("hsc.claim_work.before", "raise once")

    assert (await refusal(ask(hsc))).code is grpc.StatusCode.UNAVAILABLE
    assert ids(await ask(hsc)) == [task.task_id]


async def test_what_was_claimed_for_a_caller_that_hung_up_meanwhile_is_handed_back_uncharged(
    hsc, task_states, points
):
    task = await task_states.new()
    points.arm("hsc.claim_work.after", "stop")
    call = hsc.stub.ClaimWork(request(), timeout=DEADLINE)
    await until(lambda: points.is_reached("hsc.claim_work.after"))
    assert await task_states.status(task.task_id) == "claimed"

    call.cancel()
    await until(lambda: hsc.work._waiting == 0)
    points.let_go("hsc.claim_work.after")
    await asyncio.wait_for(hsc.work.finish(), DEADLINE)

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["crashes"]) == ("new", 0, 0)


async def test_a_caller_that_hangs_up_while_it_waits_gets_nothing_claimed(hsc, task_states):
    call = hsc.stub.ClaimWork(request(), timeout=DEADLINE)
    await waiting(hsc)
    call.cancel()
    await waiting(hsc, 0)
    task = await task_states.new()

    hsc.work.note_due(timedelta(), {LAMBDA})

    assert not hsc.work._running
    assert await task_states.status(task.task_id) == "new"


async def test_a_host_that_stops_hands_back_what_it_was_never_told_of(hsc, task_states):
    tasks = [(await task_states.new()).task_id for _ in range(3)]
    prefix = os.urandom(TOKEN_PREFIX_BYTES)
    await ask(hsc, prefix=prefix)

    for _ in range(2):  # again: the first answer was lost as well
        response = await hsc.stub.Release(hsc_pb2.ReleaseRequest(token_prefixes=[prefix]), timeout=DEADLINE)
        assert list(response.verdicts) == []

    assert {await task_states.status(task_id) for task_id in tasks} == {"new"}
    hsc.work.note_due(timedelta())
    assert sorted(ids(await ask(hsc))) == sorted(tasks)


async def test_what_does_not_fit_into_an_answer_is_handed_back_and_comes_in_the_next_ones(
    store, task_states, live_settings
):
    tasks = [(await task_states.new(payload=b"x" * 3_000)).task_id for _ in range(4)]
    found = []
    async with serve_hsc(
        store, live_settings=live_settings, rpc=RpcSettings(max_message_bytes=10_000)
    ) as hsc:
        first = await ask(hsc)
        found += first
        while len(found) < len(tasks):
            found += await ask(hsc)

    assert len(first) == 1
    assert sorted(ids(found)) == sorted(tasks)
    assert {task.attempt for task in found} == {1}


async def test_an_hsc_that_stops_answers_those_who_wait(hsc, task_states):
    answers = [asking(hsc, holder=holder) for holder in ("one", "two")]
    await waiting(hsc, 2)

    hsc.work.close()

    assert await asyncio.gather(*answers) == [[], []]
    await task_states.new()
    assert await ask(hsc) == []


async def test_an_hsc_that_stops_while_it_claims_answers_with_the_claims(hsc, task_states, points):
    task = await task_states.new()
    points.arm("hsc.claim_work.after", "stop")
    answer = asking(hsc)
    await until(lambda: points.is_reached("hsc.claim_work.after"))

    hsc.work.close()
    points.let_go("hsc.claim_work.after")

    assert ids(await answer) == [task.task_id]


# ---- refusals ----------------------------------------------------------------------------------------------


async def test_a_bad_request_is_refused_by_its_field(hsc):
    for field, bad in [
        ("holder", {"holder": ""}),
        ("holder", {"holder": "x" * 129}),
        ("holder", {"holder": "nul\0"}),
        ("max_tasks", {"most": 0}),
        ("max_tasks", {"most": 2_001}),
        ("timeout", {"timeout": -SECOND}),
        ("timeout", {"timeout": 61 * SECOND}),
        ("token_prefix", {"prefix": b""}),
        ("token_prefix", {"prefix": b"x" * 13}),
        ("token_prefix", {"prefix": b"x" * 16}),
        ("lost_prefixes", {"lost": [b"x" * 13]}),
        ("lost_prefixes", {"lost": [b"x" * 14] * 1_001}),
    ]:
        refused = await refusal(ask(hsc, **bad))

        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_names_that_are_none_and_too_many_lambdas_are_refused(hsc):
    for names in [[], ["No Name"], [""], [f"many.n{number}" for number in range(2_001)]]:
        asked = request()
        del asked.lambdas[:]
        asked.lambdas.extend(names)

        refused = await refusal(hsc.stub.ClaimWork(asked))

        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "lambdas")


@pytest.mark.parametrize("prefixes", [[b"x" * 13], [b"x" * 14] * 1_001], ids=["short", "too many"])
async def test_prefixes_that_are_none_are_not_released(hsc, prefixes):
    refused = await refusal(hsc.stub.Release(hsc_pb2.ReleaseRequest(token_prefixes=prefixes)))

    assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, "token_prefixes")


# ---- the whole process -------------------------------------------------------------------------------------


class Process:
    """The HSC as its process wires it, in the test's loop."""

    def __init__(self, stub, notifications):
        self.stub = stub
        self.notifications = notifications


@pytest.fixture
async def process(dsn, task_states, tmp_path, monkeypatch):
    monkeypatch.setenv("DULY_STORE_DSN", dsn)
    monkeypatch.setenv("DULY_STORE_CONSUMER_POLL_INTERVAL", "2m")
    monkeypatch.setenv("DULY_RPC_SHUTDOWN_GRACE", "100ms")
    address = f"unix:{tmp_path}/hsc.sock"
    stop, notifications = asyncio.Event(), LocalNotifications()
    serving = asyncio.ensure_future(build(notifications, listen=address)(stop))
    channel = open_channel(address, RpcSettings())
    await until_health_is("SERVING", address)
    yield Process(hsc_stub(channel), notifications)
    await channel.close()
    stop.set()
    await serving


async def nothing_is_due(process):
    """Have it look, so that nothing but a notification makes it look again."""
    assert await ask(process, timeout=timedelta()) == []


async def test_a_hint_within_the_process_wakes_a_call(process, task_states, store):
    await nothing_is_due(process)
    answer = asking(process)
    await until(lambda: process.notifications.serves({LAMBDA}))
    task = await task_states.new()

    Notifier(store, process.notifications).due_in(timedelta(), {LAMBDA})

    assert ids(await answer) == [task.task_id]


async def test_a_hint_of_another_process_wakes_a_call(process, store):
    await nothing_is_due(process)
    answer = asking(process)
    await until(lambda: process.notifications.serves({LAMBDA}))
    task = NewTask(os.urandom(16), LAMBDA, b"1")

    await schedule.schedule(store, [task], tell=True)

    assert ids(await answer) == [task.task_id]


async def test_settings_that_an_operator_changes_hold_for_calls_that_wait(process, task_states, frontend):
    await nothing_is_due(process)
    answer = asking(process)
    await until(lambda: process.notifications.serves({LAMBDA}))
    task = await task_states.new()

    async with duly.AsyncClient(frontend.address) as client:
        await client.set_settings({"store_consumer.poll_interval": "100ms"})

    assert ids(await answer) == [task.task_id]


# ---- nodes of graphs ---------------------------------------------------------------------------------------


async def test_claims_are_handed_back_if_what_they_know_of_their_graph_cannot_be_read(
    hsc, store, task_states, monkeypatch
):
    await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})

    async def fails(*_):
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(graph_places, "graph_places", fails)
    answer = await refusal(ask(hsc))
    monkeypatch.undo()
    (task,) = await ask(hsc)

    assert answer.code is grpc.StatusCode.UNAVAILABLE
    assert (task.graph.label, task.attempt, task.fence) == ("a", 1, 2)


async def test_the_results_of_predecessors_count_for_the_size_of_an_answer(store, task_states):
    rpc = RpcSettings(max_message_bytes=200_000)
    async with serve_hsc(store, rpc=rpc) as hsc:
        graph = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}}, payload=b"p" * 90_000)
        await end(store, list((await graph.claim()).values()), result=b"r" * 150_000)

        response = await hsc.stub.ClaimWork(request(), timeout=DEADLINE)

    (task,) = response.tasks
    (before,) = task.graph.predecessors
    assert before.result_omitted
    assert response.ByteSize() <= rpc.max_message_bytes
