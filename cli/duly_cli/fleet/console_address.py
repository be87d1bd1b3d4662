"""`duly ui`: opens the console in the browser of this machine."""

import os
import socket
import webbrowser
from typing import Annotated
from urllib.parse import urlsplit

import typer

from duly_cli.output.browser import has_browser
from duly_cli.output.safe_text import one_line, say
from duly_cli.startup.option_values import invalid

_ANSWERS_WITHIN = 2.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (read, not served)


def add_command(app: typer.Typer) -> None:
    """Add `ui`."""
    app.command("ui", rich_help_panel="For operators")(ui)


def ui(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The console's address, such as https://duly.example.com.",
            show_default="console.public_url, else frontend.public_url, else console.listen",
        ),
    ] = "",
    only_print: Annotated[bool, typer.Option("--print", help="Print the address and open nothing.")] = False,
) -> None:
    """Open the console in a browser; without one, print its address. Exit 69 if nothing answers there."""
    address = url or _configured()
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise invalid("URL", f"{address!r} is not an address: write http://127.0.0.1:7480")
    if only_print:
        say(address)
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), timeout=_ANSWERS_WITHIN).close()
    except (OSError, ValueError, UnicodeError) as error:
        say(
            f"duly: no console answers at {one_line(address)}: `duly up` serves one, and prints where (`duly ui URL`); "
            "`duly console` serves it alone",
            err=True,
        )
        raise typer.Exit(os.EX_UNAVAILABLE) from error
    say(address)
    if has_browser():
        webbrowser.open(address)


def _configured() -> str:
    """Return the console's address by the settings."""
    from duly_core.errors import SettingsError
    from duly_core.process.service import EXIT_CONFIG, fail
    from duly_core.rpc.settings import RpcSettings

    try:
        from duly_console.settings import ConsoleSettings
        from duly_frontend.settings import FrontendSettings
    except ModuleNotFoundError as error:
        message = "is needed: this machine has no services, whose settings say where the console is"
        raise invalid("URL", message) from error
    try:
        console = ConsoleSettings.load()
        if public := console.public_url or FrontendSettings.load().public_url:
            return public
        scheme = "https" if RpcSettings.load().cert_file else "http"
    except SettingsError as error:
        fail("ui", error, EXIT_CONFIG)
    host, _, port = console.listen.rpartition(":")
    return f"{scheme}://{_EVERYWHERE.get(host, host)}:{port}"
