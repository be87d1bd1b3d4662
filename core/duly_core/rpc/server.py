"""A gRPC server with health, reflection, error mapping and a clear word when its port is taken."""

import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from duly_core.access.audit_entries import AuditLog
from duly_core.access.authorizer import Authorizer
from duly_core.process.ready_pipe import tell_serving
from duly_core.rpc.authentication import Admitter
from duly_core.rpc.call_load import CallLoad
from duly_core.rpc.interceptors import CallObserver, ServerInterceptor
from duly_core.rpc.listening import bind
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.slow_requests import HalfSentRequests
from duly_core.rpc.transport_limits import bounds

_ONE_SERVER_A_PORT = ("grpc.so_reuseport", 0)
"""Two servers on one port by mistake would share its callers."""

_PACKAGES = {"duly_wire.v1": "duly.v1", "duly_wire.externalscaler": "externalscaler"}
"""What a package of stubs is called on the wire."""


class RpcServer:
    """Serves on one address from `start` to `stop`; health says NOT_SERVING until told otherwise."""

    def __init__(
        self,
        listen: str,
        servicers: Sequence[object],
        settings: RpcSettings,
        observe: CallObserver | None = None,
        authorizer: Authorizer | None = None,
        audit_log: AuditLog | None = None,
        health_listen: str = "",
        load: CallLoad | None = None,
    ) -> None:
        """Make one.

        Args:
            listen: HOST:PORT (port 0: any) or unix:PATH.
            servicers: extend those that protoc made; health and reflection are served beside them.
            settings: limits of calls.
            observe: told of each call that ended.
            authorizer: asks each caller who it is; None: nobody is asked.
            audit_log: keeps who changed what, and who was refused; None: nothing is kept.
            health_listen: a second address, for health checks alone; empty: none.
            load: bounds what one caller has at a time; None: nothing does.
        """
        self._listen = listen
        self._address = listen
        self._settings = settings
        self._health = health.aio.HealthServicer()
        self._servicers = servicers
        self._names: list[str] = []
        # on a host's own socket, where messages have no limit, nobody is to be kept out
        is_limited = settings.max_message_bytes >= 0
        self._half_sent = HalfSentRequests(settings.request_timeout) if is_limited else None
        self._server = grpc.aio.server(
            interceptors=[
                ServerInterceptor(
                    observe,
                    counts_fields=is_limited,
                    admitter=None if authorizer is None else Admitter(authorizer),
                    audit_log=audit_log,
                    half_sent=self._half_sent,
                    load=load,
                )
            ],
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
                *bounds(settings),
                _ONE_SERVER_A_PORT,
            ],
        )
        self._health_listen = health_listen
        self._health_server = (
            grpc.aio.server(options=[*bounds(settings), _ONE_SERVER_A_PORT]) if health_listen else None
        )

    async def start(self) -> str:
        """Begin to serve; answer the address in force (the port that was chosen for port 0).

        Raises:
            PortInUseError: somebody else listens there.
            SettingsError: it would serve strangers without TLS, or its certificate cannot be read.
        """
        self._names = [_add(servicer, self._server) for servicer in self._servicers]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server
        )
        self._address = bind(self._server, self._listen, self._settings)
        if self._health_server is not None:
            bind(self._health_server, self._health_listen, self._settings.for_health(self._health_listen))
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._health_server)
        await self.set_serving(serving=False)
        await self._server.start()
        if self._health_server is not None:
            await self._health_server.start()
        if self._half_sent is not None:
            self._half_sent.start()
        return self._address

    async def set_serving(self, *, serving: bool) -> None:
        """What health checks are told, for the server as a whole and for each service."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self._names):
            await self._health.set(name, status)
        if serving:
            tell_serving(self._address)

    async def set_cell_serving(self, cell: str, *, serving: bool) -> None:
        """What health checks are told of one cell: they ask for the service `cell/NAME`."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        await self._health.set(f"cell/{cell}", status)

    async def stop(self) -> None:
        """Refuse new calls, let running ones finish within the grace."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._settings.shutdown_grace.total_seconds())
        if self._health_server is not None:
            await self._health_server.stop(None)
        if self._half_sent is not None:
            self._half_sent.stop()


def _add(servicer: object, server: grpc.aio.Server) -> str:
    """Add a servicer to a server as protoc's module does; return the full name of its service."""
    base = next(each for each in type(servicer).__mro__ if each.__module__.rpartition(".")[0] in _PACKAGES)
    getattr(sys.modules[base.__module__], f"add_{base.__name__}_to_server")(servicer, server)
    return f"{_PACKAGES[base.__module__.rpartition('.')[0]]}.{base.__name__.removesuffix('Servicer')}"
