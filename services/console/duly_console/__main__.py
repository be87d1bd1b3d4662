"""Wiring of the console: settings, the channel to the Frontend, pages, HTTP server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
from typing import Any

from duly_console.app import console_app, most_streams
from duly_console.changes.streams import Streams
from duly_console.events import log
from duly_console.http_server import HttpServer
from duly_console.oidc.open_oidc import open_oidc
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_core.errors import SettingsError
from duly_core.process.ready_pipe import tell_serving
from duly_core.process.service import Serve, run_service
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_wire.connection_errors import CredentialsError
from duly_wire.credentials import Credentials, check_secrecy


def build(**overrides: object) -> Serve:
    """Read the settings."""
    settings = ConsoleSettings.load(**overrides)
    rpc_settings = RpcSettings.load()
    cookies = SessionCookies.open(settings.secret_file, settings.session_lifetime)
    _check_secrecy(settings, rpc_settings)
    is_secure = bool(rpc_settings.cert_file) or settings.public_url.startswith("https:")
    oidc = open_oidc(settings, secure=is_secure)

    async def serve(stop: asyncio.Event) -> None:
        # a call without a person's token has none: the process's own is no person's
        channel = open_channel(settings.frontend_address, rpc_settings.model_copy(update={"token_file": ""}))
        try:
            streams = Streams(most_streams(settings))
            app = console_app(settings, cookies, channel, secure=is_secure, oidc=oidc, streams=streams)
            server = HttpServer(app, settings, rpc_settings, streams.close)
            log.info("console serves", address=server.address, url=settings.public_url or server.url)
            tell_serving(server.address)
            await server.serve(stop)
        finally:
            await channel.close()

    return serve


def _check_secrecy(settings: ConsoleSettings, rpc: RpcSettings) -> None:
    """Refuse to send people's tokens over a network in the clear."""
    try:
        tls: Any = object() if rpc.ca_file else None  # only whether there is one counts
        shown = Credentials(tls, str)
        check_secrecy(settings.frontend_address, shown, allow_plaintext=rpc.allow_plaintext)
    except CredentialsError as error:
        raise SettingsError(str(error)) from error


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("console", lambda: build(**overrides))


def _from_command_line() -> None:
    parser = argparse.ArgumentParser(prog="duly console", description="Serve Duly's pages for people.")
    parser.add_argument("--listen", default=None, help="HOST:PORT for browsers")
    main(listen=parser.parse_args().listen)


if __name__ == "__main__":
    _from_command_line()
