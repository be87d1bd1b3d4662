"""`duly db`: what operators do to the store itself."""

import os
from typing import Annotated

import typer

from duly_cli.text import say

db = typer.Typer(no_args_is_help=True, help="Change the store itself.")


def add_commands(app: typer.Typer) -> None:
    """Add `db`."""
    app.add_typer(db, name="db", rich_help_panel="For operators")
    db.command("grant")(grant)
    db.command("raise-fences")(raise_fences)


@db.callback()
def _group() -> None:
    """Change the store itself."""


def grant(
    role: Annotated[str, typer.Argument(help="A role of Postgres, such as duly_client.")],
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres of Duly.", show_default="the setting store.dsn")
    ] = None,
) -> None:
    """Let a role schedule tasks in its own transactions (duly_schedule), and nothing else; make it if it is missing."""
    from duly_core.errors import DulyError, StoreUnavailableError
    from duly_core.store.client_role import grant as grant_to
    from duly_core.store.settings import StoreSettings, direct

    try:
        is_new = grant_to(dsn or direct(StoreSettings.load(dsn=dsn)).dsn, role)
    except DulyError as error:
        say(f"duly db grant: {error}", err=True)
        raise typer.Exit(
            os.EX_UNAVAILABLE if isinstance(error, StoreUnavailableError) else os.EX_CONFIG
        ) from error
    say(f"{role}: made, and may call duly_schedule" if is_new else f"{role}: may call duly_schedule")


def raise_fences(
    above: Annotated[
        int,
        typer.Option(
            min=0, help="A fence that must be exceeded, if one is known to be so high.", show_default="none"
        ),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: only say what would change.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Do it although services use the store.")] = False,
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres of Duly.", show_default="the setting store.dsn")
    ] = None,
) -> None:
    """After a restore, raise the fences of all tasks above those handed out before, and void all claims.

    Stop all servers and workers before.
    """
    from duly_core.errors import DulyError, StoreUnavailableError
    from duly_core.store import fences
    from duly_core.store.settings import StoreSettings, direct

    try:
        settings = direct(StoreSettings.load(dsn=dsn))
        done = fences.raise_fences(settings, above=above, dry_run=dry_run, force=force)
    except fences.InUseError as error:
        say(f"duly db raise-fences: {error}", err=True)
        raise typer.Exit(1) from error
    except DulyError as error:
        say(f"duly db raise-fences: {error}", err=True)
        raise typer.Exit(
            os.EX_UNAVAILABLE if isinstance(error, StoreUnavailableError) else os.EX_CONFIG
        ) from error
    changed = "would change" if dry_run else "changed"
    say(f"{changed}: the fences of {done.live} live tasks and {done.dead} dead letters, to {done.floor}")
    say(f"{changed}: {done.held} claims, which are void; their tasks run again, uncharged")
    if dry_run:
        say(
            f"in use: {done.connected} connections of services, {done.leased} claims whose leases are not over"
        )
