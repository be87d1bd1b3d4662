"""What answers calls while it is not known whether the store is one of several cells: it does not answer."""

from typing import NoReturn

from duly_core.errors import StoreUnavailableError
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
