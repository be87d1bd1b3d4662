# ruff: noqa: N802 (gRPC names a servicer's methods)
"""A Frontend that is late is asked how it is, so that the error says more than that it was late."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import duly
from duly_wire.v1 import frontend_pb2_grpc

SECOND = timedelta(seconds=1)


class Frozen(frontend_pb2_grpc.FrontendServiceServicer):
    """Answers nothing: its store is away."""

    async def Schedule(self, _request: Any, _context: Any) -> Any:
        await asyncio.Event().wait()


class Health(health_pb2_grpc.HealthServicer):
    """Says how it is, unless that is not known."""

    status: int | None = None

    async def Check(self, _request: Any, _context: Any) -> health_pb2.HealthCheckResponse:
        if self.status is None:
            await asyncio.Event().wait()
        return health_pb2.HealthCheckResponse(status=self.status)


@pytest.fixture
async def frozen() -> AsyncIterator[tuple[str, Health]]:
    """The address of such a Frontend, and its health."""
    server, health = grpc.aio.server(), Health()
    frontend_pb2_grpc.add_FrontendServiceServicer_to_server(Frozen(), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", health
    await server.stop(0)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            health_pb2.HealthCheckResponse.NOT_SERVING,
            "it says that it cannot serve now: its Postgres does not answer",
        ),
        (health_pb2.HealthCheckResponse.SERVING, "it says that it serves: it may be overloaded"),
        (None, "nor did it answer a health check"),
    ],
)
async def test_the_error_of_a_late_call_has_what_the_frontend_says_of_itself(frozen, status, said):
    address, health = frozen
    health.status = status

    async with duly.AsyncClient(address) as client:
        for call in (
            client.schedule("mail.send", timeout=SECOND),
            client.schedule_many([duly.NewTask("mail.send")], timeout=SECOND),
        ):
            with pytest.raises(duly.DulyError, match=f"did not answer in time: {said}"):
                await call
