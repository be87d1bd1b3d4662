"""OutputService: takes what running callbacks print, and gives it to whoever may read their payloads."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from duly_core.access.current import current_access, current_caller
from duly_core.access.roles import Action
from duly_core.errors import OverloadedError
from duly_core.rpc.requests.checks import check_count, read_duration
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.task_output import store as store_output
from duly_core.task_output.store import Claim, Cursor, NewChunk, Page
from duly_core.tasks.scope import task_origins
from duly_core.traffic.group_commit import GroupCommit
from duly_core.traffic.turns import Turns
from duly_frontend.access.reach import readable, refused
from duly_frontend.stores import FrontendStores
from duly_frontend.task_output.wire import chunk_of, chunk_to_wire
from duly_frontend.tasks.wire import NO_SUCH_TASK
from duly_wire.ids import TaskId
from duly_wire.output_rules import MOST_ITEMS
from duly_wire.queue_names import QueueName
from duly_wire.v1 import output_pb2, output_pb2_grpc, task_pb2

_ID_BYTES = 16
_LONGEST_WAIT = timedelta(seconds=30)
_LOOK_EVERY = timedelta(milliseconds=300)
_READERS_OF_ONE = 100
"""Calls of one caller that wait for output."""
_WRITTEN_TOGETHER = 200
_WRITE_TIME_S = 5.0

_NO_SUCH_CLAIM = Problem(
    "claim_token",
    "the task is not held under this token: its claim was lost, or the task has ended",
    task_pb2.ERROR_CODE_NOT_FOUND,
)


class OutputServicer(output_pb2_grpc.OutputServiceServicer):
    """Output is written apart from all that moves tasks: by one statement at a time, and of a caller only in its turns."""

    def __init__(self, stores: FrontendStores, most_bytes: int, turns: Turns) -> None:
        """Make one: `most_bytes` is what is kept of a run."""
        self._stores = stores
        self._most_bytes = most_bytes
        self._turns = turns
        self._readers: Counter[str] = Counter()
        self._closing = asyncio.Event()
        self._write = GroupCommit(self._append, max_items=_WRITTEN_TOGETHER)

    async def AppendOutput(  # noqa: N802 (the wire's name)
        self, request: output_pb2.AppendOutputRequest, _context: Context
    ) -> output_pb2.AppendOutputResponse:
        check_count("items", len(request.items), MOST_ITEMS)
        async with self._turns.turn(current_caller()):
            checked = check_each(_item, request.items)
            items = await self._allowed(checked)
            chunks = [each for each in items if isinstance(each, NewChunk)]
            if chunks and self._most_bytes:
                await self._write(chunks, _WRITE_TIME_S, current_caller())
        return output_pb2.AppendOutputResponse(
            results=[
                output_pb2.AppendOutputResult(error=each.to_wire() if isinstance(each, Problem) else None)
                for each in items
            ]
        )

    async def _allowed(self, checked: Sequence[tuple[Claim, NewChunk] | Problem]) -> list[NewChunk | Problem]:
        claims = list({each[0]: None for each in checked if not isinstance(each, Problem)})
        found = await store_output.claimed_runs(self._stores.reads, claims) if claims else []
        runs = dict(zip(claims, found, strict=True))
        access = current_access()
        items: list[NewChunk | Problem] = []
        for each in checked:
            if isinstance(each, Problem):
                items.append(each)
                continue
            claim, chunk = each
            run = runs[claim]
            if run is None or chunk.fence not in run.fences:
                items.append(_NO_SUCH_CLAIM)
                continue
            name = QueueName.parse(run.lambda_name).lambda_name
            items.append(chunk if access.may(Action.RUN, name) else refused(Action.RUN, name, "task_id"))
        return items

    async def _append(self, chunks: Sequence[NewChunk]) -> list[None]:
        await store_output.append(self._stores.writes, chunks, self._most_bytes)
        return [None] * len(chunks)

    async def ReadOutput(  # noqa: N802
        self, request: output_pb2.ReadOutputRequest, _context: Context
    ) -> output_pb2.ReadOutputResponse:
        wait = timedelta(0)
        if request.HasField("wait"):
            wait = read_duration("wait", request.wait, _LONGEST_WAIT)
        for field in ("fence", "after_fence", "after_number", "tail_bytes"):
            if getattr(request, field) < 0:
                raise Problem(field, "must not be negative")
        try:
            with self._reader(current_caller()):
                task_id = await self._readable(request.task_id)
                page = await self._next(task_id, request, wait)
        except Problem as problem:
            return output_pb2.ReadOutputResponse(error=problem.to_wire())
        return output_pb2.ReadOutputResponse(
            chunks=map(chunk_to_wire, page.chunks), ended=page.is_over, complete=page.is_complete
        )

    async def _readable(self, text: str) -> TaskId:
        task_id = parse_task_id(text)
        seen = await readable(self._stores.reads, [task_id])
        if isinstance(seen.ids[0], Problem):
            raise seen.ids[0]
        if task_id in seen.withheld:
            origins = await task_origins(self._stores.reads, [task_id])
            if task_id not in origins:
                raise NO_SUCH_TASK
            raise refused(Action.READ_PAYLOAD, origins[task_id].lambda_name, "task_id")
        return task_id

    async def _next(self, task_id: TaskId, request: output_pb2.ReadOutputRequest, wait: timedelta) -> Page:
        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        after = Cursor(request.after_fence, request.after_number)
        from_tail = not request.after_fence and (request.last_run or request.tail_bytes > 0)
        reads = self._stores.reads
        while True:
            async with self._turns.turn(current_caller()):
                if from_tail and not after.fence:
                    after = await store_output.tail(reads, task_id, request.fence, request.tail_bytes)
                page = await store_output.read(reads, task_id, after, request.fence)
            if page is None:
                raise NO_SUCH_TASK
            if page.chunks or page.is_complete or self._closing.is_set() or loop.time() >= end:
                return page
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY.total_seconds()):
                    await self._closing.wait()

    @contextmanager
    def _reader(self, caller: str) -> Iterator[None]:
        if self._readers[caller] >= _READERS_OF_ONE:
            raise OverloadedError("too many calls of this caller wait for output", timedelta(seconds=1))
        self._readers[caller] += 1
        try:
            yield
        finally:
            self._readers[caller] -= 1
            if not self._readers[caller]:
                del self._readers[caller]

    def close(self) -> None:
        """Answer the long polls: the server is about to stop."""
        self._closing.set()


def _item(item: output_pb2.AppendOutputItem) -> tuple[Claim, NewChunk]:
    for field in ("task_id", "claim_token"):
        if len(getattr(item, field)) != _ID_BYTES:
            raise Problem(field, f"must be {_ID_BYTES} bytes")
    return Claim(item.task_id, item.claim_token), chunk_of(item.task_id, item.chunk)
