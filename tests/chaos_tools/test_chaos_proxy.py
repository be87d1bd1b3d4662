"""The fault proxy: what each of its states does to connections, and that healing ends it."""

import asyncio
import errno
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.chaos.proxy import BACK, THERE, Proxy
from tests.fixtures.waiting import until

SECOND = timedelta(seconds=1)


@asynccontextmanager
async def serving(handle):
    """A server; its port. When it is over so is every handler."""
    handlers = []

    async def serve(reader, writer):
        handlers.append(asyncio.current_task())
        with suppress(ConnectionError):
            await handle(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0)  # what had just been accepted comes to its handler
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.gather(*handlers)


@asynccontextmanager
async def echoing():
    """A server that says what it hears; and all that it heard."""
    heard = bytearray()

    async def handle(reader, writer):
        while data := await reader.read(65536):
            heard.extend(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        await writer.drain()

    async with serving(handle) as port:
        yield port, heard


@pytest.fixture
async def echo():
    async with echoing() as (port, heard), Proxy("127.0.0.1", port) as proxy:
        yield proxy, heard


async def connect(proxy):
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def ask(stream, data=b"hello"):
    reader, writer = stream
    writer.write(data)
    await writer.drain()
    async with asyncio.timeout(5):
        return await reader.readexactly(len(data))


async def is_silent(stream):
    """Nothing comes for a tenth of a second."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await stream[0].read(1)
    return True


async def timed(awaitable):
    now = asyncio.get_running_loop().time
    begun = now()
    await awaitable
    return now() - begun


async def test_it_passes_everything_both_ways_and_counts(echo):
    proxy, heard = echo
    stream = await connect(proxy)
    much = bytes(range(256)) * 8000

    answer = await ask(stream, much)

    assert answer == much == bytes(heard)
    assert (proxy.counters.there, proxy.counters.back, proxy.counters.accepted) == (len(much), len(much), 1)
    stream[1].close()
    await until(lambda: proxy.connections == 0)


async def test_an_end_is_passed_on_while_the_other_way_stays_open(echo):
    proxy, _ = echo
    reader, writer = await connect(proxy)
    writer.write(b"last words")
    writer.write_eof()

    async with asyncio.timeout(5):
        assert await reader.read(-1) == b"last words"
    writer.close()
    await until(lambda: proxy.connections == 0)


async def test_a_delay_counts_for_each_way_and_healing_lets_go_what_waits(echo):
    proxy, _ = echo
    stream = await connect(proxy)
    await ask(stream)

    await proxy.delay(SECOND / 10, SECOND / 20)
    assert 0.15 <= await timed(ask(stream)) < 3

    await proxy.delay(60 * SECOND)
    waiting = asyncio.create_task(ask(stream))
    assert await is_silent((asyncio.StreamReader(), None))
    await proxy.heal()
    assert await waiting == b"hello"
    stream[1].close()


async def test_jitter_keeps_the_order(echo):
    proxy, _ = echo
    stream = await connect(proxy)
    await proxy.delay(timedelta(0), jitter=SECOND / 50)
    sent = b"".join(bytes([number]) for number in range(200))

    for byte in sent:
        stream[1].write(bytes([byte]))
        await stream[1].drain()
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        assert await stream[0].readexactly(len(sent)) == sent
    stream[1].close()


async def test_a_throttle_bounds_the_rate(echo):
    proxy, _ = echo
    stream = await connect(proxy)

    await proxy.throttle(100_000)

    assert 0.2 <= await timed(ask(stream, bytes(30_000))) < 3
    stream[1].close()


async def test_a_blackhole_is_silent_and_delivers_late_what_it_held(echo):
    proxy, heard = echo
    stream = await connect(proxy)
    await ask(stream)

    await proxy.blackhole()
    stream[1].write(b"late")
    fresh = await connect(proxy)
    fresh[1].write(b"new")
    assert await is_silent(stream)
    assert await is_silent(fresh)
    assert bytes(heard) == b"hello"
    await proxy.heal()

    async with asyncio.timeout(5):
        assert await stream[0].readexactly(4) == b"late"
        assert await fresh[0].readexactly(3) == b"new"
    for _, writer in (stream, fresh):
        writer.close()


async def test_a_lossy_blackhole_resets_what_lost_bytes_and_keeps_the_rest(echo):
    proxy, heard = echo
    loser, keeper = await connect(proxy), await connect(proxy)
    await ask(loser)
    await ask(keeper)

    await proxy.blackhole(lose=True)
    loser[1].write(b"lost")
    await until(lambda: proxy.counters.lost == 4)
    await proxy.heal()

    with pytest.raises(ConnectionResetError):
        await ask(loser)
    assert await ask(keeper) == b"hello"
    assert b"lost" not in heard
    for _, writer in (loser, keeper):
        writer.transport.abort()


@pytest.mark.parametrize(("silent", "arrives"), [(THERE, False), (BACK, True)])
async def test_half_open_is_silent_one_way_only(echo, silent, arrives):
    proxy, heard = echo
    stream = await connect(proxy)
    await ask(stream)

    await proxy.half_open(silent)
    stream[1].write(b"again")
    assert await is_silent(stream)
    assert heard.endswith(b"again") == arrives
    await proxy.heal()

    async with asyncio.timeout(5):
        assert await stream[0].readexactly(5) == b"again"
    stream[1].close()


async def test_the_end_of_a_client_is_not_seen_through_a_blackhole(echo):
    proxy, _ = echo
    stream = await connect(proxy)
    await ask(stream)

    await proxy.blackhole()
    stream[1].transport.abort()
    assert await is_silent((asyncio.StreamReader(), None))
    assert proxy.connections == 1

    await proxy.heal()
    await until(lambda: proxy.connections == 0)


async def test_a_reset_is_an_rst_for_both_ends_and_new_connections_pass():
    errors = []

    async def handle(reader, writer):
        try:
            while await reader.read(1):
                pass
        except ConnectionResetError as error:
            errors.append(error.errno)

    async with serving(handle) as port, Proxy("127.0.0.1", port) as proxy:
        stream = await connect(proxy)
        stream[1].write(b"x")
        await until(lambda: proxy.counters.there == 1)

        await proxy.reset()

        with pytest.raises(ConnectionResetError):
            await stream[0].read(1)
        await until(lambda: errors)
        assert errors == [errno.ECONNRESET]
        stream[1].transport.abort()
        again = await connect(proxy)
        again[1].write(b"x")
        await until(lambda: proxy.counters.there == 2)
        assert proxy.counters.resets == 1
        again[1].transport.abort()


async def test_refusing_leaves_open_connections_and_healing_listens_on_the_same_port(echo):
    proxy, _ = echo
    stream = await connect(proxy)
    await ask(stream)

    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)
    assert await ask(stream) == b"hello"
    await proxy.heal()

    again = await connect(proxy)
    assert await ask(again) == b"hello"
    for _, writer in (stream, again):
        writer.close()


async def test_a_target_that_is_not_there_resets_the_client(unused_tcp_port):
    async with Proxy("127.0.0.1", unused_tcp_port) as proxy:
        stream = await connect(proxy)

        with pytest.raises(ConnectionResetError):
            await stream[0].read(1)
        stream[1].transport.abort()
        assert proxy.counters.unreachable == 1


async def test_closing_cuts_every_connection_whatever_the_state(echo):
    proxy, _ = echo
    stream = await connect(proxy)
    await ask(stream)
    await proxy.blackhole()
    held = await connect(proxy)
    await until(lambda: proxy.connections == 2)

    await proxy.close()

    for reader, writer in (stream, held):
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)


async def test_grpc_calls_time_out_in_a_blackhole_and_come_through_when_it_is_healed():
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Proxy("127.0.0.1", port) as proxy, grpc.aio.insecure_channel(proxy.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await _is_served(stub)

            await proxy.blackhole()
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=0.2)
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await proxy.heal()
            await _is_served(stub)

            await proxy.reset()
            await _is_served(stub)
    finally:
        await server.stop(0)


async def _is_served(stub):
    """A call comes through; one that was cut off on its way is made again, as any client would."""
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=20, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            else:
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
                return
