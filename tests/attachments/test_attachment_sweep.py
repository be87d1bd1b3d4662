"""The sweep: what nobody uses goes, what somebody uses or is about to use stays, whatever happens in between."""

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from duly_core.attachments import store as attachments
from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.ownership import Owner
from duly_core.attachments.rules import AttachmentUse
from duly_core.attachments.statements import SWEEPS
from duly_core.attachments.sweep import SweepRound
from duly_core.errors import BlobsUnavailableError
from duly_core.postgres.arrays import byteas, texts
from duly_core.postgres.pool import fetch
from duly_core.tasks import schedule
from duly_core.tasks.task import NewTask, Scheduling
from duly_wire.attachment_rules import PART_BYTES
from duly_wire.ids import new_task_id
from tests.fixtures.attachment_sweeps import open_sweep, problems, rows
from tests.fixtures.attachments import Content, begin, finish, send, upload
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import until

USED = Content(b"a,b\n1,2\n")
UNUSED = Content(os.urandom(PART_BYTES + 10))
DAY = timedelta(days=1)


@pytest.fixture
async def frontend(storing, task_states):
    await task_states.register()
    return storing


@pytest.fixture
async def sweep(store, attachment_folder):
    async with open_sweep(store, attachment_folder) as opened:
        yield opened


def using(content, **fields):
    use = AttachmentUse(content.hash, len(content.data), "data")
    return NewTask(
        **{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}", "attachments": (use,)}
        | fields
    )


async def write(store, *tasks):
    return [each.verdict for each in await schedule.schedule(store, tasks)]


async def hashes(store):
    return {row[0] for row in await rows(store, "select hash from attachment")}


async def test_what_no_task_uses_goes_and_what_one_uses_stays_until_the_task_is_gone(
    frontend, sweep, store, attachment_folder
):
    await upload(frontend, USED, UNUSED)
    task = using(USED)
    await write(store, task)

    first = await sweep.run_once()
    left = await hashes(store)
    await rows(store, "delete from task returning 1")
    second = await sweep.run_once()

    assert (first.attachments, first.bytes, left) == (1, len(UNUSED.data), {USED.hash})
    assert (second.uses, second.attachments) == (1, 1)
    assert await problems(store, attachment_folder) == []
    left_files = {path.name for path in attachment_folder.rglob("*") if path.is_file()}
    assert left_files == {"store-id", "store-turn"}
    assert await rows(store, "select bytes from attachment_usage") == [(0,)]


async def test_what_was_uploaded_or_asked_for_lately_stays(frontend, store, attachment_folder, clock):
    await upload(frontend, USED)
    await begin(frontend, UNUSED)
    async with open_sweep(store, attachment_folder, DAY) as sweep:
        await clock.tick(DAY / 2)
        (found,) = await begin(frontend, USED)
        await clock.tick(DAY * 0.6)

        done = await sweep.run_once()

    assert found.stored
    assert done.attachments == 1
    assert await hashes(store) == {USED.hash}


async def test_an_upload_that_goes_on_for_longer_than_the_grace_is_not_removed(
    store, task_states, attachment_folder, clock, frontend
):
    await begin(frontend, UNUSED)
    async with open_sweep(store, attachment_folder, DAY) as sweep:
        for index in (0, 1):
            await clock.tick(DAY * 0.7)
            await send(frontend, UNUSED.part(index))
            await sweep.run_once()
    (finished,) = await finish(frontend, UNUSED)

    assert not finished.HasField("error")


async def test_a_task_that_is_written_while_the_sweep_looks_keeps_its_attachment(frontend, store, sweep):
    await upload(frontend, USED)
    task = using(USED)
    names = {"namespaces": texts([""]), "hashes": byteas([USED.hash])}
    async with store.connection() as writer, store.connection() as sweeper:
        async with writer.transaction():
            assert not await schedule.missing_of(writer, [task])
            async with sweeper.transaction():
                locked = await fetch(sweeper, SWEEPS["lock_unused"], names | {"grace": timedelta(0)})
            await attachments.write_uses(writer, {task.task_id: (LAMBDA, task.attachments)}, by_run=False)
        # the writer has committed between the sweep's look and its lock
        async with sweeper.transaction():
            locked_later = await fetch(sweeper, SWEEPS["lock_unused"], names | {"grace": timedelta(0)})
            marked = await fetch(sweeper, SWEEPS["mark"], names)

    assert locked == []
    assert len(locked_later) == 1
    assert marked == []


async def test_a_task_that_comes_while_the_sweep_marks_waits_and_is_then_refused(frontend, store, dsn):
    await upload(frontend, USED)
    names = {"namespaces": texts([""]), "hashes": byteas([USED.hash])}
    waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    looker = psycopg.connect(dsn, autocommit=True)
    async with store.connection() as sweeper:
        async with sweeper.transaction():
            await fetch(sweeper, SWEEPS["lock_unused"], names | {"grace": timedelta(0)})
            writing = asyncio.create_task(write(store, using(USED)))
            await until(lambda: looker.execute(waiting).fetchall())
            assert len(await fetch(sweeper, SWEEPS["mark"], names)) == 1

        verdicts = await writing
    looker.close()

    assert verdicts == [Scheduling.ATTACHMENT_MISSING]
    assert await rows(store, "select 1 from attachment_use") == []


async def test_an_upload_that_begins_while_its_old_content_is_removed_is_not_touched(
    frontend, store, sweep, attachment_folder
):
    await upload(frontend, USED)
    await sweep.mark()
    (begun,) = await begin(frontend, USED)
    assert await write(store, using(USED)) == [Scheduling.ATTACHMENT_MISSING]
    await send(frontend, USED.part(0))

    await sweep.remove_marked(SweepRound())
    (finished,) = await finish(frontend, USED)

    assert list(begun.missing_parts) == [0]
    assert not finished.HasField("error")
    assert await write(store, using(USED)) == [Scheduling.CREATED]
    await sweep.run_once()
    assert await problems(store, attachment_folder) == []


async def test_a_sweep_that_died_between_mark_and_removal_goes_on(frontend, store, sweep, attachment_folder):
    await upload(frontend, UNUSED)
    await sweep.mark()
    (gone,) = await rows(store, "select blob from attachment")
    FolderBlobs(attachment_folder).remove(gone[0])  # and before it forgot the row

    assert await write(store, using(UNUSED)) == [Scheduling.ATTACHMENT_MISSING]
    done = await sweep.run_once()

    assert done.attachments == 1
    assert await problems(store, attachment_folder) == []


class _Stubborn(FolderBlobs):
    def __init__(self, folder):
        super().__init__(folder)
        self.fails = 1

    def remove(self, blob):
        if self.fails:
            self.fails -= 1
            raise BlobsUnavailableError("the disk is away")
        super().remove(blob)


async def test_a_blob_that_cannot_be_removed_does_not_keep_the_others_and_goes_later(
    frontend, store, attachment_folder
):
    await upload(frontend, USED, UNUSED)
    async with open_sweep(store, attachment_folder, blobs=_Stubborn(attachment_folder)) as sweep:
        with pytest.raises(BlobsUnavailableError):
            await sweep.run_once()
        left = await hashes(store)
        await sweep.run_once()

    assert len(left) == 1
    assert await hashes(store) == set()


async def test_blobs_of_no_attachment_go_unless_they_are_young(frontend, store, attachment_folder):
    folder = FolderBlobs.open(str(attachment_folder))
    await upload(frontend, USED)
    orphan = uuid4()
    folder.put(orphan, 0, b"left of a crash")
    async with open_sweep(store, attachment_folder, DAY) as patient:
        young = await patient.run_once()
    async with open_sweep(store, attachment_folder) as sweep:
        await write(store, using(USED))
        old = await sweep.run_once()

    assert (young.orphans, old.orphans) == (0, 1)
    assert all(each.changed_at <= datetime.now(UTC) for each in folder.blobs())


async def test_nothing_is_removed_from_the_store_of_another_database(
    frontend, store, sweep, attachment_folder
):
    folder = FolderBlobs.open(str(attachment_folder))
    await upload(frontend, UNUSED)
    folder.put(orphan := uuid4(), 0, b"of somebody else")
    folder.put_marker(another := str(uuid4()))

    done = await sweep.run_once()

    assert (done.owner, done.attachments, done.orphans) == (Owner.ANOTHER, 0, 0)
    assert orphan in {each.blob for each in folder.blobs()}
    assert folder.marker() == another


TURNS = "select turns from attachment_store"


async def put_turns(store, turns):
    async with store.connection() as connection:
        await connection.execute("update attachment_store set turns = %s", [turns])


async def test_a_restored_backup_beside_its_original_removes_nothing_and_neither_does_the_original(
    frontend, store, sweep, attachment_folder
):
    await upload(frontend, UNUSED)
    async with open_sweep(store, attachment_folder, DAY) as patient:
        await patient.run_once()
        ((backup,),) = await rows(store, TURNS)
        await patient.run_once()
    ((original,),) = await rows(store, TURNS)
    await put_turns(store, backup)

    of_the_copy = await sweep.run_once()
    await put_turns(store, original)
    of_the_original = await sweep.run_once()
    left = await hashes(store)
    (attachment_folder / "store-id").unlink()  # the copy is gone
    repaired = await sweep.run_once()

    assert [each.owner for each in (of_the_copy, of_the_original)] == [Owner.COPY, Owner.COPY]
    assert left == {UNUSED.hash}
    assert (repaired.owner, repaired.attachments) == (Owner.OURS, 1)


async def test_sweeps_at_a_time_and_one_that_died_before_it_wrote_its_turn_are_no_copies(
    frontend, store, sweep, attachment_folder
):
    folder = FolderBlobs.open(str(attachment_folder))
    async with open_sweep(store, attachment_folder) as other:
        await sweep.run_once()
        late = folder.turn()
        await asyncio.gather(other.run_once(), sweep.run_once(), other.run_once())
        folder.put_turn(late)

        after_a_late_write = [(await each.run_once()).owner for each in (sweep, other)]

    assert after_a_late_write == [Owner.OURS, Owner.OURS]
    ((turns,),) = await rows(store, TURNS)
    assert folder.turn() == str(turns[0])


@pytest.mark.parametrize(
    "before", ["", "{name}", "{name} {turn}"], ids=["new", "older release", "some states"]
)
async def test_a_sweep_leaves_the_name_as_the_release_before_turns_compares_it(
    frontend, store, sweep, attachment_folder, before
):
    folder = FolderBlobs.open(str(attachment_folder))
    await sweep.run_once()
    ((name, (turn, *_)),) = await rows(store, "select store_id::text, turns from attachment_store")
    (attachment_folder / "store-turn").unlink()
    folder.put_marker(before.format(name=name, turn=turn))

    owners = [(await sweep.run_once()).owner for _ in range(2)]

    assert owners == [Owner.OURS, Owner.OURS]
    assert folder.marker() == name
    assert folder.turn()


class SlowMarker:
    """Blobs whose marker takes a while to read."""

    def __init__(self, blobs: FolderBlobs) -> None:
        self._blobs = blobs
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def marker(self) -> str:
        self.is_asked.set()
        assert self.may_answer.wait(30)
        return self._blobs.marker()

    def __getattr__(self, name: str) -> object:
        return getattr(self._blobs, name)


async def test_a_turn_that_another_server_takes_while_the_marker_is_read_makes_no_copy(
    frontend, store, sweep, attachment_folder
):
    await sweep.run_once()
    slow = SlowMarker(FolderBlobs.open(str(attachment_folder)))
    async with open_sweep(store, attachment_folder, blobs=slow) as other:
        round_of_other = asyncio.ensure_future(other.run_once())
        assert await asyncio.to_thread(slow.is_asked.wait, 30)
        await sweep.run_once()
        slow.may_answer.set()

        done = await round_of_other

    assert done.owner is Owner.OURS
    assert (await sweep.run_once()).owner is Owner.OURS


async def test_a_purge_takes_the_uses_with_it(frontend, store, task_states, sweep):
    from duly_wire.v1 import frontend_pb2

    await upload(frontend, USED)
    await write(store, using(USED))
    await task_states.end_all_that_may_run()

    purged = await frontend.stub.PurgeTasks(frontend_pb2.PurgeTasksRequest(**{"lambda": LAMBDA}))

    assert purged.count == 1
    assert await rows(store, "select 1 from attachment_use") == []
    assert (await sweep.run_once()).attachments == 1
