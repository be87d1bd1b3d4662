"""`duly migrate`: brings the store's schema up to this release."""

import os
from typing import Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import invalid

_EXIT_FAILED = 1


def add_command(app: typer.Typer) -> None:
    """Add `migrate`."""
    app.command(rich_help_panel="For operators")(migrate)


def migrate(
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres to migrate.", show_default="the setting store.dsn")
    ] = None,
    *,
    roles: Annotated[
        bool, typer.Option("--roles", help="Also make a role for each service, with the rights it needs.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Change nothing: compare the schema with this release's; exit 78 if it is another.",
        ),
    ] = False,
) -> None:
    """Bring the store's schema up to this release. Services do so themselves only with store.migrate."""
    from duly_core.errors import DulyError
    from duly_core.postgres.password import full_address
    from duly_core.postgres.rights import names
    from duly_core.postgres.schema.comparison import compare
    from duly_core.postgres.schema.migrate import migrate as run_migrations
    from duly_core.postgres.service_roles import make_roles
    from duly_core.postgres.settings import StoreSettings, direct

    if roles and check:
        raise invalid("--check", "changes nothing: leave out --roles")
    try:
        settings = StoreSettings.load(dsn=dsn)
        address = dsn or full_address(direct(settings))
        if check:
            _say_differences(compare(address))
            return
        run_migrations(address)
        made = make_roles(address) if roles else []
    except DulyError as error:
        say(f"duly migrate: {error}", err=True)
        raise typer.Exit(_exit_code(error)) from error
    say("the store's schema is up to date")
    if roles:
        say(f"roles: {', '.join(names())}" + (f" (new: {', '.join(made)})" if made else ""))
        say("give each service a user of its own: create role hsc_user login password '...' in role duly_hsc")


def _say_differences(found: list[str]) -> None:
    for each in found:
        say(each)
    if found:
        raise typer.Exit(os.EX_CONFIG)
    say("the store's schema is this release's")


def _exit_code(error: Exception) -> int:
    from duly_core.errors import SettingsError

    return os.EX_CONFIG if isinstance(error, SettingsError) else _EXIT_FAILED
