"""A service has a unit for each cell, as the directory says; one that fails or hangs leaves the others alone."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry, Gauge

from duly_core.cells import units as cell_units
from duly_core.cells.directory import Cell, Directory
from duly_core.cells.health import CellsHealth
from duly_core.cells.units import Units
from duly_core.errors import SettingsError
from duly_core.postgres.settings import StoreSettings
from duly_core.process.cell_metrics import GaugeByCell
from duly_core.process.current_cell import cell_gone, current_cell
from duly_core.process.lambda_metrics import GaugeByLambda, NamedLambdas
from tests.fixtures.waiting import until

TWO = Directory(
    UUID(int=1),
    1,
    {name: Cell(name, f"host={name}", "duly") for name in ("a", "b")},
    {"mail": "b"},
    "a",
)


class Followed:
    """A directory that the test changes."""

    def __init__(self, now=TWO):
        self._now = now
        self.wake = asyncio.Event()
        self.looks = self.asked = 0
        self._callbacks = []

    @property
    def now(self):
        self.looks += 1
        return self._now

    @now.setter
    def now(self, directory):
        self._now = directory

    async def run_once(self):
        return timedelta(minutes=1)

    def on_change(self, callback):
        self._callbacks.append(callback)

    def settings_of(self, cell):
        self.asked += 1
        return StoreSettings(dsn=self.now.cells[cell].address)

    def become(self, directory):
        self.now = directory
        for callback in self._callbacks:
            callback(directory)


class Told:
    """What health checks would be told."""

    def __init__(self):
        self.serving = False
        self.cells = {}

    async def set_serving(self, *, serving):
        self.serving = serving

    async def set_cell_serving(self, cell, *, serving):
        self.cells[cell] = serving


class Service:
    """Units that serve until they are told to stop, or as the test has it."""

    def __init__(self):
        self.places = []
        self.ended = []
        self.fails = {}
        self.away = set()

    async def run(self, place, health, stop):
        assert current_cell.get() == place.cell
        self.places.append((place.cell, place.store.dsn, place.leads))
        if place.cell in self.fails:
            raise self.fails[place.cell]
        await health.set_serving(serving=place.cell not in self.away)
        await stop.wait()
        self.ended.append(place.cell)


@pytest.fixture
async def units():
    """Starts units, and stops them."""
    stop = asyncio.Event()
    running = []

    def start(followed, service, serve=()):
        told = Told()
        units = Units(followed, CellsHealth(told, "test"), service.run, serve)
        running.append(asyncio.ensure_future(units.run(stop)))
        return told

    yield start
    stop.set()
    await asyncio.gather(*running)


async def test_there_is_a_unit_for_each_cell_and_one_of_them_leads(units):
    service = Service()

    told = units(Followed(), service)

    await until(lambda: told.cells == {"a": True, "b": True})
    assert sorted(service.places) == [("a", "host=a", True), ("b", "host=b", False)]
    assert told.serving


async def test_only_the_named_cells_are_served(units):
    service = Service()

    told = units(Followed(), service, ["b"])

    await until(lambda: told.cells == {"b": True})
    assert service.places == [("b", "host=b", True)]


async def test_a_name_that_the_directory_lacks_is_refused():
    units = Units(Followed(), CellsHealth(Told(), "test"), Service().run, ["c"])

    with pytest.raises(SettingsError, match="there is no cell c: the directory has a, b"):
        await units.run(asyncio.Event())


async def test_units_follow_the_directory(units):
    service, followed = Service(), Followed()
    told = units(followed, service)
    await until(lambda: told.cells == {"a": True, "b": True})

    followed.become(TWO.with_cell(Cell("b", "host=b2", "duly")).with_cell(Cell("c", "host=c", "duly")))

    await until(lambda: told.cells.get("c"))
    assert ("b", "host=b2", False) in service.places
    assert service.ended == ["b"], "the one at the old address, and no other"
    followed.become(followed.now.without_cell("c"))
    await until(lambda: service.ended == ["b", "c"])
    await until(lambda: not told.cells["c"])
    assert [place[0] for place in service.places].count("a") == 1


async def test_only_a_directory_that_changed_is_compared_with_what_runs(monkeypatch, units):
    monkeypatch.setattr(cell_units, "_LOOK_AGAIN", timedelta(milliseconds=1))
    service, followed = Service(), Followed()
    told = units(followed, service)
    await until(lambda: told.cells == {"a": True, "b": True})
    looks = followed.looks

    await until(lambda: followed.looks > looks + 3)
    assert followed.asked == 2
    followed.now = followed.now.with_cell(Cell("c", "host=c", "duly"))  # and nobody tells of it

    await until(lambda: told.cells.get("c"))
    assert followed.asked == 2 + 3


@pytest.mark.parametrize("error", [SettingsError("the schema is of another release"), RuntimeError("no")])
async def test_a_unit_that_fails_is_started_again_and_the_others_go_on(units, error):
    service = Service()
    service.fails["b"] = error

    told = units(Followed(), service)

    await until(lambda: [place[0] for place in service.places].count("b") > 2)
    assert told.cells == {"a": True, "b": False}
    assert told.serving
    service.fails.clear()
    await until(lambda: told.cells["b"])
    assert [place[0] for place in service.places].count("a") == 1


async def test_a_process_does_not_serve_when_no_cell_answers(units):
    service = Service()
    service.away = {"a", "b"}

    told = units(Followed(), service)

    await until(lambda: len(service.places) == 2)
    assert not told.serving
    assert told.cells == {"a": False, "b": False}


@pytest.fixture
def in_cell():
    """Runs something as the loops of a cell would, and forgets the cells at the end."""

    def run(cell, call, *arguments):
        token = current_cell.set(cell)
        call(*arguments)
        current_cell.reset(token)

    yield run
    for cell in "ab":
        cell_gone(cell)


def test_a_gauge_shows_what_all_cells_have_together(in_cell):
    registry = CollectorRegistry()
    blocked = GaugeByCell(Gauge("blocked", "Blocked.", registry=registry), sum)
    hosts = GaugeByCell(Gauge("hosts", "Hosts.", ["state"], registry=registry), max)
    for cell, number in (("a", 2), ("b", 3)):
        in_cell(cell, blocked.set, number)
        in_cell(cell, hosts.set, number, "alive")

    assert registry.get_sample_value("blocked") == 5
    assert registry.get_sample_value("hosts", {"state": "alive"}) == 3
    cell_gone("b")
    assert registry.get_sample_value("blocked") == 2
    assert registry.get_sample_value("hosts", {"state": "alive"}) == 2


def test_a_gauge_by_lambda_keeps_the_lambdas_of_other_cells(in_cell):
    registry = CollectorRegistry()
    gauge = GaugeByLambda(Gauge("backlog", "Due.", ["lambda"], registry=registry), sum, NamedLambdas())
    in_cell("a", gauge.set, {("sort",): 1})
    in_cell("b", gauge.set, {("mail.send",): 2, ("mail.sort",): 3})
    in_cell("b", gauge.set, {("mail.send",): 4})

    assert registry.get_sample_value("backlog", {"lambda": "sort"}) == 1
    assert registry.get_sample_value("backlog", {"lambda": "mail.send"}) == 4
    assert registry.get_sample_value("backlog", {"lambda": "mail.sort"}) is None
    cell_gone("b")
    assert registry.get_sample_value("backlog", {"lambda": "mail.send"}) is None
