"""All processes are replaced one after another while clients call and tasks run: no call fails, no task is lost or tried again."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.fixtures.callers import LAMBDA, Callers
from tests.fixtures.host import Commands, Journal
from tests.fixtures.name_server import name_server
from tests.fixtures.rollouts import CACHED_FOR, Cluster
from tests.fixtures.service_processes import until_registered
from tests.fixtures.waiting import until

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # starts two of each process twice; tests/sdk/test_peers.py and tests/executor have the parts
    pytest.mark.timeout(400),
]

A_WHILE = timedelta(seconds=120)


@pytest.fixture
async def clusters(dsn: str, commands: Commands) -> AsyncIterator[Callable[..., Awaitable[Cluster]]]:
    with name_server(CACHED_FOR) as names:

        async def start(*, by_name: bool) -> Cluster:
            cluster = Cluster(dsn, commands, names, by_name=by_name)
            await cluster.start()
            return cluster

        yield start


@pytest.mark.parametrize(
    ("by_name", "restart"),
    [(True, Cluster.restart), (False, Cluster.restart_in_place)],
    ids=["as Kubernetes does it", "as systemd does it"],
)
async def test_a_restart_of_all_processes_fails_no_call_and_charges_no_attempt(
    clusters: Callable[..., Awaitable[Cluster]],
    tmp_path: Path,
    by_name: bool,
    restart: Callable[[Cluster], Awaitable[None]],
) -> None:
    journal = Journal(tmp_path)
    cluster = await clusters(by_name=by_name)
    callers = Callers(cluster.frontend, tmp_path / "journal")
    async with duly.AsyncClient(cluster.frontend) as client:
        await until_registered(client, LAMBDA)
        callers.start()
        await until(lambda: len(callers.seen) > 20, A_WHILE)
        before = len(callers.tasks)

        await restart(cluster)
        since = len(callers.tasks)
        await until(lambda: len(callers.tasks) > since + 20, A_WHILE)
        await callers.stop()
        ended = await client.wait_many([*callers.tasks], A_WHILE)

    assert callers.failures == []
    assert since > before + 50
    assert cluster.killed == []
    assert {(task.status, task.attempts) for task in ended} == {(duly.TaskStatus.SUCCESS, ())}
    assert [task.result for task in ended] == [*callers.tasks.values()]
    assert callers.seen >= callers.tasks.keys()
    runs = Counter(line.split()[1] for line in journal.lines("started"))
    assert runs == Counter(dict.fromkeys(callers.tasks, 1))
