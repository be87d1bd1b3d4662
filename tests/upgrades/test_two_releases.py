"""The base release and this one side by side on one store: nothing is lost, nothing overlaps, no caller sees an error."""

import os
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import duly
from tests.fixtures.forked_process import ROOT
from tests.fixtures.mixed_releases import gray_walk, mixed_releases, old_release, whole_walk

pytestmark = [
    pytest.mark.long,  # starts two releases of all services, and restarts each; test_schema_rule.py has the rule
    pytest.mark.timeout(1800),
]

SERVICES = {
    "one server": ("server",),
    "services": ("frontend", "store-consumer", "hsc"),
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return old_release(tmp_path_factory.mktemp("old")), ROOT


@pytest.fixture
def empty_dsn(postgres_server):
    name = f"duly_test_{uuid4().hex[:12]}"
    postgres_server._create(name, "template1")
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


@pytest.mark.parametrize("services", SERVICES.values(), ids=SERVICES)
async def test_each_mixture_of_two_releases_runs_tasks_on_the_way_to_the_new_one_and_back(
    releases, empty_dsn, services, tmp_path: Path
):
    with mixed_releases(tmp_path, empty_dsn, releases, services) as mixed:
        assert [mixed.code_of(release).is_relative_to(releases[release]) for release in (0, 1)] == [
            True,
            True,
        ]
        mixed.command(0, "migrate")
        for part in mixed.parts:
            await mixed.start(part, 0)
        walk = whole_walk if os.environ.get("DULY_UPGRADES_ALL") else gray_walk
        mixed.command(1, "migrate")
        for part, release in walk(mixed.parts):
            await mixed.swap(part, release)
        mixed.stop("client")
        stored = mixed.scheduled()
        async with duly.AsyncClient(mixed.frontend) as client:
            tasks = [await client.wait(task, timedelta(seconds=60)) for task in stored.values()]

    assert mixed.faults() == []
    assert [task.result for task in tasks] == [*stored]
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}
