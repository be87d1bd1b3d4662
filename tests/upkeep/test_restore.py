"""A store that was restored from a backup: `duly db raise-fences`, and what is refused and accepted after it."""

import os
import subprocess
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from duly_cli.__main__ import app
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import Applied, ReleasedClaim, Result
from duly_core.upkeep import fences
from duly_local.postgres.binaries import find_binaries
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures import whole
from tests.fixtures.clock import REPLACED, Clock
from tests.fixtures.database import ask
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA, TaskStates
from tests.fixtures.warm_sessions import WarmSessions

MINUTE = timedelta(minutes=1)


class Guarded:
    """A resource outside Duly that compares fences: a write with a smaller fence, or the same again, is refused."""

    def __init__(self):
        self.highest = {}

    def write(self, task):
        accepted = task.fence > self.highest.get(task.task_id, 0)
        if accepted:
            self.highest[task.task_id] = task.fence
        return accepted


class Backup:
    """A pg_dump of one database, restored into another one."""

    def __init__(self, file, postgres_server):
        self._file, self._server, self._made = file, postgres_server, []

    def dump(self, dsn):
        self._run("pg_dump", "--format=custom", f"--file={self._file}", f"--dbname={dsn}")

    def restore(self):
        """Restore into an empty database; its DSN."""
        name = f"duly_test_{uuid4().hex[:12]}"
        self._server._create(name, "template0")
        self._made.append(name)
        dsn = self._server.dsn_of(name)
        self._run("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={dsn}", str(self._file))
        return dsn

    def drop_all(self):
        for name in self._made:
            self._server.drop(name)

    def _run(self, program, *arguments):
        path = find_binaries().program(program)
        subprocess.run([path, *arguments], check=True, timeout=120, env={**os.environ, "PGAPPNAME": "backup"})


@pytest.fixture(autouse=True)
def no_session_is_kept(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the sessions that other tests left: each counts as a service that is connected."""
    monkeypatch.setattr(WarmSessions, "is_paused", True)
    postgres_server.sessions.end_all()


@pytest.fixture
def backup(tmp_path, postgres_server):
    made = Backup(tmp_path / "duly.dump", postgres_server)
    yield made
    made.drop_all()


def raise_fences(dsn, *options):
    return CliRunner().invoke(app, ["db", "raise-fences", "--dsn", dsn, *options])


async def claim_all(store):
    picks = [Pick(QueueKey(LAMBDA, priority), 1000, 0) for priority in Priority]
    caller = Caller("test-host", os.urandom(14))
    work = await claims.claim_work(store, picks, [caller], 1000, CLAIM_TIMEOUT)
    return {task.task_id: task for task in work.tasks}


def ended(task, outcome=Outcome.SUCCESS):
    kind = None if outcome is Outcome.SUCCESS else FailureKind.CALLBACK
    return Result(task.task_id, task.token, outcome, failure_kind=kind)


async def test_after_a_restore_old_results_are_refused_and_every_later_run_has_a_higher_fence(
    dsn, task_states, backup
):
    resource = Guarded()
    never_ran, running, retried = [await task_states.new() for _ in range(3)]
    dead = (await task_states.new()).task_id
    first = await claim_all(task_states.store)
    await set_results(task_states.store, [ended(first[dead], Outcome.FATAL_FAILURE)])
    await claims.release(
        task_states.store,
        [ReleasedClaim(task.task_id, first[task.task_id].token) for task in (never_ran, retried)],
    )
    backup.dump(dsn)

    # work goes on after the backup, and is lost
    later = await task_states.new()
    await dead_letters.redrive(task_states.store, [dead])
    for _ in range(5):
        taken = await claim_all(task_states.store)
        assert all(resource.write(task) for task in taken.values())
        await claims.release(task_states.store, [ReleasedClaim(t.task_id, t.token) for t in taken.values()])
    lost = await claim_all(task_states.store)
    assert all(resource.write(task) for task in lost.values())
    assert resource.write(first[running.task_id])
    old = [*lost.values(), first[running.task_id]]
    restored = backup.restore()
    done = raise_fences(restored, "--force")  # the lease of `running` is not over

    async with Store(StoreSettings(dsn=restored)) as store:
        refused = await set_results(store, [ended(task) for task in old])
        (again,) = await schedule.schedule(store, [later])
        await dead_letters.redrive(store, [dead])
        after = await claim_all(store)
        accepted = {task_id: resource.write(task) for task_id, task in after.items()}
        results = await set_results(store, [ended(task) for task in after.values()])
    assert done.exit_code == 0, done.output
    assert set(refused.verdicts) == {Applied.LOST}
    assert again.task_id == later.task_id
    wanted = {never_ran.task_id, running.task_id, retried.task_id, later.task_id, dead}
    assert accepted == dict.fromkeys(wanted, True)
    assert set(results.verdicts) == {Applied.APPLIED}


async def test_the_claims_of_the_backup_are_released_uncharged(dsn, task_states):
    task = await task_states.processing()
    fences.raise_fences(StoreSettings(dsn=dsn), force=True)

    ((status, token, failures, crashes),) = ask(
        dsn, "select status::text, token, failures, crashes from task_assoc"
    )
    ((outcome, fence, message),) = ask(dsn, "select outcome::text, fence, failure_message from attempt")
    assert (status, token, failures, crashes) == ("new", None, 0, 0)
    assert (outcome, fence, message) == ("released", task.fence, "the store was restored from a backup")


async def test_a_task_scheduled_after_the_restore_begins_with_the_fence_one(dsn, task_states):
    fences.raise_fences(StoreSettings(dsn=dsn), force=True)

    claimed = await task_states.claimed()

    assert claimed.fence == 1


async def test_services_that_kept_running_read_the_gates_of_the_backup(dsn, task_states):
    store = task_states.store
    cache = GateCache(store)
    gate = NewGate("later", Kind.PAUSE, GateScope(LAMBDA), None, "ann", "", None)
    await whole.put_gate(store, gate)
    await cache.run_once()
    assert cache.now
    with psycopg.connect(dsn) as connection:
        connection.execute("delete from gate")  # the backup was older than the gate, and had the same version

    fences.raise_fences(StoreSettings(dsn=dsn), force=True)
    await cache.run_once()

    assert not cache.now


@pytest.mark.long  # two restores; the first one is tested above
async def test_a_second_restore_of_the_same_backup_exceeds_the_fences_of_the_first(dsn, task_states, backup):
    await task_states.new()
    backup.dump(dsn)
    handed_out = []

    for restored, runs in ((backup.restore(), 3), (backup.restore(), 1)):
        with psycopg.connect(restored, autocommit=True) as connection:
            connection.execute(REPLACED)
        await Clock(restored).tick(MINUTE * (len(handed_out) + 1))
        fences.raise_fences(StoreSettings(dsn=restored))
        async with Store(StoreSettings(dsn=restored)) as store:
            for _ in range(runs):
                (task,) = (await claim_all(store)).values()
                await claims.release(store, [ReleasedClaim(task.task_id, task.token)])
        handed_out.append(task.fence)

    assert handed_out[1] > handed_out[0]


async def test_it_is_refused_while_services_are_connected(dsn, task_states):
    await task_states.new()

    refused = raise_fences(dsn)

    assert refused.exit_code == 1
    assert "connections): stop all servers and workers first" in refused.stderr
    assert ask(dsn, "select fence from task_assoc") == [(0,)]


async def test_it_is_refused_while_a_lease_is_not_over(dsn, clock):
    async with Store(StoreSettings(dsn=dsn)) as store:
        states = TaskStates(store)
        await states.register()
        await states.claimed()

    refused = raise_fences(dsn)
    await clock.tick(CLAIM_TIMEOUT + timedelta(seconds=1))
    done = raise_fences(dsn)

    assert refused.exit_code == 1
    assert "the leases of 1 claims are not over" in refused.stderr
    assert done.exit_code == 0, done.output


async def test_a_dry_run_says_what_would_change_and_changes_nothing(dsn, task_states):
    await task_states.processing()
    before = ask(dsn, "select * from task_assoc")

    said = raise_fences(dsn, "--dry-run", "--above", "2000000000")

    assert said.exit_code == 0
    assert said.stdout.startswith(
        "would change: the fences of 1 live tasks and 0 dead letters, to 2000000001\n"
        "would change: 1 claims, which are void; their tasks run again, uncharged\n"
        "in use: "
    )
    assert said.stdout.endswith("connections of services, 1 claims whose leases are not over\n")
    assert ask(dsn, "select * from task_assoc") == before


async def test_a_fence_that_no_column_could_hold_is_refused(dsn):
    refused = raise_fences(dsn, "--above", str(2**31))

    assert refused.exit_code == 78
    assert "the highest possible is" in refused.stderr
