"""How the console's HTTP server treats connections that say nothing or little, and too many of them."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from starlette.responses import PlainTextResponse

from duly_console import http_server
from duly_console.connections import Connections
from duly_console.http_server import HttpServer
from duly_console.settings import ConsoleSettings
from duly_core.rpc.settings import RpcSettings

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture
async def port(monkeypatch):
    monkeypatch.setattr(http_server, "_IDLE_SECONDS", 0.2)
    server = HttpServer(PlainTextResponse("ok"), ConsoleSettings(listen="127.0.0.1:0"), RpcSettings())
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(stop))
    yield int(server.address.rpartition(":")[2])
    stop.set()
    await serving


@pytest.mark.parametrize("said", [b"", b"GET / HT", REQUEST + b"GET / HT"])
async def test_a_connection_on_which_no_whole_request_arrives_is_ended(port, said):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)

    async with asyncio.timeout(20):
        try:
            answer = await reader.read()
        except ConnectionResetError:
            answer = b""
    writer.close()

    assert (b"200 OK" in answer) == said.startswith(REQUEST)


async def test_an_answer_may_take_longer_than_the_head_of_its_request(monkeypatch):
    monkeypatch.setattr(http_server, "_IDLE_SECONDS", 0.05)
    waited = asyncio.Event()

    async def slow(scope, receive, send):
        asyncio.get_running_loop().call_later(0.3, waited.set)
        await waited.wait()
        await PlainTextResponse("late")(scope, receive, send)

    server = HttpServer(slow, ConsoleSettings(listen="127.0.0.1:0"), RpcSettings())
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(stop))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    writer.write(REQUEST)

    async with asyncio.timeout(20):
        head = await reader.readuntil(b"late")
    writer.close()
    stop.set()
    await serving

    assert b"200 OK" in head


@asynccontextmanager
async def served(app, **settings):
    """Serve an application; yields the port."""
    server = HttpServer(app, ConsoleSettings(listen="127.0.0.1:0", **settings), RpcSettings())
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(stop))
    yield int(server.address.rpartition(":")[2])
    stop.set()
    await serving


async def asked(port, path):
    """Return the status of a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    async with asyncio.timeout(20):
        status = await reader.readuntil(b"\r\n")
    writer.close()
    return int(status.split()[1])


async def test_a_connection_whose_request_was_answered_before_it_had_arrived_is_ended():
    async with served(PlainTextResponse("too late", 504)) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /sign-in HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\ntoken=")

        answer = await reader.read()
    writer.close()

    assert b"504" in answer.splitlines()[0]


async def test_connections_of_one_address_beyond_the_bound_get_503_and_health(monkeypatch):
    monkeypatch.setattr(http_server, "_REFUSED_AFTER", 0)
    async with served(PlainTextResponse("ok"), max_connections_per_address=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await reader.readuntil(b"ok")

        answers = [await asked(port, path) for path in ("/", "/healthz")]
        writer.close()
        async with asyncio.timeout(20):
            while await asked(port, "/") != 200:
                pass

    assert answers == [503, 200]


async def test_behind_a_proxy_an_address_has_no_bound():
    async with served(
        PlainTextResponse("ok"), max_connections_per_address=1, public_url="https://duly.example.com"
    ) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await asked(port, "/") == 200
        writer.close()


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
    ],
)
def test_an_address_of_ipv6_stands_for_its_network(first, second, same):
    connections = Connections(most=10, most_of_one=1)

    assert connections.add(first)
    assert connections.add(second) is not same
    connections.remove(first)
    assert connections.add(first)


def test_all_connections_have_a_bound_and_those_of_a_full_address_do_not_count():
    connections = Connections(most=2, most_of_one=1)

    addresses = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert [connections.add(each) for each in addresses] == [True, False, True, False]
