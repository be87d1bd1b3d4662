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
) -> None:
    """Ask a service whether it serves; exit 0 if it does, else 1. Of several addresses with commas, one must serve."""
    from duly.errors import DulyError
    from duly.transport.channel import check_address
    from duly_cli.fleet.health_check import ask_health
    from duly_wire.peers import split_addresses

    limit = parse_duration(timeout, "--timeout")
    try:
        check_address(address)
    except DulyError as error:
        say(f"duly health: {error}", err=True)
        raise typer.Exit(_EXIT_FAILED) from error
    is_serving = False
    for each in split_addresses(address):
        try:
            status = ask_health(each, limit.total_seconds() if limit else 0)
        except DulyError as error:
            say(f"duly health: {error}", err=True)
            continue
        say(f"{each}: {status}")
        is_serving |= status == "SERVING"
    raise typer.Exit(0 if is_serving else _EXIT_FAILED)
