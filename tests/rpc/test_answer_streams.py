"""Calls with one request and many answers: what is refused, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from duly_core.errors import InvalidRequestError
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_wire.externalscaler import externalscaler_pb2 as wire
from duly_wire.externalscaler import externalscaler_pb2_grpc
from tests.fixtures.waiting import until

STREAM = "/externalscaler.ExternalScaler/StreamIsActive"
WATCH = "/grpc.health.v1.Health/Watch"

Ask = Callable[[str, bytes], grpc.aio.UnaryStreamCall[bytes, bytes]]


class Scaler(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Does what the name in the request says."""

    def __init__(self) -> None:
        self.is_over = False

    async def StreamIsActive(  # noqa: N802 (the wire's name)
        self, request: wire.ScaledObjectRef, _context: object
    ) -> AsyncIterator[wire.IsActiveResponse]:
        if request.name == "refused":
            raise InvalidRequestError("name", "is not welcome")
        if request.name == "broken":
            raise RuntimeError("a secret")
        try:
            for result in (True, False):
                yield wire.IsActiveResponse(result=result)
            if request.name == "endless":
                await asyncio.Event().wait()
        finally:
            self.is_over = True


@pytest.fixture
def scaler() -> Scaler:
    return Scaler()


@pytest.fixture(params=["port", "socket"])
async def ask(request: pytest.FixtureRequest, scaler: Scaler, tmp_path: Path) -> AsyncIterator[Ask]:
    """Calls a method with bytes, of a server that strangers reach and of one that only this host does."""
    settings = RpcSettings()
    is_local = request.param == "socket"
    server = RpcServer(
        f"unix:{tmp_path}/socket" if is_local else "127.0.0.1:0",
        [scaler],
        settings.for_local_socket() if is_local else settings,
    )
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        yield lambda path, data: channel.unary_stream(path)(data, timeout=20)
    await server.stop()


def named(name: str) -> bytes:
    return wire.ScaledObjectRef(name=name).SerializeToString()


async def test_all_answers_come_and_the_call_ends(ask: Ask, scaler: Scaler) -> None:
    answers = [wire.IsActiveResponse.FromString(each).result async for each in ask(STREAM, named("two"))]

    assert answers == [True, False]
    assert scaler.is_over


@pytest.mark.parametrize(
    ("path", "data", "status", "words"),
    [
        pytest.param(STREAM, b"\x0a\xff", "INVALID_ARGUMENT", "request", id="no message"),
        pytest.param(WATCH, b"\x0a\xff", "INVALID_ARGUMENT", "request", id="no message for health"),
        pytest.param(STREAM, named("refused"), "INVALID_ARGUMENT", "name: is not welcome", id="refused"),
        pytest.param(STREAM, named("broken"), "INTERNAL", "the server's log says more", id="broken"),
    ],
)
async def test_a_call_that_cannot_be_served_ends_with_its_status(
    ask: Ask, path: str, data: bytes, status: str, words: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(path, data).read()

    assert refused.value.code().name == status
    assert words in refused.value.details()
    assert "a secret" not in str(refused.value)


async def test_what_serves_a_call_ends_when_its_caller_hangs_up(ask: Ask, scaler: Scaler) -> None:
    call = ask(STREAM, named("endless"))
    await call.read()

    call.cancel()

    await until(lambda: scaler.is_over)
