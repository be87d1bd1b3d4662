"""Two whole `duly autoscaler`: the leader is killed, or stopped and continued, and the other one does its work."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import psycopg
import pytest

import duly
from duly_core.pools import lease
from duly_core.pools import store as pools
from duly_core.pools.lease import PlanToWrite
from duly_core.pools.planner import Memory, Plan
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.host import APP, Command, Commands, Journal, gone, until
from tests.fixtures.programs import is_alive
from tests.fixtures.service_processes import poll
from tests.fixtures.services import Frontend, Hsc
from tests.fixtures.task_states import TaskStates

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # programs of their own, and a lease that has to be over; tests/pools has the parts
    pytest.mark.timeout(300),
]

SECOND = timedelta(seconds=1)
LEASE = 2 * SECOND
WITHIN_SECONDS = 10 * SECOND
"""Of the leader's end: the lease, a try of the other, and a machine that is busy with other things."""
A_WHILE = 90 * SECOND
"""Until workers have started or ended on such a machine: nothing is measured by it."""
POOL = Pool(
    name="mail", lambdas=("test.*",), maximum=2, target_age=SECOND, idle_time=timedelta(), driver="it"
)

# A line for each call and one for what it did: "called PID-OF-AUTOSCALER OWN-PID WORKERS". In between it waits for the lock.
SCALE = """
import fcntl, os, sys
folder, workers = sys.argv[1:]
autoscaler = os.getppid()
def note(word):
    with open(folder + "/notes", "a") as notes:
        notes.write(f"{word} {autoscaler} {os.getpid()} {workers}\\n")
note("called")
with open(folder + "/lock") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    note("did")
"""

# In the order of writing: under which fence each plan was written.
NOTE_WRITES = """
create table plan_write (number bigint generated always as identity, fence bigint not null);
create function note_plan_write() returns trigger language plpgsql as $$
begin insert into plan_write (fence) values (new.fence); return null; end $$;
create trigger note_plan_write after insert or update on pool_plan for each row execute function note_plan_write();
"""


@dataclass(frozen=True)
class Note:
    """What a call of the command driver noted."""

    word: str
    autoscaler: int
    command: int
    workers: int


@dataclass(frozen=True)
class Platform:
    """What the command driver calls. Calls wait while it is held."""

    folder: Path

    @property
    def driver(self) -> dict[str, Any]:
        script = [sys.executable, "-S", str(self.folder / "scale.py"), str(self.folder), "{workers}"]
        return {"kind": "command", "command": script}

    @property
    def notes(self) -> list[Note]:
        file = self.folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Note(word, *map(int, rest)) for word, *rest in map(str.split, lines)]

    def of(self, autoscaler: Command, word: str) -> list[Note]:
        return [each for each in self.notes if (each.word, each.autoscaler) == (word, autoscaler.pid)]

    @contextmanager
    def held(self) -> Iterator[None]:
        with (self.folder / "lock").open() as lock:
            flock(lock, LOCK_EX)
            yield


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    folder = tmp_path / "platform"
    folder.mkdir()
    (folder / "scale.py").write_text(SCALE)
    (folder / "lock").touch()
    return Platform(folder)


@dataclass
class Autoscalers:
    """Two of them on one database."""

    dsn: str
    store: Store
    commands: Commands

    async def start(self, driver: dict[str, Any], **environment: str) -> tuple[Command, Command]:
        """Start both; return the one that leads, then the other."""
        settings = {
            "DULY_STORE_DSN": self.dsn,
            "DULY_AUTOSCALER_LISTEN": "127.0.0.1:0",
            "DULY_AUTOSCALER_INTERVAL": "200ms",
            "DULY_AUTOSCALER_LEASE": f"{LEASE.total_seconds():g}s",
            "DULY_AUTOSCALER_DRIVERS": json.dumps({POOL.driver: driver}),
        }
        one, other = (
            self.commands.start("duly_cli", "autoscaler", **settings, **environment) for _ in range(2)
        )
        for each in (one, other):
            await each.says("autoscaler runs")
        leader = await self.leads_after(0, WITHIN_SECONDS)
        return (one, other) if f":{one.pid}:" in leader.holder else (other, one)

    async def leads_after(self, fence: int, within: timedelta) -> lease.Leader:
        """Wait until somebody leads under a higher fence, and has planned; return who."""

        def somebody_planned() -> bool:
            return ask(self.dsn, f"select from pool_plan where fence > {fence}") != []

        await until(somebody_planned, within)
        leader = await lease.read_leader(self.store)
        assert leader.leads
        return leader

    def note_writes(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(NOTE_WRITES)

    @property
    def writes(self) -> list[int]:
        """Under which fences plans were written, in this order."""
        return [fence for (fence,) in ask(self.dsn, "select fence from plan_write order by number")]


@pytest.fixture
async def autoscalers(dsn: str, store: Store, commands: Commands) -> Autoscalers:
    made = Autoscalers(dsn, store, commands)
    made.note_writes()
    return made


async def declare(store: Store, **changes: Any) -> None:
    changed = replace(POOL, **changes)
    await pools.put_pool(store, POOL.name, lambda _: changed)


async def workers_that_report(store: Store, number: int) -> list[pools.PoolWorker]:
    """Wait until so many workers of the pool have reported; return them."""

    async def they_report() -> list[pools.PoolWorker] | None:
        found = (await pools.workers_of(store, [POOL]))[POOL.name]
        return found if len(found) >= number else None

    return await poll(they_report, A_WHILE)


def started_by(autoscaler: Command) -> list[int]:
    """The workers that its local driver started."""
    lines = [json.loads(line) for line in autoscaler.output.splitlines() if line.startswith("{")]
    return [line["pid"] for line in lines if line["event"] == "worker started"]


async def test_a_leader_that_is_killed_while_work_waits_is_followed_within_seconds_and_the_pool_gets_its_workers(
    autoscalers: Autoscalers,
    store: Store,
    frontend: Frontend,
    hsc: Hsc,
    task_states: TaskStates,
    tmp_path: Path,
    dsn: str,
) -> None:
    journal = Journal(tmp_path)
    await task_states.register("test.wait")
    async with duly.AsyncClient(frontend.address) as client:
        tasks = [await client.schedule("test.wait", journal.payload()) for _ in range(6)]
    await declare(store, idle_time=timedelta(minutes=10))
    local = {"kind": "local", "application": APP, "arguments": ["--processes", "1", "--slots", "1"]}
    settings = {
        "DULY_CONTROLLER_FRONTEND_ADDRESS": frontend.address,
        "DULY_CONTROLLER_HSC_ADDRESS": hsc.address,
        "DULY_TIMING_PROFILE": "embedded",
    }
    killed, other = await autoscalers.start(local, **settings)
    was = await lease.read_leader(store)
    await until(lambda: len(started_by(killed)) == POOL.maximum)

    killed.kill()
    leads = await autoscalers.leads_after(was.fence, WITHIN_SECONDS)
    for pid in started_by(killed):
        await until(lambda pid=pid: not is_alive(pid), A_WHILE)
    await until(lambda: len(journal.lines("started")) >= POOL.maximum, A_WHILE)
    workers = await workers_that_report(store, POOL.maximum)
    stale = Plan(POOL.maximum, ("stale",), Memory(desired=POOL.maximum), POOL.maximum)
    written = await lease.write_plans(
        store, was.holder, was.fence, datetime.now(UTC), [PlanToWrite(POOL.name, stale)], ["stale"]
    )
    drained = await lease.request_drain(
        store, was.holder, was.fence, POOL.name, [each.host_id for each in workers]
    )
    journal.let_go()
    async with duly.AsyncClient(frontend.address) as client:
        ended = await client.wait_many(tasks, A_WHILE)
    writes = autoscalers.writes

    assert f":{other.pid}:" in leads.holder
    assert leads.fence == was.fence + 1
    assert len(workers) == len(started_by(other)) == POOL.maximum
    assert [(each.status.name, each.attempts) for each in ended] == [("SUCCESS", ())] * len(tasks)
    assert len(journal.lines("started")) == len(tasks)
    # nothing of the dead leader's term is taken
    assert (written, drained) == (None, set())
    assert await lease.take_lease(store, was.holder, was.fence, LEASE) is None
    assert writes == sorted(writes)
    assert ask(dsn, "select from audit_event where request = 'stale'") == []


async def test_a_leader_that_is_stopped_and_continued_gives_its_call_up_and_nothing_that_it_writes_is_taken(
    autoscalers: Autoscalers, store: Store, platform: Platform, dsn: str
) -> None:
    await declare(store, minimum=1)
    with platform.held():
        slept, other = await autoscalers.start(platform.driver)
        was = await lease.read_leader(store)
        await until(lambda: platform.of(slept, "called"))
        with psycopg.connect(dsn) as held:  # it stands in the middle of a round
            held.execute("lock table host in access exclusive mode")
            await until_a_statement_waits_for_a_lock(dsn, held_by=held.info.backend_pid)
            slept.kill(signal.SIGSTOP)

        leads = await autoscalers.leads_after(was.fence, WITHIN_SECONDS)
        await until(lambda: platform.of(other, "called"))
        slept.kill(signal.SIGCONT)
        await slept.says("leads no more")
        for call in platform.of(slept, "called"):
            await gone(call.command)
    await declare(store, minimum=2)
    await until(lambda: [each for each in platform.of(other, "did") if each.workers == 2])
    before = platform.notes
    other.kill(signal.SIGTERM)
    again = await autoscalers.leads_after(leads.fence, WITHIN_SECONDS)
    await until(lambda: platform.of(slept, "did"))
    writes = autoscalers.writes

    assert (f":{other.pid}:" in leads.holder, leads.fence) == (True, was.fence + 1)
    assert (again.holder, again.fence) == (was.holder, leads.fence + 1)
    assert [each for each in before if each.word == "did" and each.autoscaler == slept.pid] == []
    assert {each.workers for each in platform.of(slept, "did")} == {2}
    # it went on with the round in whose middle it was stopped: its plans came after those of the next leader
    assert writes == sorted(writes)
    assert {*writes} == {was.fence, leads.fence, again.fence}
