"""Who stands where on a lone task's way, each a process: as Duly's services, with nothing in them but the hop itself."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from benchmarks import statements
from benchmarks.hops.wire import LAMBDA, Statements, calling, packed, serving, unpacked
from duly_core.postgres.channels import DUE_CHANNEL
from duly_core.tasks.task import TOKEN_PREFIX_BYTES
from duly_wire.ids import new_task_id

_PAYLOAD = b"x" * 100
_INSERT = "insert into bench_call (task_id, payload) values (%b, %b)"
_CALLS_OPEN = 2
"""As many as an Executor has."""

_LAST_ANSWERS = 1.0
"""Seconds: a task may have started before the answer to its call is there."""

Told = dict[str, Any]
Role = Callable[[Told, Callable[[], None], asyncio.Event], Awaitable[Told]]


async def frontend(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """A call comes; the task is written, and whoever listens is told of it by the same commit."""
    async with Statements.on(told["dsn"]) as store:

        async def schedule(request: bytes) -> bytes:
            task_id = unpacked(request)
            await store.run("schedule_one", statements.schedule_one(task_id, LAMBDA, _PAYLOAD, tell=True))
            return packed(task_id)

        async with serving(told["frontend"], schedule, _LAST_ANSWERS):
            ready()
            await stop.wait()
        return {"took_us": store.took}


async def hsc(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """Woken by that commit; what is due is claimed, and a long poll that waits is answered."""
    waiting: deque[asyncio.Future[bytes]] = deque()
    look = asyncio.Event()
    async with Statements.on(told["dsn"]) as store, Statements.on(told["dsn"]) as listening:
        await listening.connection.execute(f"listen {DUE_CHANNEL}")

        async def claim_work(_request: bytes) -> bytes:
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            waiting.append(answer)
            if len(waiting) == 1:  # something may have become due while nobody waited
                look.set()
            return await answer

        async def hear() -> None:
            async for _ in listening.connection.notifies():
                look.set()

        async def claim() -> None:
            while await look.wait():
                look.clear()
                if not waiting:
                    continue
                prefix, wanted = os.urandom(TOKEN_PREFIX_BYTES), len(waiting)
                rows = await store.run("claim_work", statements.claim_work(LAMBDA, wanted, prefix))
                claimed = [row[0] for row in rows if row[0] is not None]
                for task_id in claimed:
                    waiting.popleft().set_result(packed(task_id))
                if waiting and len(claimed) == wanted:  # more may be due, for a poll that came meanwhile
                    look.set()

        async with serving(told["hsc"], claim_work):
            ready()
            await _until(stop, hear(), claim())
        return {"took_us": store.took}


async def executor(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """Has two long polls open; an answer is a start."""
    started: dict[str, int] = {}
    async with calling(told["hsc"]) as claim_work:

        async def poll() -> None:
            while True:
                try:
                    answer = await claim_work(packed())
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


async def inserter(told: Told, ready: Callable[[], None], stop: asyncio.Event) -> Told:
    """A call comes, and one row is inserted: what no call that stores anything can do without."""
    async with Statements.on(told["dsn"]) as store:

        async def insert(request: bytes) -> bytes:
            before = time.perf_counter()
            await store.connection.execute(_INSERT, (unpacked(request), _PAYLOAD), prepare=True, binary=True)
            store.note("insert", before)
            return request

        async with serving(told["frontend"], insert, _LAST_ANSWERS):
            ready()
            await stop.wait()
        return {"took_us": store.took}


async def client(told: Told, ready: Callable[[], None], _stop: asyncio.Event) -> Told:
    """Calls at an even pace, one at a time."""
    called, took = {}, []
    async with calling(told["frontend"]) as schedule:
        ready()
        cpu = time.process_time()
        for _ in range(told["tasks"]):
            task_id = new_task_id()
            called[task_id.hex] = time.time_ns()
            before = time.perf_counter()
            await schedule(packed(task_id))
            took.append((time.perf_counter() - before) * 1e6)
            await asyncio.sleep(told["every"])
        cpu = time.process_time() - cpu
    return {"called": called, "took_us": {"call_of_the_frontend": took}, "cpu_s": cpu}


ROLES: dict[str, Role] = {
    "hsc": hsc,
    "frontend": frontend,
    "executor": executor,
    "client": client,
}
"""In the order in which they start: each finds those there that it needs."""

ALONE: dict[str, Role] = {"inserter": inserter, "client": client}
"""The same for the floor of a call."""


async def _until(stop: asyncio.Event, *works: Awaitable[None]) -> None:
    """Work until told to stop, or until one of the works fails."""
    running = [asyncio.ensure_future(work) for work in (stop.wait(), *works)]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:  # a work that goes on holds a connection that is to be closed
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for task in done:
        task.result()
