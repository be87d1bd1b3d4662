"""Turns at the store: tasks of one lambda are picked in turn by their fair keys, on both ways to a host."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.fairness.cursors import TurnCursors
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import NO_GATES, GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas.names import QueueKey
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask
from duly_core.tasks.turns import TurnGiver, find_fair_lambdas
from duly_store_consumer.turn_loop import TurnLoop
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import ask
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA

FAIR = {LAMBDA: False}
WEIGHTED = {LAMBDA: True}
QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
CALLER = [Caller("host", b"0" * 14)]


class Line:
    """The tasks of one lambda, and picks of one process."""

    def __init__(self, store, picks_by):
        self.store = store
        self.picks_by = picks_by
        self.cursors = TurnCursors()
        self.keys = {}

    async def add(self, *keys, **fields):
        """Schedule a task of each of these keys; '' is none."""
        tasks = [
            NewTask(
                **{
                    "task_id": new_task_id().bytes,
                    "lambda_name": LAMBDA,
                    "payload": b"{}",
                    "fair_key": key or None,
                }
                | fields
            )
            for key in keys
        ]
        self.keys |= {task.task_id: key for task, key in zip(tasks, keys, strict=True)}
        await schedule.schedule(self.store, tasks)

    async def pick(self, most, fair=FAIR, gates=NO_GATES):
        """Pick so many; return the keys, sorted."""
        if self.picks_by == "claim_work":
            picks = [Pick(QUEUE, most, 0)]
            found = await claims.claim_work(
                self.store, picks, CALLER, most, CLAIM_TIMEOUT, gates, fair=fair, cursors=self.cursors
            )
            tasks = found.tasks
        else:
            tasks = await polling.enqueue(
                self.store, {QUEUE: most}, ENQUEUE_TIMEOUT, gates, fair=fair, cursors=self.cursors
            )
        return sorted(self.keys[task.task_id] for task in tasks)

    async def weigh(self, **weights):
        async with self.store.connection() as connection:
            for key, weight in weights.items():
                await connection.execute(
                    b"insert into fair_weight values (%s, %s, %s, now())", [LAMBDA, key, weight]
                )


@pytest.fixture(params=["claim_work", "enqueue"])
async def line(store, task_states, request):
    await task_states.register()
    return Line(store, request.param)


async def test_keys_take_turns_in_one_pick_and_from_pick_to_pick(line):
    await line.add(*"aaaaaa", *"bbb", "c")

    first = await line.pick(4)
    single = [(await line.pick(1))[0] for _ in range(6)]

    assert first == ["a", "a", "b", "c"]
    assert Counter(first + single) == Counter(a=6, b=3, c=1)
    assert single[:4] == ["b", "a", "b", "a"]


async def test_a_key_behind_a_flood_is_in_the_next_pick(line):
    for _ in range(10):
        await line.add(*"a" * 1000)
    await line.pick(50)
    await line.add("b")

    assert "b" in await line.pick(2)


async def test_a_room_that_turns_do_not_fill_is_filled(line):
    await line.add(*"a" * 100, *[f"k{number}" for number in range(20)])
    await line.weigh(a=2)

    assert len(await line.pick(110, WEIGHTED)) == 110
    assert len(await line.pick(110, WEIGHTED)) == 10


async def test_keys_with_much_share_what_many_keys_with_little_leave(line):
    await line.add(*"a" * 60, *"b" * 60, *[f"k{number}" for number in range(9)] * 2)

    picked = Counter(await line.pick(60))

    assert picked == Counter(a=21, b=21) + Counter({f"k{number}": 2 for number in range(9)})


async def test_a_key_has_as_many_tasks_in_its_turn_as_its_weight_says(line):
    await line.add(*"a" * 30, *"b" * 30, *"c" * 30)
    await line.weigh(a=3, b=2)

    turns = [(await line.pick(1, WEIGHTED))[0] for _ in range(12)]
    many = await line.pick(24, WEIGHTED)

    assert "".join(turns) == "aaabbcaaabbc"
    assert Counter(many) == Counter(a=12, b=8, c=4)


async def test_tasks_that_are_due_later_have_no_turn_and_hold_up_no_other(line):
    await line.add(*[f"later{number:04}" for number in range(500)], delay=timedelta(hours=1))
    await line.add(*"a" * 100, "z")

    picked = [key for _ in range(15) for key in await line.pick(4)]

    assert "z" in picked
    assert len(picked) == 60


async def test_a_key_whose_tasks_expired_gives_its_turn_to_the_next(line, clock):
    await line.add("a", expires_at=datetime.now(UTC) + timedelta(minutes=1))
    await line.add("b", "c")
    await clock.tick(timedelta(minutes=2))

    assert await line.pick(3) == ["b", "c"]


async def test_better_priorities_go_first_and_have_turns_of_their_own(line):
    await line.add(*"aaab")
    await line.add(*"aab", priority=Priority.HIGH)
    high = QueueKey(LAMBDA, Priority.HIGH)
    picks = [Pick(high, 3, 0), Pick(QUEUE, 2, 0)]

    found = await claims.claim_work(
        line.store, picks, CALLER, 5, CLAIM_TIMEOUT, fair=FAIR, cursors=line.cursors
    )

    by_priority = Counter((task.priority, line.keys[task.task_id]) for task in found.tasks)
    assert by_priority == {(2, "a"): 2, (2, "b"): 1, (3, "a"): 1, (3, "b"): 1}


async def test_two_picks_of_one_look_take_what_one_would(line):
    await line.add(*"aaaaaa", *"bbb", "c")
    picks = [Pick(QUEUE, 2, 0), Pick(QUEUE, 10, 2)]

    found = await claims.claim_work(
        line.store, picks, CALLER, 10, CLAIM_TIMEOUT, fair=FAIR, cursors=line.cursors
    )

    assert len({task.task_id for task in found.tasks}) == 10


async def test_what_another_server_picks_is_passed_over(line, dsn):
    await line.add(*"aaa", *"bbb")
    async with line.store.connection() as connection, connection.transaction():
        await connection.execute(b"select from task_assoc where fair_key = 'b' for update")

        assert await line.pick(10) == ["a", "a", "a"]

    assert await line.pick(10) == ["b", "b", "b"]


async def test_servers_that_look_at_the_same_time_go_round_by_themselves(store, task_states):
    await task_states.register()
    keys = [f"k{number:03}" for number in range(100)]
    one, two = Line(store, "claim_work"), Line(store, "claim_work")
    for _ in range(5):
        await one.add(*keys)
    two.keys = one.keys

    picked = [key for _ in range(10) for line in (one, two) for key in await line.pick(10)]

    assert Counter(picked) == dict.fromkeys(keys, 2)


async def test_what_gates_hold_has_no_turn(line, store):
    await line.add(*"a" * 5, collection="held")
    await line.add(*"aaabbb")
    cache = GateCache(store)
    await whole.put_gate(
        store, NewGate("held", Kind.PAUSE, GateScope(LAMBDA, collection="held"), None, "", "", None)
    )

    gates = await cache.known()

    assert await line.pick(2, gates=gates) == ["a", "b"]
    assert await line.pick(10, gates=gates) == ["a", "a", "b", "b"]


async def test_lambdas_with_fair_keys_are_found_once(store, task_states):
    await task_states.register()
    await task_states.register("report.make")
    await task_states.new()
    assert await find_fair_lambdas(store) == []
    await task_states.new(fair_key="ada")
    await task_states.new(lambda_name="report.make", fair_key="ada", delay=timedelta(hours=1))
    cache = GateCache(store)
    await cache.run_once()

    found = [await find_fair_lambdas(store), await find_fair_lambdas(store)]
    await cache.run_once()

    assert found == [[LAMBDA, "report.make"], []]
    assert cache.fair == {LAMBDA: False, "report.make": False}


async def test_tasks_without_a_key_take_turns_as_one_key(line):
    await line.add(*[""] * 3)
    await line.add(*"a" * 1500)
    await line.add(*[""] * 3)
    giver = TurnGiver(line.store)

    while await giver.run_once([LAMBDA]):
        pass

    assert await line.pick(4) == ["", "", "a", "a"]
    assert await line.pick(8) == [""] * 4 + ["a"] * 4


async def test_what_waits_for_long_is_not_read_in_each_round(store, task_states, clock, dsn):
    await task_states.register()
    line = Line(store, "claim_work")
    await line.add(*[""] * 1500)
    await clock.tick(timedelta(minutes=1))
    giver = TurnGiver(store)
    while await giver.run_once([LAMBDA]):
        pass

    was_more = await giver.run_once([LAMBDA])
    await line.add("")
    await giver.run_once([LAMBDA])

    assert not was_more
    assert ask(dsn, "select count(*) from task_assoc where fair_key is null") == [(0,)]


async def test_the_store_consumer_lets_keys_take_turns(line):
    await line.add(*"aaa", "", "b")
    cache = GateCache(line.store)
    await cache.run_once()
    loop = TurnLoop(line.store, cache)

    await loop.run_once()
    await cache.run_once()
    await loop.run_once()

    assert await line.pick(3, cache.fair) == ["", "a", "b"]
