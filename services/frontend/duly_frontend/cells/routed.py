"""The servicers of a Frontend with several cells: each call goes to the router, once there is one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from duly_core.errors import StoreUnavailableError
from duly_core.rpc.call_streams import CallStreams
from duly_core.rpc.interceptors import CallObserver
from duly_core.traffic.turns import Turns
from duly_frontend.cells.cell_units import Handler
from duly_frontend.cells.routes import ROUTES, Streamed
from duly_frontend.cells.services import SERVICES, descriptor_of
from duly_wire.v1 import frontend_pb2


class RoutedServicers:
    """`all` are for one RpcServer; `close` ends their streams."""

    def __init__(
        self,
        handler_of: Callable[[str], Handler],
        call_timeout: timedelta,
        most_bytes: int,
        turns: Turns | None,
        observe: CallObserver,
    ) -> None:
        """Make them.

        Args:
            handler_of: returns what serves a method, by its path.
            call_timeout: how long a call of a stream may wait before it is served.
            most_bytes: how large an answer over a stream may be; negative: as large as it gets.
            turns: of calls of one caller; None: they take none.
            observe: told of each call of a stream that ended.
        """
        self._streams: list[CallStreams] = []
        self.all: list[object] = []
        for base in SERVICES:
            service = descriptor_of(base)
            routes = {
                method.name: ROUTES[f"/{service.full_name}/{method.name}"] for method in service.methods
            }
            served = {
                name: staticmethod(handler_of(f"/{service.full_name}/{name}"))
                for name, route in routes.items()
                if not isinstance(route, Streamed)
            }
            servicer: Any = type(f"Routed{base.__name__}", (base,), dict(served))()
            for name, route in routes.items():
                if isinstance(route, Streamed):
                    streams = CallStreams(
                        servicer,
                        route.methods,
                        frontend_pb2.ScheduleStreamResponse,
                        call_timeout,
                        observe,
                        most_bytes,
                        turns,
                    )
                    setattr(servicer, name, _serve_stream(streams))
                    self._streams.append(streams)
            self.all.append(servicer)

    def close(self) -> None:
        """End the streams."""
        for streams in self._streams:
            streams.close()


class LateHandlers:
    """Serves calls once it is known how: until then they are refused as while Postgres is away."""

    def __init__(self) -> None:
        self._find: Callable[[str], Handler] | None = None

    def serve_by(self, find: Callable[[str], Handler]) -> None:
        """Serve each method from now on by what `find` returns for its path."""
        self._find = find

    def handler(self, path: str) -> Handler:
        """Return what serves a method."""
        found: Handler | None = None

        async def serve(request: Any, context: Any) -> Any:
            nonlocal found
            if found is None:
                if self._find is None:
                    raise StoreUnavailableError("this Frontend waits for Postgres (store.dsn)")
                found = self._find(path)
            return await found(request, context)

        return serve


def _serve_stream(streams: CallStreams) -> Handler:
    async def serve(_requests: object, context: Any) -> None:
        await streams.serve(context)

    return serve
