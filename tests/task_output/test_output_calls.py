"""What tasks print, through the Frontend: from a worker that holds their claims, and to readers."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from duly_core.results.store import set_results
from duly_core.task_output.store import MOST_CHUNKS, MOST_RUNS
from duly_core.task_output.sweep import OutputSweep
from duly_core.tasks.task import ClaimedTask, Result
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import new_task_id
from duly_wire.output_rules import CHUNK_BYTES, LATE_FOR
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import output_pb2, task_pb2
from tests.fixtures.services import refusal, serve_frontend

STDOUT, STDERR = output_pb2.OUTPUT_STREAM_STDOUT, output_pb2.OUTPUT_STREAM_STDERR
LIMIT = 64 * 1024
SECOND = timedelta(seconds=1)


@pytest.fixture
async def frontend(store, task_states):
    async with serve_frontend(store, output_limit=LIMIT) as served:
        yield served


@dataclass
class Writer:
    """A worker that runs a task, and sends what it prints."""

    frontend: Any
    task: ClaimedTask
    number: int = 0
    position: int = 0

    def item(self, data: bytes, stream: Any = STDOUT, **changes: Any) -> output_pb2.AppendOutputItem:
        """Return what is sent next, with fields of the chunk changed."""
        self.number += 1
        said = {
            "fence": self.task.fence,
            "number": self.number,
            "position": self.position,
            "plain": output_pb2.OutputPieces(pieces=[output_pb2.OutputPiece(stream=stream, data=data)]),
        }
        self.position += len(data)
        return output_pb2.AppendOutputItem(
            task_id=self.task.task_id,
            claim_token=self.task.token,
            chunk=output_pb2.OutputChunk(**said | changes),
        )

    async def send(self, *items: output_pb2.AppendOutputItem) -> list[str]:
        """Send items; return the codes of their answers."""
        answer = await self.frontend.output.AppendOutput(output_pb2.AppendOutputRequest(items=items))
        codes = [each.error.code for each in answer.results]
        return [task_pb2.ErrorCode.Name(code).removeprefix("ERROR_CODE_") for code in codes]

    async def write(self, *data: bytes) -> None:
        """Send texts to stdout."""
        assert set(await self.send(*map(self.item, data))) == {"UNSPECIFIED"}


def text(task: Any) -> str:
    return str(UUID(bytes=task.task_id))


async def read(frontend, task, **fields):
    request = output_pb2.ReadOutputRequest(task_id=text(task), **fields)
    return await frontend.output.ReadOutput(request)


def written(answer):
    return [(piece.stream, piece.data) for chunk in answer.chunks for piece in chunk.plain.pieces]


async def test_what_a_run_prints_is_read_in_order_and_told_complete_after_its_end(
    frontend, task_states, store, clock
):
    task = await task_states.processing()
    writer = Writer(frontend, task)
    await writer.send(writer.item(b"a\n"), writer.item(b"b\n", STDERR))
    await writer.write(b"c\n")

    running = await read(frontend, task)
    await set_results(store, [Result(task.task_id, task.token, Outcome.SUCCESS)])
    late = await writer.send(writer.item(b"last\n"))
    ended = await read(frontend, task, after_fence=1, after_number=3)
    await clock.tick(LATE_FOR + SECOND)
    complete = await read(frontend, task, after_fence=1, after_number=4)

    assert written(running) == [(STDOUT, b"a\n"), (STDERR, b"b\n"), (STDOUT, b"c\n")]
    assert (running.ended, running.complete) == (False, False)
    assert late == ["UNSPECIFIED"]
    assert written(ended) == [(STDOUT, b"last\n")]
    assert (ended.ended, ended.complete) == (True, False)
    assert (written(complete), complete.complete) == ([], True)


async def test_a_repeat_writes_nothing_again_and_output_that_is_out_of_order_is_passed_over(
    frontend, task_states
):
    task = await task_states.processing()
    writer = Writer(frontend, task)
    items = [writer.item(b"abc"), writer.item(b"def")]
    await writer.send(*items)

    await writer.send(*items)
    await writer.send(writer.item(b"xxx", position=2), writer.item(b"yyy", number=1, position=100))

    assert b"".join(data for _, data in written(await read(frontend, task))) == b"abcdef"


async def test_only_the_holder_of_a_claim_writes_and_only_to_its_own_run(frontend, task_states, store):
    task = await task_states.processing()
    of_other = task._replace(token=os.urandom(16))
    unknown = task._replace(task_id=new_task_id().bytes)
    writer = Writer(frontend, task)

    foreign = await writer.send(Writer(frontend, of_other).item(b"x"), Writer(frontend, unknown).item(b"x"))
    other_run = await writer.send(writer.item(b"x", fence=task.fence + 1))
    await set_results(
        store,
        [
            Result(
                task.task_id,
                task.token,
                Outcome.RETRIABLE_FAILURE,
                failure_kind=FailureKind.CALLBACK,
            )
        ],
    )
    after_a_failure = await writer.send(Writer(frontend, task).item(b"late"))

    assert foreign == ["NOT_FOUND"] * 2
    assert other_run == ["NOT_FOUND"]
    assert after_a_failure == ["UNSPECIFIED"]
    assert written(await read(frontend, task)) == [(STDOUT, b"late")]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"fence": 0}, "chunk.fence"),
        ({"number": 0}, "chunk.number"),
        ({"position": -1}, "chunk.position"),
        ({"plain": output_pb2.OutputPieces()}, "chunk"),
        (
            {"plain": output_pb2.OutputPieces(pieces=[output_pb2.OutputPiece(stream=7, data=b"x")])},
            "chunk.plain.pieces.stream",
        ),
        (
            {"plain": output_pb2.OutputPieces(pieces=[output_pb2.OutputPiece(stream=STDOUT)])},
            "chunk.plain.pieces.data",
        ),
        (
            {
                "plain": output_pb2.OutputPieces(
                    pieces=[output_pb2.OutputPiece(stream=STDOUT, data=bytes(65 * 1024))]
                )
            },
            "chunk",
        ),
        ({"plain": None, "encrypted": bytes(9000), "size_bytes": 4000}, "chunk.size_bytes"),
    ],
)
async def test_an_invalid_chunk_is_refused_by_itself(frontend, task_states, changes, field):
    task = await task_states.processing()
    writer = Writer(frontend, task)
    changes = {name: value for name, value in changes.items() if value is not None}

    answer = await frontend.output.AppendOutput(
        output_pb2.AppendOutputRequest(items=[writer.item(b"good"), writer.item(b"bad", **changes)])
    )

    assert [each.error.field for each in answer.results] == ["", field]
    assert written(await read(frontend, task)) == [(STDOUT, b"good")]


async def test_of_much_output_the_end_is_kept_and_positions_tell_what_is_missing(frontend, task_states):
    task = await task_states.processing()
    writer = Writer(frontend, task)

    for _ in range(10):
        await writer.write(*[bytes(CHUNK_BYTES // 2)] * 2)
    chunks = (await read(frontend, task)).chunks

    kept = sum(chunk.size_bytes for chunk in chunks)
    assert LIMIT // 2 <= kept <= LIMIT * 9 // 8 + CHUNK_BYTES
    assert chunks[0].position + kept == writer.position == 10 * CHUNK_BYTES


async def test_many_small_chunks_and_many_runs_are_bounded_too(frontend, task_states, store):
    task = await task_states.processing()
    writer = Writer(frontend, task)
    writer.number = MOST_CHUNKS * 2 - 2
    await Writer(frontend, task).write(b"first")
    writer.position = 5
    await writer.write(b"x", b"y")

    few = (await read(frontend, task)).chunks
    async with store.connection() as connection:
        await connection.execute("update task_assoc set fence = fence + %s", (MOST_RUNS,))
    later = Writer(frontend, task._replace(fence=task.fence + MOST_RUNS))
    await later.write(b"later")

    assert [chunk.number for chunk in few] == [MOST_CHUNKS * 2 - 1, MOST_CHUNKS * 2]
    assert [chunk.fence for chunk in (await read(frontend, task)).chunks] == [task.fence + MOST_RUNS]


async def test_a_reader_begins_with_the_last_run_or_near_its_end(frontend, task_states, store):
    task = await task_states.processing()
    await Writer(frontend, task).write(b"run 1")
    async with store.connection() as connection:
        await connection.execute("update task_assoc set fence = 2")
    await Writer(frontend, task._replace(fence=2)).write(b"a" * 10, b"b" * 10, b"c" * 10)

    assert len(written(await read(frontend, task))) == 4
    assert [data for _, data in written(await read(frontend, task, last_run=True))] == [
        b"a" * 10,
        b"b" * 10,
        b"c" * 10,
    ]
    assert [data for _, data in written(await read(frontend, task, fence=1))] == [b"run 1"]
    assert [data for _, data in written(await read(frontend, task, tail_bytes=15))] == [b"b" * 10, b"c" * 10]
    assert (await read(frontend, task, fence=1)).ended


async def test_a_long_poll_is_answered_when_something_is_written(frontend, task_states):
    import asyncio

    task = await task_states.processing()
    waiting = asyncio.ensure_future(read(frontend, task, wait=to_duration(20 * SECOND)))
    await Writer(frontend, task).write(b"soon")

    assert written(await waiting) == [(STDOUT, b"soon")]


async def test_unknown_tasks_and_invalid_requests_are_refused(frontend):
    unknown = await frontend.output.ReadOutput(output_pb2.ReadOutputRequest(task_id=str(new_task_id())))
    negative = await refusal(
        frontend.output.ReadOutput(output_pb2.ReadOutputRequest(task_id=str(new_task_id()), tail_bytes=-1))
    )

    assert unknown.error.code == task_pb2.ERROR_CODE_NOT_FOUND
    assert negative.field == "tail_bytes"


async def test_output_leaves_with_its_task(frontend, task_states, store):
    gone, stays = await task_states.processing(), await task_states.processing()
    for task in (gone, stays):
        await Writer(frontend, task).write(b"text")
    async with store.connection() as connection:
        await connection.execute("delete from task_assoc where task_id = %s", (UUID(bytes=gone.task_id),))
        await connection.execute("delete from task where task_id = %s", (UUID(bytes=gone.task_id),))
    sweep = OutputSweep(store)

    await sweep.run_once()

    assert sweep.removed == 1
    assert written(await read(frontend, stays)) == [(STDOUT, b"text")]
    async with store.connection() as connection:
        cursor = await connection.execute("select count(*) from task_output")
        assert await cursor.fetchone() == (1,)


async def test_output_is_not_shown_of_another_task_that_had_the_same_id(frontend, task_states, store):
    task = await task_states.processing()
    await Writer(frontend, task).write(b"not for the next one")
    async with store.connection() as connection:
        await connection.execute("delete from task_assoc where task_id = %s", (UUID(bytes=task.task_id),))
        await connection.execute("delete from task where task_id = %s", (UUID(bytes=task.task_id),))

    await task_states.new(task_id=task.task_id)

    assert written(await read(frontend, task)) == []
