"""Takes the answer of the identity provider that the browser of this machine brings (RFC 8252). What comes is hostile input."""

import asyncio
import errno
import hmac
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from html import escape
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

_HOST = "127.0.0.1"
_PATH = "/callback"
_READ_WITHIN = 5
"""Seconds for a request."""
_OUTCOME_WITHIN = 30
"""Seconds that the browser waits for what becomes of its answer."""
_TOLD_WITHIN = 3
"""Seconds."""
_MOST_PARAMETERS = 20
_STRANGE = (
    "This answer is not that of the sign-in that `duly login` began here. Open the address that it printed."
)
_USED = "This answer was used before. Return to the terminal."
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    # the address has the code
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PortTakenError(Exception):
    """Another program listens on the port."""


class Loopback:
    """A server on this machine for one answer: that with the state of the sign-in."""

    def __init__(self, state: str, port: int, told: Callable[[str], None]) -> None:
        """Listen.

        Args:
            state: of the sign-in.
            port: 0: any that is free.
            told: is told of answers that are not taken, once for each reason.

        Raises:
            PortTakenError: the port is another program's.
            OSError: it cannot be used.
        """
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError from error
            raise
        self._server.receive = self._receive
        self._server.sent = self._sent
        self._state = state.encode()
        self._told = told
        self._reasons: set[str] = set()
        self._taking = Lock()
        self._is_taken = False
        self._answer: Future[Mapping[str, str]] = Future()
        self._outcome: Future[str] = Future()
        self._told_browser = Event()
        self.authority = f"{_HOST}:{self._server.server_address[1]}"
        self.redirect_uri = f"http://{self.authority}{_PATH}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show("The sign-in was given up. Return to the terminal.")
        self._server.shutdown()
        self._server.server_close()

    async def answer(self) -> Mapping[str, str]:
        """Return what the provider answered."""
        return await asyncio.wrap_future(self._answer)

    def show(self, problem: str = "") -> None:
        """Tell the browser what became of its answer; empty: the person is signed in. The first time counts."""
        with self._taking:
            if not self._outcome.done():
                self._outcome.set_result(problem)

    def drain(self) -> None:
        """Wait until the browser has been told, a moment at most."""
        self._told_browser.wait(_TOLD_WITHIN)

    def _receive(self, target: str, host: str) -> tuple[int, str]:
        """Return the status and the text for a request."""
        parts = urlsplit(target)
        if parts.path != _PATH:
            return 404, "There is nothing here."
        if host != self.authority:
            return self._refused("an answer under another host name was not taken", _STRANGE)
        try:
            said = parse_qsl(
                parts.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, errors="strict"
            )
        except (ValueError, UnicodeError):
            said = []
        values = dict(said)
        is_ours = hmac.compare_digest(values.get("state", "").encode(), self._state)
        if not is_ours or len(values) != len(said):
            return self._refused("an answer of another sign-in (its state differs) was not taken", _STRANGE)
        with self._taking:
            if self._is_taken:
                return 400, _USED
            self._is_taken = True
        if not self._answer.cancelled():
            self._answer.set_result(values)
        try:
            problem = self._outcome.result(_OUTCOME_WITHIN)
        except NotInTimeError:
            problem = "The sign-in takes long. Return to the terminal."
        return (400, problem) if problem else (200, "You are signed in. You may close this page.")

    def _sent(self) -> None:
        """Take note of an answer that was sent."""
        if self._outcome.done():
            self._told_browser.set()

    def _refused(self, reason: str, text: str) -> tuple[int, str]:
        with self._taking:
            is_new = reason not in self._reasons
            self._reasons.add(reason)
        if is_new:
            self._told(reason)
        return 400, text


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    receive: Callable[[str, str], tuple[int, str]]
    sent: Callable[[], None]

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: a browser that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_WITHIN
    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        status, text = self.server.receive(self.path, self.headers.get("Host", ""))
        page = (
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>Duly</title><h1>Duly</h1><p role=status>{escape(text)}</p></html>"
        ).encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
        self.server.sent()

    def version_string(self) -> str:
        """Say no versions."""
        return "duly"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """Write nothing: addresses have codes."""
