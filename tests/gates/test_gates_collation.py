"""Gates in a database whose collation sorts punctuation as people do: there `;` comes before `:`."""

from datetime import timedelta

import psycopg
import pytest

from duly_core.gates import store as gates
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import schedule
from duly_core.tasks.task import NewTask
from duly_store_consumer.gate_loop import GateLoop
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.task_states import LAMBDA, TaskStates

COLLATION = "en-x-icu"


@pytest.fixture
async def store(dsn_of_each):
    with psycopg.connect(dsn_of_each) as connection:
        known = connection.execute("select from pg_collation where collname = %s", [COLLATION])
        if not known.rowcount:
            pytest.skip("this Postgres was built without ICU")
        connection.execute(f'alter table task_assoc alter column parked_on type text collate "{COLLATION}"')
    async with Store(StoreSettings(dsn=dsn_of_each)) as made:
        yield made


async def test_what_a_gate_parked_is_released_when_the_gate_is_removed(store):
    states = TaskStates(store)
    await states.register()
    task = NewTask(new_task_id().bytes, LAMBDA, b"{}", collection="marketing")
    await schedule.schedule(store, [task])
    loop = GateLoop(store, GateCache(store), lambda: [LAMBDA], lambda *_: None, has_queues=False)

    scope = GateScope(LAMBDA, collection="marketing")
    await whole.put_gate(store, NewGate("held", Kind.PAUSE, scope, None, "ann", "", None))
    await loop.run_once()
    parked = await states.status(task.task_id)
    await gates.delete_gates(store, ["held"])
    while await loop.run_once() <= timedelta():
        pass

    assert parked == "waiting"
    assert await states.status(task.task_id) == "new"
