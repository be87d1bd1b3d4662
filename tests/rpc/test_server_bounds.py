"""What hostile and broken peers may take of a server: time, memory, connections. The others are served meanwhile."""

import asyncio
import gzip
import resource
import struct
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta

import grpc
import psutil
import pytest

from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.transport_limits import most_connections
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc
from tests.fixtures.raw_http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    RawPeer,
    frame,
    headers,
)

SECOND = timedelta(seconds=1)
PATH = "/duly.v1.FrontendService/GetTask"
WATCH = "/grpc.health.v1.Health/Watch"
"""Answers one request many times."""
MIB = 2**20
CANCEL = struct.pack("!I", 8)

FEW_DESCRIPTORS = """
import asyncio, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from tests.rpc.test_server_bounds import serving
async def main():
    async with serving() as address:
        print(address, flush=True)
        await asyncio.sleep(120)
asyncio.run(main())
"""


class Servicer(frontend_pb2_grpc.FrontendServiceServicer):
    """Answers each call; remembers the bytes of metadata that it saw."""

    def __init__(self):
        self.metadata_bytes = []

    async def GetTask(self, _request, context):  # noqa: N802
        self.metadata_bytes.append(sum(len(key) + len(value) for key, value in context.invocation_metadata()))
        return frontend_pb2.GetTaskResponse()


@asynccontextmanager
async def serving(servicer=None, **settings):
    server = RpcServer(
        "127.0.0.1:0", [servicer or Servicer()], RpcSettings(shutdown_grace=timedelta(0), **settings)
    )
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop()


@asynccontextmanager
async def client(address):
    channel = open_channel(address, RpcSettings())
    try:
        yield frontend_pb2_grpc.FrontendServiceStub(channel)
    finally:
        await channel.close()


async def is_served(stub):
    await stub.GetTask(frontend_pb2.GetTaskRequest(), timeout=20, wait_for_ready=True)
    return True


def memory():
    return psutil.Process().memory_info().rss


def read_to(peer, is_it):
    """The first frame that is it; a call that was refused is an error."""
    while (found := peer.next_frame()) is not None:
        if is_it(found):
            return found
        assert b"grpc-status\x011" not in found.payload, found
    raise AssertionError("the server hung up")


async def reads(peer):
    """What the server sends until it hangs up."""
    return await asyncio.to_thread(peer.frames_until_the_end)


@pytest.mark.parametrize("greets", [False, True], ids=["says nothing", "acknowledges no settings"])
async def test_a_connection_that_is_not_begun_properly_is_closed(greets):
    async with serving(handshake_timeout=SECOND) as address:
        with RawPeer(address, greets=greets) as peer:
            found = await reads(peer)

    assert found[-1].kind == GOAWAY
    assert b"settings" in found[-1].payload


async def test_an_idle_connection_is_closed_and_a_client_does_not_notice():
    async with serving(idle_timeout=SECOND) as address, client(address) as stub:
        assert await is_served(stub)
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0))
            found = await reads(peer)
        assert await is_served(stub)

    assert b"connection idle" in found[-1].payload


@pytest.mark.parametrize("path", [PATH, WATCH])
async def test_a_call_whose_request_never_ends_is_ended(path):
    async with serving(request_timeout=SECOND) as address, client(address) as stub:
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0))
            peer.call(1, path)
            peer.send(frame(DATA, 0, 1, b"\0" + struct.pack("!I", 1000) + b"half"))

            def answer():
                while (found := peer.next_frame()) is not None and found.kind != HEADERS:
                    pass
                return found

            found = await asyncio.to_thread(answer)
        assert await is_served(stub)

    assert b"the request did not arrive completely within 1 s (rpc.request_timeout)" in found.payload


@pytest.mark.parametrize("path", [PATH, WATCH])
async def test_a_call_without_a_request_is_refused(path):
    async with serving() as address, client(address) as stub:
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0))
            peer.call(1, path)
            peer.send(frame(DATA, 1, 1))

            def answer():
                while (found := peer.next_frame()) is not None and found.kind != HEADERS:
                    pass
                return found

            found = await asyncio.to_thread(answer)
        assert await is_served(stub)

    assert b"the call has no request" in found.payload


async def test_who_pings_all_the_time_is_hung_up_on():
    async with serving() as address, client(address) as stub:
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0) + frame(PING, 0, 0, b"12345678") * 1000)
            found = await reads(peer)
        assert await is_served(stub)

    assert len(found) < 1100


async def test_metadata_beyond_16_kib_is_refused():
    servicer = Servicer()
    async with serving(servicer) as address, client(address) as stub:
        request = frontend_pb2.GetTaskRequest()
        await stub.GetTask(request, metadata=[("x", "a" * 15_000)], timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetTask(request, metadata=[("x", "a" * 20_000)], timeout=20)
        assert await is_served(stub)

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert max(servicer.metadata_bytes) < 16 * 1024


async def test_headers_that_do_not_end_take_little_memory():
    entries = b"\x00\x01a\x01b" * 3000
    async with serving() as address, client(address) as stub:
        assert await is_served(stub)
        before = memory()
        with RawPeer(address) as peer:
            peer.send(frame(HEADERS, 0, 1, headers(PATH)))
            flood = frame(CONTINUATION, 0, 1, entries) * 100
            for _ in range(30):  # 45 MB on the wire, nine million headers
                await asyncio.to_thread(peer.send, flood)
            grown = memory() - before
            peer.send(frame(CONTINUATION, END_HEADERS, 1, entries))
        assert await is_served(stub)

    assert grown < 400 * MIB


async def test_calls_that_are_begun_and_reset_leave_nothing_behind():
    async with serving() as address, client(address) as stub:
        assert await is_served(stub)
        before = memory()
        with RawPeer(address) as peer:
            for start in range(1, 20_000, 200):
                calls = b"".join(
                    frame(HEADERS, END_HEADERS, stream, headers(PATH)) + frame(RST_STREAM, 0, stream, CANCEL)
                    for stream in range(start, start + 200, 2)
                )
                try:
                    await asyncio.to_thread(peer.send, calls)
                except OSError:  # the server has hung up
                    break
            assert await is_served(stub)

    assert memory() - before < 100 * MIB


async def test_calls_are_served_behind_all_calls_that_another_connection_may_have():
    served = [*range(1, 41, 2)]
    async with serving() as address:
        with RawPeer(address) as flooding, RawPeer(address) as peer:
            # nothing is awaited meanwhile, so the server begins no call; gRPC's threads read the frames
            for each, streams in ((flooding, range(1, 4001, 2)), (peer, served)):
                calls = b"".join(frame(HEADERS, END_HEADERS, stream, headers(PATH)) for stream in streams)
                each.send(frame(SETTINGS, ACK, 0) + calls + frame(PING, 0, 0, b"all read"))
                read_to(each, lambda found: found.kind == PING and found.flags == ACK)
            peer.send(b"".join(frame(DATA, END_STREAM, stream, bytes(5)) for stream in served))
            found = [await asyncio.to_thread(read_to, peer, lambda found: found.kind == DATA) for _ in served]

    assert [each.stream for each in found] == served


async def test_one_connection_has_no_more_calls_at_a_time_than_the_setting():
    async with serving(max_calls_per_connection=5) as address, client(address) as stub:
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0))
            settings = await asyncio.to_thread(peer.next_frame)
            for stream in range(1, 401, 2):
                peer.call(stream, PATH)
            refused = set()

            def count_refused():
                while (
                    (found := peer.next_frame()) is not None and found.kind != GOAWAY and len(refused) < 190
                ):
                    if found.kind == RST_STREAM:
                        refused.add(found.stream)

            await asyncio.wait_for(asyncio.to_thread(count_refused), 20)
        assert await is_served(stub)

    assert b"\x00\x03\x00\x00\x00\x05" in settings.payload
    assert len(refused) >= 190


async def test_a_compressed_bomb_is_refused_before_it_is_unpacked():
    packed = gzip.compress(bytes(200 * MIB), 9)
    assert len(packed) < MIB
    async with serving() as address, client(address) as stub:
        assert await is_served(stub)
        before = memory()
        with RawPeer(address) as peer:
            peer.send(frame(SETTINGS, ACK, 0))
            peer.call(1, PATH, {"grpc-encoding": "gzip"})
            message = b"\1" + struct.pack("!I", len(packed)) + packed
            for place in range(0, len(message), 16_000):
                peer.send(frame(DATA, 0, 1, message[place : place + 16_000]))

            def answer():
                while (found := peer.next_frame()) is not None:
                    if found.kind == HEADERS and b"grpc-message" in found.payload:
                        return found
                return None

            found = await asyncio.to_thread(answer)
        grown = memory() - before
        assert await is_served(stub)

    assert b"larger than max" in found.payload
    assert grown < 50 * MIB


async def test_more_connections_than_allowed_are_closed_and_those_before_are_served():
    async with serving(max_connections=20) as address, client(address) as stub:
        assert await is_served(stub)
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(RawPeer(address, greets=False))
            assert await is_served(stub)
        async with client(address) as another:
            assert await is_served(another)


async def test_with_few_descriptors_those_who_are_connected_are_served():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FEW_DESCRIPTORS, stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        async with client(address) as stub:
            assert await is_served(stub)
            with ExitStack() as stack:
                for _ in range(300):
                    stack.enter_context(RawPeer(address, greets=False))
                assert await is_served(stub)
            async with client(address) as another:
                assert await is_served(another)
    finally:
        process.kill()
        await process.wait()


def test_connections_leave_descriptors_for_other_things(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))

    assert most_connections(RpcSettings()) == 409
    assert most_connections(RpcSettings(max_connections=100)) == 100


@pytest.mark.long  # ten thousand connections; make test has a hundred
async def test_ten_thousand_idle_connections_take_little_memory():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # the server takes 40 % of its descriptors for connections; this process holds the peers' ends too
    descriptors = 26_000 if hard == resource.RLIM_INFINITY else min(26_000, hard)
    count = int(descriptors * 0.4) // 100 * 100 - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        before = memory()
        async with serving(max_connections=count + 10) as address, client(address) as stub:
            with ExitStack() as stack:
                for _ in range(0, count, 100):
                    peers = await asyncio.to_thread(lambda: [RawPeer(address) for _ in range(100)])
                    for peer in peers:
                        stack.enter_context(peer)
                assert await is_served(stub)
                grown = memory() - before
                held = sum(
                    1 for each in psutil.Process().net_connections("tcp") if each.status == "ESTABLISHED"
                )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert held > 2 * count  # nobody was hung up on
    assert grown < count * 40_000
