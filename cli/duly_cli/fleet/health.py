"""`duly health`: asks services whether they serve."""

from typing import Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import parse_duration

_EXIT_FAILED = 1


def add_command(app: typer.Typer) -> None:
    """Add `health`."""
    app.command(rich_help_panel="For operators")(health)


def health(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            envvar="DULY_ADDRESS",
            help="HOST:PORT or unix:PATH of a service; the Frontend's usual one if none is given.",
        ),
    ] = "127.0.0.1:7401",
    timeout: Annotated[str, typer.Option(help="How long to wait for the answer.")] = "3s",
    every: Annotated[bool, typer.Option("--all", help="Of several addresses, all must serve.")] = False,
) -> None:
    """Ask a service whether it serves; exit 0 if it does, else 1. Of several addresses with commas, one must serve."""
    from duly.errors import DulyError
    from duly.transport.channel import check_address
    from duly_cli.fleet.health_check import ask_health
    from duly_wire.peers import split_peers

    limit = parse_duration(timeout, "--timeout")
    try:
        check_address(address)
    except DulyError as error:
        say(f"duly health: {error}", err=True)
        raise typer.Exit(_EXIT_FAILED) from error
    serving = []
    for peer in split_peers(address):
        zone = f"{peer.zone}=" if peer.zone else ""
        try:
            status = ask_health(peer.address, limit.total_seconds() if limit else 0)
        except DulyError as error:
            say(f"duly health: {zone}{error}", err=True)
            serving.append(False)
            continue
        say(f"{zone}{peer.address}: {status}")
        serving.append(status == "SERVING")
    raise typer.Exit(0 if (all(serving) if every else any(serving)) else _EXIT_FAILED)
