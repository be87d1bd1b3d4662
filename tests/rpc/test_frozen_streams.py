"""Streams of calls where there are several servers: the next call goes to another when one does not serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.rpc.channel import open_channel
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_wire.v1 import hsc_pb2, hsc_pb2_grpc
from tests.fixtures.waiting import until
from tests.rpc.test_call_stream import LONG, POLL, SOON, Hsc, results


class Servers:
    """Two HSCs, and the calls of one Executor."""

    def __init__(self) -> None:
        self.hscs = [Hsc(), Hsc()]
        self.calls: HscCallStream | None = None

    async def call(self, timeout: float = LONG) -> hsc_pb2.SetResultsResponse:
        assert self.calls is not None
        return await self.calls.SetResults(results(), timeout)

    def used(self) -> Hsc:
        """The one to which the newest stream is open."""
        return max(self.hscs, key=lambda hsc: hsc.opened)

    def other(self) -> Hsc:
        return min(self.hscs, key=lambda hsc: hsc.opened)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    made = Servers()
    addresses = []
    async with AsyncExitStack() as stack:
        for hsc in made.hscs:
            server = grpc.aio.server()
            hsc_pb2_grpc.add_HscServiceServicer_to_server(hsc, server)
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
            stack.push_async_callback(server.stop, None)
        channel = open_channel(",".join(addresses), RpcSettings())
        stack.push_async_callback(channel.close)
        made.calls = HscCallStream(hsc_stub(channel))
        stack.push_async_callback(made.calls.close)
        await made.call()
        yield made


async def test_after_an_hsc_said_that_it_cannot_serve_the_next_call_goes_to_another(servers: Servers) -> None:
    first, second = servers.used(), servers.other()

    async def cannot_serve(_request: Any) -> Any:
        raise StoreUnavailableError("Postgres is away")

    first.set_results = cannot_serve
    with pytest.raises(grpc.aio.AioRpcError, match="Postgres is away"):
        await servers.call()

    assert len((await servers.call()).verdicts) == 1
    assert second.opened == 1


async def test_after_an_hsc_was_silent_the_next_call_goes_to_another(servers: Servers) -> None:
    first, second = servers.used(), servers.other()
    never = asyncio.Event()

    async def silent(_request: Any) -> Any:
        await never.wait()

    first.set_results = silent
    with pytest.raises(grpc.aio.AioRpcError):
        await servers.call(SOON)

    assert len((await servers.call()).verdicts) == 1
    assert second.opened == 1


async def test_a_poll_at_an_hsc_that_stops_fails_and_the_next_one_waits_at_another(servers: Servers) -> None:
    first, second = servers.used(), servers.other()
    assert servers.calls is not None
    poll = asyncio.ensure_future(servers.calls.ClaimWork(POLL, LONG))
    await until(lambda: first.polled)
    first.streams.close()
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await poll

    second.due.set()
    work = await servers.calls.ClaimWork(POLL, LONG)

    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(work.tasks) == 1
