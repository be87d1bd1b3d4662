"""The task path through a real pgbouncer that hands its sessions out by transaction."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from duly_core.postgres.pool import Store
from duly_core.postgres.session_options import options
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import ready_when_there
from duly_core.results.store import set_results
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Applied, Result
from duly_core.upkeep.retention import Retention
from duly_local.ports import free_port
from duly_wire.enums import FailureKind, Outcome
from tests.fixtures.task_states import SECOND, TaskStates
from tests.fixtures.waiting import wait_until

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed: install pgbouncer")
CONFIG = """
[databases]
{dbname} = host={host} port={port} dbname={dbname} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that another user may read: pgbouncer does not run as root, and pytest's folders are private."""
    with tempfile.TemporaryDirectory(prefix="duly-pooler-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def pooler(dsn: str, folder: Path) -> Iterator[str]:
    """The DSN of a pooler before the test's database."""
    parts = conninfo_to_dict(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        # of the database, not of the role: other tests have the same role
        wanted = options(StoreSettings(dsn=dsn)) | {"plan_cache_mode": "force_custom_plan"}
        for statement in [
            f"alter role CURRENT_USER set {name} = '{value}';" for name, value in wanted.items()
        ]:
            connection.execute(statement.replace("role CURRENT_USER", f"database {parts['dbname']}").encode())
    listen = free_port()
    file = folder / "pgbouncer.ini"
    file.write_text(CONFIG.format(**{"password": ""} | parts, listen=listen))
    user = "nobody" if os.geteuid() == 0 else None
    with subprocess.Popen([str(PGBOUNCER), str(file)], user=user, stderr=subprocess.PIPE) as process:
        address = f"postgresql://duly@127.0.0.1:{listen}/{parts['dbname']}"
        try:
            wait_until(lambda: answers(address) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            yield address
        finally:
            process.send_signal(signal.SIGKILL)


def answers(address: str) -> bool:
    try:
        psycopg.connect(address, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
async def task_states(pooler: str) -> AsyncIterator[TaskStates]:
    """The task states, all of it through the pooler."""
    async with Store(StoreSettings(dsn=pooler, pooled=True)) as store:
        made = TaskStates(store)
        await made.register()
        yield made


async def test_tasks_succeed_fail_and_run_again_through_a_pooler(task_states: TaskStates) -> None:
    one, other = await task_states.processing(), await task_states.processing()
    written = await set_results(
        task_states.store,
        [
            Result(one.task_id, one.token, Outcome.SUCCESS, result=b"1"),
            Result(
                other.task_id,
                other.token,
                Outcome.RETRIABLE_FAILURE,
                failure_kind=FailureKind.CALLBACK,
                failure_message="no",
                retry_after=SECOND,
            ),
        ],
    )

    assert written.verdicts == [Applied.APPLIED] * 2
    rows = await tasks.get_tasks(task_states.store, [one.task_id, other.task_id])
    assert (rows[one.task_id]["status"], rows[one.task_id]["result"]) == ("success", b"1")
    assert rows[other.task_id]["status"] == "retriable_failure"
    assert set(await tasks.get_attempts(task_states.store, [one.task_id, other.task_id])) == {other.task_id}


async def test_the_statements_are_planned_as_they_should_be_through_a_pooler(task_states: TaskStates) -> None:
    async with task_states.store.connection() as connection:
        found = []
        for name in ("enable_seqscan", "enable_hashjoin", "plan_cache_mode", "timezone", "lock_timeout"):
            cursor = await connection.execute(f"show {name}".encode())
            found.append((await cursor.fetchone() or ("",))[0])
        prepared = await connection.execute("select count(*) from pg_prepared_statements")

        assert found == ["off", "off", "force_custom_plan", "UTC", "8s"]
        assert await prepared.fetchone() == (0,)


async def test_partitions_are_kept_through_a_pooler(task_states: TaskStates) -> None:
    settings = task_states.store.settings

    done = await Retention(
        task_states.store, settings.retention, settings.dead_letter_retention, settings.partition_span
    ).run_once()

    assert done.added


async def test_a_service_behind_a_pooler_finds_the_schema_in_order(task_states: TaskStates) -> None:
    assert await ready_when_there(task_states.store.settings, asyncio.Event())
