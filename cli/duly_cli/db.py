"""`duly db`: what operators do to the store itself."""

import os
from typing import Annotated

import typer

from duly_cli.text import say

db = typer.Typer(no_args_is_help=True, help="Give others rights in the store.")


def add_commands(app: typer.Typer) -> None:
    """Add `db`."""
    app.add_typer(db, name="db", rich_help_panel="For operators")
    db.command("grant")(grant)


@db.callback()
def _group() -> None:
    """Give others rights in the store."""


def grant(
    role: Annotated[str, typer.Argument(help="A role of Postgres, such as duly_client.")],
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres of Duly.", show_default="the setting store.dsn")
    ] = None,
) -> None:
    """Let a role schedule tasks in its own transactions (duly_schedule), and nothing else; make it if it is missing."""
    from duly_core.errors import DulyError, StoreUnavailableError
    from duly_core.store.client_role import grant as grant_to
    from duly_core.store.password import full_address
    from duly_core.store.settings import StoreSettings, direct

    try:
        is_new = grant_to(dsn or full_address(direct(StoreSettings.load(dsn=dsn))), role)
    except DulyError as error:
        say(f"duly db grant: {error}", err=True)
        raise typer.Exit(
            os.EX_UNAVAILABLE if isinstance(error, StoreUnavailableError) else os.EX_CONFIG
        ) from error
    say(f"{role}: made, and may call duly_schedule" if is_new else f"{role}: may call duly_schedule")
