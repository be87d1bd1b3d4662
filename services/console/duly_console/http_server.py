"""The HTTP server: uvicorn without its clock, so that a console that nobody looks at does nothing."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from duly_console import events
from duly_console.connections import Connections
from duly_console.settings import ConsoleSettings
from duly_console.tls import tls_context
from duly_core.errors import PortInUseError
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.tls import refuse_strangers

HEALTH = "/healthz"
"""The path that load balancers ask."""
_LONGEST_HEAD = 16 * 1024
"""Bytes of a request's line and headers."""
_IDLE_SECONDS = 30
_CROWDED_SECONDS = 2
"""The same for a connection beyond the bounds."""
_REFUSED_AFTER = 1
_CLOSING_SECONDS = 1
"""After an answer to half a request, and for the last words of TLS."""
_HANDSHAKE_SECONDS = 10
_BACKLOG = 128


class _Protocol(H11Protocol):
    """Ends a connection on which no whole head of a request arrives in time: uvicorn waits for the first one without end.

    It also ends one whose request was answered before it had arrived: uvicorn would wait for the rest. Otherwise
    `console.max_connections` such connections would keep everybody else out.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _head_seconds: float = _IDLE_SECONDS

    def __init__(self, connections: Connections, **others: Any) -> None:
        super().__init__(**others)
        self._all = connections
        self._is_within = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_seconds = _IDLE_SECONDS
        self._is_within = self._all.add(self._address)
        if not self._is_within:
            self._head_seconds = _CROWDED_SECONDS
            self.app = partial(_only_health, self.app)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the rest of the request
            self.transport.close()
        if self.transport.is_closing():
            self._await_end()
        elif not self._is_answering:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._is_within:
            self._all.remove(self._address)
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _await_head(self) -> None:
        self._stop_waiting()
        self._head_timer = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _await_end(self) -> None:
        """Let the answer be read, for a moment."""
        self._stop_waiting()
        self._head_timer = self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


async def _only_health(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer on a connection beyond the bounds: a load balancer is to be told that the process serves."""
    if scope["path"] == HEALTH:
        await app(scope, receive, send)
        return
    events.connection_refused(scope["client"][0] if scope["client"] else "")
    await asyncio.sleep(_REFUSED_AFTER)  # it would come again at once, and TLS costs us more than this
    text = "too many connections: try again later"
    headers = {"connection": "close", "retry-after": str(_IDLE_SECONDS)}
    await PlainTextResponse(text, 503, headers)(scope, receive, send)


class _Server(uvicorn.Server):
    """Waits for an event where uvicorn would wake ten times a second, and for no peer that says nothing by TLS."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop = stop
        self._end_streams = end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config = self.config
        is_tls = config.ssl is not None

        def protocol() -> asyncio.Protocol:
            make = cast("Any", config.http_protocol_class)
            return cast("asyncio.Protocol", make(config=config, server_state=self.server_state, app_state={}))

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                protocol,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if is_tls else None,
                ssl_shutdown_timeout=_CLOSING_SECONDS if is_tls else None,
            )
            for each in sockets or ()
        ]
        self.started = True

    async def main_loop(self) -> None:
        self.server_state.default_headers = self.config.encoded_headers
        await self._stop.wait()
        self._end_streams()  # it would wait for them


class HttpServer:
    """Serves an application to browsers."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ConsoleSettings,
        rpc: RpcSettings,
        end_streams: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one, with its socket; `end_streams` ends answers that go on for long, when it stops.

        Raises:
            SettingsError: others could reach it without TLS, or its certificate cannot be used.
            PortInUseError: somebody else listens there.
        """
        self._end_streams = end_streams
        context = tls_context(rpc)
        if context is None and not rpc.allow_plaintext:
            refuse_strangers(settings.listen)
        # behind a proxy all connections are the proxy's
        most_of_one = None if settings.public_url else settings.max_connections_per_address
        connections = Connections(settings.max_connections, most_of_one)
        self._config = uvicorn.Config(
            app,
            http=cast("Any", partial(_Protocol, connections)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=max(1, int(rpc.shutdown_grace.total_seconds())),
        )
        self._config.load()
        self._config.ssl = context
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._socket = _listen(settings.listen)
        host = settings.listen.rpartition(":")[0]
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        """HOST:PORT; the port that was chosen for port 0."""
        self.url = f"{'http' if context is None else 'https'}://{self.address}"

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; running pages may end."""
        await _Server(self._config, stop, self._end_streams)._serve([self._socket])  # noqa: SLF001 (`serve` would take the signals)

    def close(self) -> None:
        """Free the port of a server that never served."""
        self._socket.close()


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise PortInUseError(
            f"cannot listen on {address}: {error.strerror or error}; stop the process that does, or choose another "
            "console.listen"
        ) from error
    listener.setblocking(False)
    return listener
