"""What the hops are made of: bare unary calls of bytes, and connections as the services make them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import grpc
import psycopg
from psycopg.rows import TupleRow

from benchmarks import statements
from duly_core.postgres import arrays
from duly_core.postgres.pool import connect_arguments, fetch
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import TRANSITIONS

SIZE = 200
"""Bytes of each request and each answer."""
DEADLINE = 30.0
"""Seconds that a call may take."""
LAMBDA = "bench.hops"

_SERVICE = "bench.Hops"
_METHOD = "Hop"
_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]

Connection = psycopg.AsyncConnection[TupleRow]
Answer = Callable[[bytes], Awaitable[bytes]]
Call = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def serving(address: str, answer: Answer, grace: float = 0) -> AsyncIterator[None]:
    """A server of one method; at its end, calls under way have so many seconds."""

    async def hop(request: bytes, _context: object) -> bytes:
        return await answer(request)

    server = grpc.aio.server()
    handlers = {_METHOD: grpc.unary_unary_rpc_method_handler(hop)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace)


@asynccontextmanager
async def calling(address: str) -> AsyncIterator[Call]:
    """Calls that method."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        method = channel.unary_unary(f"/{_SERVICE}/{_METHOD}")

        async def call(request: bytes) -> bytes:
            answer: bytes = await method(request, timeout=DEADLINE, wait_for_ready=True)
            return answer

        yield call


def packed(*ids: UUID) -> bytes:
    """Ids first, then padding."""
    return b"".join(each.bytes for each in ids).ljust(SIZE, b"x")


def unpacked(message: bytes, place: int = 0) -> UUID:
    """The id at that place."""
    return UUID(bytes=message[16 * place : 16 * (place + 1)])


class Statements:
    """A connection of its own, set up as a service's; notes how long each statement took."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.took: dict[str, list[float]] = {}
        """Microseconds from the question to the answer, by statement."""

    @classmethod
    @asynccontextmanager
    async def on(cls, dsn: str) -> "AsyncIterator[Statements]":
        """Connect."""
        arguments = connect_arguments(StoreSettings(dsn=dsn))
        async with await psycopg.AsyncConnection.connect(**arguments, autocommit=True) as connection:
            connection.prepare_threshold = 0
            for kind in arrays.KINDS:
                connection.adapters.register_dumper(kind, arrays.dumper(kind))
            yield cls(connection)

    async def run(self, name: str, parameters: dict[str, object]) -> list[TupleRow]:
        """One of Duly's, in a transaction of its own."""
        parameters = statements.in_binary(parameters)
        before = time.perf_counter()
        rows = await fetch(self.connection, TRANSITIONS[name], parameters)
        self.note(name, before)
        return rows

    def note(self, name: str, before: float) -> None:
        """That it took from then until now."""
        self.took.setdefault(name, []).append((time.perf_counter() - before) * 1e6)
