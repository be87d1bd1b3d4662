"""What answers calls while it is not known whether the store is one of several cells: it does not answer."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from duly_core.errors import StoreUnavailableError
from duly_core.rpc.server import RpcServer
from duly_core.rpc.stubs import Context
from duly_wire.v1 import hsc_pb2, hsc_pb2_grpc


class WaitingServicer(hsc_pb2_grpc.HscServiceServicer):
    """Says of each call that the store is away."""

    async def ClaimTask(self, _request: hsc_pb2.ClaimTaskRequest, _context: Context) -> NoReturn:  # noqa: N802
        _refuse()

    async def ClaimWork(self, _request: hsc_pb2.ClaimWorkRequest, _context: Context) -> NoReturn:  # noqa: N802
        _refuse()

    async def Heartbeat(self, _request: hsc_pb2.HeartbeatRequest, _context: Context) -> NoReturn:  # noqa: N802
        _refuse()

    async def SetResults(self, _request: hsc_pb2.SetResultsRequest, _context: Context) -> NoReturn:  # noqa: N802
        _refuse()

    async def Release(self, _request: hsc_pb2.ReleaseRequest, _context: Context) -> NoReturn:  # noqa: N802
        _refuse()

    async def Work(self, _requests: object, _context: Context) -> NoReturn:  # type: ignore[override]  # noqa: N802
        _refuse()


def _refuse() -> NoReturn:
    raise StoreUnavailableError("Postgres does not answer (store.dsn): this HSC waits for it")


class Waiting:
    """A server that refuses calls, and says NOT_SERVING, until it is known what to serve."""

    def __init__(self, make: Callable[[], RpcServer]) -> None:
        """Make one; `make` makes its server when it is needed."""
        self._make = make
        self._server: RpcServer | None = None
        self._address = ""
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Begin to refuse calls, unless it does so already.

        Raises:
            PortInUseError: somebody else listens there.
        """
        async with self._turn:
            if self._server is None:
                self._server = self._make()
                self._address = await self._server.start()

    async def stop(self) -> str:
        """Free the address, and return it; empty: it was not needed."""
        async with self._turn:
            if self._server is not None:
                await self._server.stop()
            return self._address
