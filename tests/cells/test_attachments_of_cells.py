"""Attachments of cells: each cell sweeps a place of its own, and never removes what another cell, or its own new place, has."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import grpc
import psycopg
import pytest

from duly_core.attachments.blobs import BlobStore, BlobThreads, FoundBlob
from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.ownership import Owner, is_ours
from duly_core.attachments.settings import AttachmentSettings
from duly_core.attachments.sweep import Sweep
from duly_core.cells.moving.steps import Step
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_wire.v1 import (
    attachments_pb2,
    attachments_pb2_grpc,
    frontend_pb2,
    frontend_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)
from tests.cells.test_move import up_to
from tests.fixtures.attachment_sweeps import open_sweep, problems, rows
from tests.fixtures.attachments import Content, upload
from tests.fixtures.logical_postgres import SCHEMA, TwoPlaces
from tests.fixtures.routed_cells import RoutedCells, serve_cells
from tests.fixtures.task_states import LAMBDA

LAMBDAS = {"a": "plain", "b": "b/other"}
SHARED, UNUSED = Content(b"of both cells"), Content(os.urandom(1000))
HOUR = timedelta(hours=1)


class Cells:
    """Two cells that are configured with one folder, and a Frontend before them."""

    def __init__(self, cells: RoutedCells, channel: grpc.aio.Channel, settings: AttachmentSettings) -> None:
        self.cells, self.channel, self.settings = cells, channel, settings
        self.uploads = SimpleNamespace(attachments=attachments_pb2_grpc.AttachmentServiceStub(channel))

    def place(self, cell: str) -> Path:
        return Path(self.settings.of_cell(cell, "a").folder)

    @asynccontextmanager
    async def sweep(self, cell: str) -> AsyncIterator[tuple[Store, Sweep]]:
        """What the Store Consumer of a cell has, on a line that a test can cut."""
        settings = StoreSettings(dsn=self.cells.lines[cell].dsn, schema_name="public")
        async with Store(settings) as store, open_sweep(store, self.place(cell)) as sweep:
            yield store, sweep

    async def use(self, cell: str) -> str:
        """Schedule a task that uses what both cells have; return its id."""
        task = frontend_pb2.NewTask(payload=b"1", attachments=SHARED.uses())
        setattr(task, "lambda", LAMBDAS[cell])
        stub = frontend_pb2_grpc.FrontendServiceStub(self.channel)
        (result,) = (await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]))).results
        assert result.error.message == ""
        return result.task_id

    async def fetch(self, task_id: str) -> bytes:
        """Read what a task uses."""
        request = attachments_pb2.FetchPartsRequest(task_id=task_id, hash=SHARED.hash, indexes=[0])
        (part,) = (await self.uploads.attachments.FetchParts(request)).parts
        return part.data

    def blobs(self, cell: str) -> set[UUID]:
        return {each.blob for each in FolderBlobs(self.place(cell)).blobs()}


@pytest.fixture
async def cells(routed_cells: RoutedCells, tmp_path: Path) -> AsyncIterator[Cells]:
    settings = AttachmentSettings(store="folder", folder=str(tmp_path / "attachments"))
    async with serve_cells(routed_cells, tmp_path, settings) as channel:
        registry = registry_pb2_grpc.RegistryServiceStub(channel)
        lambdas = [registry_pb2.Lambda(name=name, owner="us") for name in LAMBDAS.values()]
        await registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
        yield Cells(routed_cells, channel, settings)


async def test_each_cell_removes_its_own_garbage_and_nothing_that_another_cell_has(cells: Cells) -> None:
    orphans = {cell: uuid4() for cell in LAMBDAS}
    for cell, name in LAMBDAS.items():
        await upload(cells.uploads, SHARED, UNUSED, name=name)
        FolderBlobs.open(str(cells.place(cell))).put(orphans[cell], 0, b"left of a crash")
    tasks = {cell: await cells.use(cell) for cell in LAMBDAS}
    of_b = cells.blobs("b")

    async with cells.sweep("a") as (store_a, sweep_a), cells.sweep("b") as (store_b, sweep_b):
        first = await sweep_a.run_once()
        left_of_b = cells.blobs("b")
        second = await sweep_b.run_once()
        for store, cell in ((store_a, "a"), (store_b, "b")):
            assert await problems(store, cells.place(cell)) == []
        fetched = [await cells.fetch(task) for task in tasks.values()]
        with psycopg.connect(cells.cells.dsns["a"]) as connection:
            connection.execute("delete from task")
        third = await sweep_a.run_once()

    assert [(each.owner, each.attachments, each.orphans) for each in (first, second)] == [
        (Owner.OURS, 1, 1)
    ] * 2
    assert left_of_b == of_b
    assert orphans["b"] in of_b
    assert fetched == [SHARED.data] * 2
    assert (third.attachments, cells.blobs("a")) == (1, set())
    assert await cells.fetch(tasks["b"]) == SHARED.data


async def test_a_cell_that_is_away_loses_nothing_while_the_others_are_swept(cells: Cells) -> None:
    for name in LAMBDAS.values():
        await upload(cells.uploads, UNUSED, name=name)
    of_b = cells.blobs("b")

    async with cells.sweep("a") as (_, sweep_a), cells.sweep("b") as (_, sweep_b):
        await cells.cells.lines["b"].cut()
        with pytest.raises(StoreUnavailableError):
            await sweep_b.run_once()
        swept = await sweep_a.run_once()
        left = cells.blobs("b")
        await cells.cells.lines["b"].restore()
        later = await sweep_b.run_once()

    assert (swept.attachments, left) == (1, of_b)
    assert (later.attachments, cells.blobs("b")) == (1, set())


@pytest.fixture
def bucket(moto_endpoint: str) -> AttachmentSettings:
    name = f"duly-{uuid4().hex}"
    settings = AttachmentSettings(store="s3", bucket=name, endpoint_url=moto_endpoint)
    opened = open_blobs(settings)
    opened._client.create_bucket(Bucket=name)  # type: ignore[union-attr]
    return settings


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.sqs)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AttachmentSettings:
    if request.param == "s3":
        return request.getfixturevalue("bucket")
    return AttachmentSettings(store="folder", folder=str(tmp_path))


CELLS = ["a", "b", "cells", "ab", "ce" + uuid4().hex[2:], "0", "_", "store-id"]
"""The default one first; names that could be those of a blob, of a group of blobs, or of a marker."""


def test_no_place_of_a_cell_has_what_another_cell_keeps(shared: AttachmentSettings) -> None:
    places = {cell: open_blobs(shared.of_cell(cell, "a")) for cell in CELLS}
    blobs = {cell: uuid4() for cell in CELLS}
    for cell, place in places.items():
        place.put(blobs[cell], 0, cell.encode())
        place.put_marker(cell)

    found = {cell: [each.blob for each in place.blobs()] for cell, place in places.items()}
    for cell, blob in blobs.items():
        for other in CELLS[1:]:
            if other != cell:
                places[other].remove(blob)
    places["a"].remove(blobs["b"])

    assert found == {cell: [blob] for cell, blob in blobs.items()}
    assert {cell: place.get(blobs[cell], 0) for cell, place in places.items()} == {
        cell: cell.encode() for cell in CELLS
    }
    assert {cell: place.marker() for cell, place in places.items()} == {cell: cell for cell in CELLS}
    assert len({place.where for place in places.values()}) == len(CELLS)


def test_a_sole_store_that_becomes_the_first_cell_keeps_its_place() -> None:
    settings = AttachmentSettings(store="folder", folder="/x", prefix="y")

    assert settings.of_cell("", "a") == settings.of_cell("a", "a") == settings


USED = Content(b"of a task")


async def _store(store: Store, blobs: BlobStore, content: Content) -> UUID:
    """Have an attachment there, as after an upload."""
    blob = uuid4()
    blobs.put(blob, 0, content.data)
    async with store.connection() as connection:
        await connection.execute(
            "insert into attachment (namespace, hash, size_bytes, part_hashes, blob, begun_at, touched_at, stored_at) "
            "values ('', %s, %s, %s, %s, duly_now(), duly_now(), duly_now())",
            [content.hash, len(content.data), content.part_hashes, blob],
        )
    return blob


def _settings(dsn: str) -> StoreSettings:
    return StoreSettings(dsn=dsn, schema_name=SCHEMA)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[BlobThreads]:
    threads = BlobThreads(FolderBlobs.open(str(tmp_path)), 2)
    yield threads
    threads.close()


async def test_after_a_move_the_new_place_sweeps_and_the_former_one_removes_nothing(
    two_places: TwoPlaces, kept: BlobThreads
) -> None:
    async with Store(_settings(two_places.source)) as source:
        used, unused = [await _store(source, kept.blobs, content) for content in (USED, UNUSED)]
        async with source.connection() as connection, connection.transaction():
            ((task_id,),) = await (await connection.execute("select duly_schedule(%s)", [LAMBDA])).fetchall()
            await connection.execute(
                "insert into attachment_use values (%s, false, 0, 1, '', %s, %s, 'data', '')",
                [task_id, USED.hash, len(USED.data)],
            )
        patient = Sweep(source, kept, HOUR)
        assert (await patient.run_once()).owner is Owner.OURS
        first_turn = kept.blobs.turn()
        assert (await patient.run_once()).owner is Owner.OURS
        up_to(two_places, Step.FENCE)
        while_fenced = Sweep(source, kept, timedelta())
        with pytest.raises(StoreUnavailableError):
            await while_fenced.run_once()
        up_to(two_places, Step.DONE)
        async with Store(_settings(two_places.target)) as target:
            later = await _store(target, kept.blobs, Content(b"after the move"))
            kept.blobs.put_turn(
                first_turn
            )  # as if the last sweep had died: the next one takes no turn in the database
            with pytest.raises(StoreUnavailableError):
                await Sweep(source, kept, timedelta()).run_once()
            before = {each.blob for each in kept.blobs.blobs()}
            swept = await Sweep(target, kept, timedelta()).run_once()
            is_theirs = await is_ours(target, kept)
            left = await rows(target, "select hash from attachment")

    assert before == {used, unused, later}
    assert (swept.owner, swept.attachments, swept.orphans) == (Owner.OURS, 2, 0)
    assert is_theirs
    assert {each.blob for each in kept.blobs.blobs()} == {used}
    assert left == [(USED.hash,)]


class _MovesMeanwhile(FolderBlobs):
    """Between the listing of a sweep and its look at the rows, the cell moves, and gets another attachment."""

    moves = None

    def blobs(self) -> Iterator[FoundBlob]:
        if self.moves is not None:
            self.moves()
        yield from super().blobs()


async def test_a_sweep_of_the_former_place_that_is_under_way_leaves_what_the_new_place_has(
    two_places: TwoPlaces, tmp_path: Path
) -> None:
    blobs = _MovesMeanwhile(tmp_path)
    blobs.put(orphan := uuid4(), 0, b"left of a crash")
    old = datetime.now(UTC).timestamp() - 2 * HOUR.total_seconds()
    os.utime(tmp_path / orphan.hex[:2] / orphan.hex, (old, old))
    young = uuid4()

    def move() -> None:
        up_to(two_places, Step.DONE)
        blobs.put(young, 0, b"of an upload at the new place")

    blobs.moves = move
    threads = BlobThreads(blobs, 2, deadline_s=90)
    async with Store(_settings(two_places.source)) as source:
        done = await Sweep(source, threads, HOUR).run_once()
    threads.close()

    assert done.orphans == 1
    assert {each.blob for each in FolderBlobs(tmp_path).blobs()} == {young}
