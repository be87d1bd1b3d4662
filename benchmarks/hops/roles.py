"""Who stands where on a lone task's way, each a process: as Duly's services, with nothing in them but the hop itself."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import grpc
import psycopg

from benchmarks import statements
from benchmarks.hops.wire import LAMBDA, Statements, calling, packed, serving, unpacked
from duly.ids import new_task_id
from duly_core.queues.message import unpack
from duly_core.queues.postgres_connection import connection_string
from duly_core.queues.postgres_statements import LISTEN, RECEIVE
from duly_core.store.hints import DUE_CHANNEL

_PAYLOAD = b"x" * 100
_ROOM = 100
_RECEIVE = {
    "lambda": LAMBDA,
    "priority": statements.PRIORITY,
    "max_messages": 10,
    "visibility": timedelta(minutes=1),
}
_CALLS_OPEN = 2
"""As many as an Executor has."""

Told = dict[str, Any]
Role = Callable[[Told, Callable[[], None], asyncio.Event], Awaitable[Told]]


async def frontend(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """A call comes; the task is written, and whoever listens is told of it by the same commit."""
    async with Statements.on(told["dsn"]) as store:

        async def schedule(request: bytes) -> bytes:
            ids = [unpacked(request)]
            await store.run("schedule", statements.schedule(ids, LAMBDA, _PAYLOAD, tell=True))
            return packed(*ids)

        async with serving(told["frontend"], schedule):
            ready()
            await stop.wait()
        return {"took_us": store.took}


async def store_consumer(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """Woken by that commit; what is due goes into the queue, and whoever listens there is told."""
    async with Statements.on(told["dsn"]) as store, Statements.on(told["dsn"]) as listening:
        await listening.connection.execute(f"listen {DUE_CHANNEL}")
        ready()

        async def hear() -> None:
            async for _ in listening.connection.notifies():
                await store.run("enqueue_and_send", statements.enqueue_and_send(LAMBDA, _ROOM))

        await _until(stop, hear())
        return {"took_us": store.took}


async def controller(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """Woken by that one; the message is taken, the claim is asked for, and a long poll that waits is answered."""
    link = connection_string(told["dsn"])
    async with (
        await psycopg.AsyncConnection.connect(link, autocommit=True) as listening,
        await psycopg.AsyncConnection.connect(link, autocommit=True) as connection,
        calling(told["hsc"]) as claim,
    ):
        await listening.execute(LISTEN)
        queue = Statements(connection)
        claimed: asyncio.Queue[bytes] = asyncio.Queue()

        async def next_work(_request: bytes) -> bytes:
            return await claimed.get()

        async def receive() -> list[bytes]:
            before = time.perf_counter()
            cursor = await connection.execute(RECEIVE, _RECEIVE, prepare=True, binary=True)
            rows = await cursor.fetchall()
            queue.note("receive", before)
            return [task_id for row in rows for task_id in unpack(row[2])]

        async def hear() -> None:
            async for _ in listening.notifies():
                for task_id in await receive():
                    before = time.perf_counter()
                    answer = await claim(packed(UUID(bytes=task_id)))
                    queue.note("call_of_the_hsc", before)
                    claimed.put_nowait(answer)

        async with serving(told["controller"], next_work):
            ready()
            await _until(stop, hear())
        return {"took_us": queue.took}


async def hsc(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """A claim is asked for and given."""
    async with Statements.on(told["dsn"]) as store:

        async def claim(request: bytes) -> bytes:
            ids = [unpacked(request)]
            rows = await store.run("claim", statements.claim(ids, [new_task_id()], LAMBDA))
            if len(rows) != 1:
                message = f"claimed {len(rows)} tasks where one was enqueued"
                raise RuntimeError(message)
            return packed(*ids)

        async with serving(told["hsc"], claim):
            ready()
            await stop.wait()
        return {"took_us": store.took}


async def executor(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """Has two long polls open; an answer is a start."""
    started: dict[str, int] = {}
    async with calling(told["controller"]) as next_work:

        async def poll() -> None:
            while True:
                try:
                    answer = await next_work(packed())
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                        raise
                    continue
                started[unpacked(answer).hex] = time.time_ns()
                if len(started) == told["tasks"]:
                    stop.set()

        ready()
        await _until(stop, *(poll() for _ in range(_CALLS_OPEN)))
    return {"started": started}


async def client(told: Told, ready: Callable[[], None], _stop: asyncio.Event) -> Told:
    """Calls at an even pace, one at a time."""
    called, took = {}, []
    async with calling(told["frontend"]) as schedule:
        ready()
        for _ in range(told["tasks"]):
            task_id = new_task_id()
            called[task_id.hex] = time.time_ns()
            before = time.perf_counter()
            await schedule(packed(task_id))
            took.append((time.perf_counter() - before) * 1e6)
            await asyncio.sleep(told["every"])
    return {"called": called, "took_us": {"call_of_the_frontend": took}}


ROLES: dict[str, Role] = {
    "hsc": hsc,
    "controller": controller,
    "store_consumer": store_consumer,
    "frontend": frontend,
    "executor": executor,
    "client": client,
}
"""In the order in which they start: each finds those there that it needs."""


async def _until(stop: asyncio.Event, *works: Awaitable[None]) -> None:
    """Work until told to stop, or until one of the works fails."""
    running = [asyncio.ensure_future(work) for work in (stop.wait(), *works)]
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for task in done:
        task.result()
