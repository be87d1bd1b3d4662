"""How the console's HTTP server treats connections that say nothing."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from duly_console import http_server
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
