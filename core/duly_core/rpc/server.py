"""A gRPC server with health, reflection, error mapping and a clear word when its port is taken."""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from duly_core.access.audit import AuditLog
from duly_core.access.authorizer import Authorizer
from duly_core.errors import PortInUseError
from duly_core.ready_pipe import tell_serving
from duly_core.rpc.admission import Admitter
from duly_core.rpc.bounds import bounds
from duly_core.rpc.half_sent import HalfSentRequests
from duly_core.rpc.interceptors import CallObserver, ServerInterceptor
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.tls import refuse_strangers, server_credentials


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
    ) -> None:
        """Make one.

        Args:
            listen: HOST:PORT (port 0: any) or unix:PATH.
            servicers: extend those that protoc made; health and reflection are served beside them.
            settings: limits of calls.
            observe: told of each call that ended.
            authorizer: asks each caller who it is; None: nobody is asked.
            audit_log: keeps who changed what, and who was refused; None: nothing is kept.
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
                )
            ],
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
                *bounds(settings),
                ("grpc.so_reuseport", 0),  # two servers on one port by mistake would share its callers
            ],
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
        self._refuse_a_taken_socket()
        is_local = self._listen.startswith("unix")
        credentials = None if is_local else server_credentials(self._settings)
        if credentials is None and not is_local and not self._settings.allow_plaintext:
            refuse_strangers(self._listen)
        try:
            port = (
                self._server.add_insecure_port(self._listen)
                if credentials is None
                else self._server.add_secure_port(self._listen, credentials)
            )
        except RuntimeError as error:
            raise PortInUseError(
                f"cannot listen on {self._listen}: another process holds it, or the address is not this machine's; "
                "stop that process or choose another `listen` address"
            ) from error
        await self.set_serving(serving=False)
        await self._server.start()
        if self._half_sent is not None:
            self._half_sent.start()
        if not self._listen.startswith("unix:"):
            host, separator, _ = self._listen.rpartition(":")
            self._address = f"{host}{separator}{port}"
        return self._address

    def _refuse_a_taken_socket(self) -> None:
        """gRPC would take a unix socket away from its live owner; a dead one's file is removed."""
        if not self._listen.startswith("unix:"):
            return
        path = self._listen.removeprefix("unix:")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except FileNotFoundError:
                return
            except ConnectionRefusedError:
                Path(path).unlink()
                return
            except OSError as error:
                raise PortInUseError(f"cannot listen on {self._listen}: {error}") from error
        raise PortInUseError(
            f"cannot listen on {self._listen}: another process serves there; stop it or choose another socket"
        )

    async def set_serving(self, *, serving: bool) -> None:
        """What health checks are told, for the server as a whole and for each service."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self._names):
            await self._health.set(name, status)
        if serving:
            tell_serving(self._address)

    async def stop(self) -> None:
        """Refuse new calls, let running ones finish within the grace."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._settings.shutdown_grace.total_seconds())
        if self._half_sent is not None:
            self._half_sent.stop()


def _add(servicer: object, server: grpc.aio.Server) -> str:
    """Add a servicer to a server as protoc's module does; return the full name of its service."""
    base = next(each for each in type(servicer).__mro__ if each.__module__.startswith("duly.v1."))
    getattr(sys.modules[base.__module__], f"add_{base.__name__}_to_server")(servicer, server)
    return f"duly.v1.{base.__name__.removesuffix('Servicer')}"
