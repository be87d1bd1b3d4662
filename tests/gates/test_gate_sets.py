"""Picks beside any gates take exactly what no gate holds: Postgres decides as the rule without I/O does (duly_core.gates.rules)."""

import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly_core.gates.rules import Gate, GateScope, GateSet, Kind
from duly_core.gates.scans import WINDOW, GateScans
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask, Session
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT

LAMBDAS = ("shop.cart", "shop.pay", "report.make", "report.send")
COLLECTIONS = ("red", "blue", "")
PRIORITIES = (Priority.HIGH, Priority.LOW)
QUEUES = [QueueKey(name, priority) for name in LAMBDAS for priority in PRIORITIES]
EARLY = datetime.now(UTC) - timedelta(hours=2)
HALF_OPEN = EARLY + timedelta(minutes=30)
"""By then the probes of a half-open breaker are due."""
LATE = EARLY + timedelta(hours=1)
OF_THE_BREAKER = 100
FRONT = GateScope("*", collection="front")
LONGER_THAN_A_PICK_READS = WINDOW + 50
FILL_THE_FRONT = """
with made as (
    insert into task (task_id, lambda, collection, priority, payload, created_at, scheduled_at)
    select gen_random_uuid(), queue.lambda, %(collection)s, queue.priority, '', now(), now()
    from unnest(%(lambdas)s::text[], %(priorities)s::int2[]) as queue (lambda, priority)
    cross join generate_series(1, %(count)s)
    returning task_id, lambda, collection, priority
)
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at)
select task_id, lambda, collection, priority, 'new', due_at, due_at
from made cross join (select %(before)s::timestamptz - interval '1 hour') as front (due_at)
"""
TAKE_BACK = """
update task_assoc set status = 'new', next_trigger_at = due_at, token = null, holder = null, claimed_at = null
where status <> 'new'
"""


@dataclass(frozen=True)
class DueTask:
    """What gates and picks go by."""

    lambda_name: str
    collection: str
    priority: Priority
    session: str | None
    due_at: datetime
    passed_gates: tuple[int, ...]

    def is_held(self, gates):
        """Whether it is, by the rule; a half-open breaker holds also what is due after its probes."""
        probes_until = [each.probes_until for each in gates.of(self.lambda_name).of_rows if each.probes_until]
        session = self.session and str(SessionId("", self.session))
        return any(self.due_at > each for each in probes_until) or bool(
            gates.holding(self.lambda_name, self.priority, self.collection, session, self.passed_gates)
        )


@pytest.fixture
async def due_tasks(store, task_states):
    """Tasks of each kind, by id: early and late, with a session and without, and such as passed the breaker."""
    kinds = [
        DueTask(name, collection, priority, session, due_at, passed)
        for name in LAMBDAS
        for collection in COLLECTIONS
        for priority in PRIORITIES
        for due_at in (EARLY, LATE)
        for session, passed in (
            (
                f"{name} {collection} {priority} {due_at:%H}",
                (),
            ),  # its one task, so that none waits for its turn
            (None, ()),
            (None, (OF_THE_BREAKER,)),
        )
    ]
    for name in LAMBDAS:
        await task_states.register(name)
    found = {new_task_id().bytes: each for each in kinds}
    await schedule.schedule(
        store,
        [
            NewTask(
                task_id,
                each.lambda_name,
                b"{}",
                priority=each.priority,
                collection=each.collection,
                session=Session(each.session) if each.session else None,
            )
            for task_id, each in found.items()
        ],
    )
    async with store.connection() as connection:
        for task_id, each in found.items():
            await connection.execute(
                "update task_assoc set due_at = %s, next_trigger_at = %s, passed_gates = %s where task_id = %s",
                (each.due_at, each.due_at, list(each.passed_gates) or None, UUID(bytes=task_id)),
            )
    return found


def a_gate(number, scope, **fields):
    return Gate(number, f"gate-{number}", Kind.PAUSE, scope, None, "ann", "", EARLY, None, **fields)


def any_gates(chance):
    """Some gates that hold parts of queues, perhaps with a breaker that is half open."""
    sessions = [f"{queue.lambda_name} red {queue.priority} {EARLY:%H}" for queue in QUEUES]
    gates = []
    for number in range(1, chance.randint(2, 7)):
        scope = GateScope(
            chance.choice([*LAMBDAS, "shop.*", "report.*", "*"]),
            chance.choice([None, *COLLECTIONS]),
            chance.choice([None, *PRIORITIES]),
            chance.choice([None, None, *sessions]),
        )
        if not (gate := a_gate(number, scope)).holds_queues:
            gates.append(gate)
    if chance.random() < 0.5:
        gates.append(a_gate(OF_THE_BREAKER, GateScope(chance.choice(LAMBDAS)), probes_until=HALF_OPEN))
    return gates


async def claim(store, gates, scans, most):
    """One look of an HSC at all queues: what it took, and whether there may be more."""
    picks = [Pick(queue, most, 0) for queue in QUEUES]
    caller = Caller("host", os.urandom(14))
    work = await claims.claim_work(store, picks, [caller], most, CLAIM_TIMEOUT, gates, scans)
    return {task.task_id for task in work.tasks}, bool(work.unread)


async def enqueue(store, gates, scans, most):
    """One poll of a Store Consumer."""
    due = await polling.enqueue(store, dict.fromkeys(QUEUES, most), ENQUEUE_TIMEOUT, gates, scans)
    return {task.task_id for task in due}, any(scans.has_more(queue) for queue in QUEUES)


async def test_looks_at_other_lambdas_under_the_same_gates_go_by_the_gates_of_these(store, due_tasks):
    """A worker's set of lambdas is not another's; what is kept of gates is kept for each set."""
    red, blue = (
        a_gate(number, GateScope(pattern, collection=collection))
        for number, (pattern, collection) in enumerate([("shop.*", "red"), ("report.*", "blue")], 1)
    )
    gates, scans, taken = GateSet([red, blue]), GateScans(), set()
    sets = [LAMBDAS[:2], LAMBDAS[2:], LAMBDAS[:2], *([name] for name in LAMBDAS), LAMBDAS[1:3], LAMBDAS[1:]]
    sets += [LAMBDAS[:3], LAMBDAS[::2], LAMBDAS]

    for lambdas in sets:
        picks = [Pick(QueueKey(name, priority), 5, 0) for name in lambdas for priority in PRIORITIES]
        caller = Caller("host", os.urandom(14))
        work = await claims.claim_work(store, picks, [caller], 1_000, CLAIM_TIMEOUT, gates, scans)
        taken |= {task.task_id for task in work.tasks}

    assert taken
    assert not [each for each in taken if due_tasks[each].is_held(gates)]


@pytest.mark.parametrize("take", [claim, enqueue])
@pytest.mark.parametrize(
    ("most", "front", "rounds"),
    [
        pytest.param(1_000, 0, 25, id="at once"),
        pytest.param(3, LONGER_THAN_A_PICK_READS, 6, id="behind many"),
        pytest.param(3, LONGER_THAN_A_PICK_READS, 40, id="behind many, more gates", marks=pytest.mark.long),
    ],
)
async def test_what_no_gate_holds_is_taken_and_nothing_else(store, due_tasks, take, most, front, rounds):
    async with store.connection() as connection:
        asked = {
            "lambdas": [queue.lambda_name for queue in QUEUES],
            "priorities": [queue.priority for queue in QUEUES],
        }
        asked |= {"collection": FRONT.collection, "count": front, "before": EARLY}
        await connection.execute(FILL_THE_FRONT, asked)
    chance, scans = random.Random(7), GateScans()  # noqa: S311 (no secret)
    numbers_held = set()
    for number in range(rounds):
        gates = GateSet([*any_gates(chance), *([a_gate(50, FRONT)] if front else [])])
        taken, found, more, looks = set(), {None}, True, 0
        while (found or more) and looks < 200:
            found, more = await take(store, gates, scans, most)
            assert not taken & found
            taken |= found
            looks += 1

        free = {task_id for task_id, each in due_tasks.items() if not each.is_held(gates)}
        assert taken == free, (number, gates.gates)
        numbers_held.add(len(due_tasks) - len(free))
        async with store.connection() as connection:
            await connection.execute(TAKE_BACK)
    assert len(numbers_held) > rounds / 4
    assert max(numbers_held) > len(due_tasks) / 4
