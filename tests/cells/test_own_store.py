"""What a process reads and writes by itself in its own cell follows the cell to another place."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.access.audit_entries import AuditEntry
from duly_core.access.audit_log import StoredAuditLog, list_events
from duly_core.access.cache import AccessCache
from duly_core.cells.directory import Cell
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.own_store import OwnStore
from duly_core.postgres.pool import Store
from duly_core.trends import store as trends
from duly_core.trends.rules import Time, minute_of
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_hsc.run_trends import RunTrends
from tests.fixtures.task_states import LAMBDA, TaskStates

MINUTE = timedelta(minutes=1)
ENTRY = AuditEntry("ann", "peer", "/duly.v1.Frontend/Schedule", "OK", "{}", "")


class Places:
    """Cell a at two places; `follower` is of a process that is configured for the first."""

    def __init__(self, two_cells, database):
        where = conninfo_to_dict(two_cells.dsn("a"))
        at = Cell("a", make_conninfo(host=where["host"], port=where["port"], dbname=database), "public")
        moved = replace(two_cells.directory, version=2, cells={**two_cells.directory.cells, "a": at})
        self.former, self.present = two_cells, replace(two_cells, directory=moved)
        self.configured = two_cells.settings("a").model_copy(
            update={"direct_dsn": two_cells.dsn("a"), "pooled": True}
        )
        self.follower = DirectoryFollower(self.configured)

    def move(self):
        """Do what a mover does at last."""
        assert self.present.write("a", self.present.directory)
        self.former.fence("a")
        assert self.former.write("a", self.present.directory, before=1)


@pytest.fixture
def places(postgres_server, two_cells):
    """A second place has the schema, and no rows."""
    database = postgres_server.lend()
    yield Places(two_cells, database)
    postgres_server.take_back(database)


def database_of(settings):
    return conninfo_to_dict(settings.dsn)["dbname"]


async def calls_at(settings, minute):
    """Return how many calls the trends of a place have."""
    async with Store(settings) as store:
        found = await trends.sums_of_times(store, [Time(1, minute, minute + MINUTE)])
    return [each.calls for each in found]


async def test_the_own_store_is_at_the_present_place_after_a_move_and_after_a_restart(places):
    stop = asyncio.Event()
    await places.follower.first(stop)
    async with OwnStore(places.follower) as own:
        assert database_of(own.now().settings) == database_of(places.former.settings("a"))
        places.move()
        await places.follower.run_once()
        await own.follow()
        assert database_of(own.now().settings) == database_of(places.present.settings("a"))

    again = DirectoryFollower(places.configured)
    async with OwnStore(again) as own:  # before the directory is known, as a Frontend does
        await again.first(stop)
        await own.follow()
        assert database_of(own.now().settings) == database_of(places.present.settings("a"))
    assert again.own_settings().direct_dsn == ""


async def test_direct_dsn_is_used_for_the_own_cell_until_it_moves(places):
    await places.follower.first(asyncio.Event())
    assert places.follower.settings_of("a").direct_dsn == places.configured.direct_dsn
    places.move()
    await places.follower.run_once()
    assert places.follower.settings_of("a").direct_dsn == ""


async def test_a_process_whose_own_cell_is_not_in_the_directory_reads_the_default_cell(places):
    await places.follower.first(asyncio.Event())
    places.follower.own_cell = "gone"
    assert database_of(places.follower.own_settings()) == database_of(places.former.settings("a"))


async def test_accepted_calls_and_audit_entries_of_a_move_are_written_at_the_present_place(places):
    at = datetime.now(UTC)
    await places.follower.first(asyncio.Event())
    async with OwnStore(places.follower) as own:
        accepted, audit = AcceptedCalls(own.now, at.timestamp), StoredAuditLog(own.now)
        accepted.observe("Schedule", "OK", 0.01)
        places.move()
        assert await accepted.run_once() == timedelta(seconds=5)  # the former place is fenced: kept

        await places.follower.run_once()
        await own.follow()
        await accepted.run_once()
        await audit.record(ENTRY)

    assert await calls_at(places.present.settings("a"), minute_of(at)) == [1]
    async with Store(places.present.settings("a")) as store:
        assert [event.entry.actor for event in await list_events(store, before=1 << 60, limit=5)] == ["ann"]


async def test_who_reads_access_at_a_fenced_place_has_the_directory_read(places):
    await places.follower.first(asyncio.Event())
    woken = places.follower.wake
    async with OwnStore(places.follower) as own:
        await AccessCache(own.now, on_fence=woken.set).access_of("ann")
        assert not woken.is_set()
        places.former.fence("a")
        await AccessCache(own.now, on_fence=woken.set).access_of("ann")
        assert woken.is_set()


async def test_runs_that_a_fence_refused_are_added_by_the_unit_of_the_next_place(places):
    at, fenced = datetime.now(UTC), []
    async with Store(places.former.settings("a")) as former, Store(places.present.settings("a")) as present:
        states = TaskStates(former)
        await states.register(LAMBDA)
        before = RunTrends(former, at.timestamp, fenced)
        before.claimed([await states.claimed()])
        places.move()
        await before.run_once()
        after = RunTrends(present, at.timestamp, fenced)
        await after.run_once()
        await after.run_once()

        minute = minute_of(at)
        (found,) = await trends.read_points(present, 1, minute, minute + MINUTE, LAMBDA)
    assert sum(found.lateness) == 1
    assert fenced == []
