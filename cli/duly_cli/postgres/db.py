"""`duly db`: what operators do to the store itself."""

from typing import Annotated

import typer

import duly
from duly_cli.access.tokens import Lifetime, Note, ToFile, hand_over
from duly_cli.output.safe_text import say
from duly_cli.startup.exit_codes import exit_code_of
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_duration
from duly_cli.startup.verbs import Verbs

Dsn = Annotated[str | None, typer.Option(help="The Postgres of Duly.", show_default="the setting store.dsn")]

db = Verbs(cls=Noun, help="Change the store itself.")


def add_commands(app: typer.Typer) -> None:
    """Add `db`."""
    app.add_typer(db, name="db", rich_help_panel="For operators")
    db.command("grant")(grant)
    db.command("raise-fences")(raise_fences)
    db.command("operator")(operator)


def grant(
    role: Annotated[str, typer.Argument(help="A role of Postgres, such as duly_client.")],
    dsn: Dsn = None,
) -> None:
    """Let a role schedule tasks in its own transactions (duly_schedule), and nothing else; make it if it is missing."""
    from duly_core.errors import DulyError
    from duly_core.postgres.client_role import grant as grant_to
    from duly_core.postgres.password import admin_address

    try:
        is_new = grant_to(admin_address(dsn), role)
    except DulyError as error:
        say(f"duly db grant: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
    say(f"{role}: made, and may call duly_schedule" if is_new else f"{role}: may call duly_schedule")


def raise_fences(
    above: Annotated[
        int,
        typer.Option(
            min=0,
            help="Raise fences above this number: the highest fence that you know of.",
            show_default="none",
        ),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: only say what would change.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Do it although services use the store.")] = False,
    dsn: Dsn = None,
) -> None:
    """After a restore, raise the fences of all tasks above those handed out before, and void all claims.

    Stop all servers and workers before.
    """
    from duly_core.errors import DulyError
    from duly_core.postgres.password import admin_address
    from duly_core.postgres.settings import StoreSettings, direct
    from duly_core.upkeep import fences

    try:
        settings = direct(StoreSettings.load(dsn=dsn))
        settings = settings.model_copy(update={"dsn": admin_address(dsn)})
        done = fences.raise_fences(settings, above=above, dry_run=dry_run, force=force)
    except fences.InUseError as error:
        say(f"duly db raise-fences: {error}", err=True)
        raise typer.Exit(1) from error
    except DulyError as error:
        say(f"duly db raise-fences: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
    changed = "would change" if dry_run else "changed"
    say(f"{changed}: the fences of {done.live} live tasks and {done.dead} dead letters, to {done.floor}")
    say(f"{changed}: {done.held} claims, which are void; their tasks run again, uncharged")
    if dry_run:
        say(
            f"in use: {done.connected} connections of services, {done.leased} claims whose leases are not over"
        )


def operator(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal, such as ann.")],
    lifetime: Lifetime = None,
    note: Note = "first operator",
    to_file: ToFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")] = False,
    dsn: Dsn = None,
) -> None:
    """Make an operator: a token, printed once, and the role for everything. Needs no server, and the right to write into the store."""
    from duly_core.access.operator_without_server import make_operator
    from duly_core.errors import DulyError
    from duly_core.postgres.password import admin_address

    valid = parse_duration(lifetime, "--lifetime")

    def make() -> "duly.NewToken":
        return duly.NewToken(*make_operator(admin_address(dsn), name, lifetime=valid, note=note))

    try:
        hand_over(make, name, to_file, as_json=as_json)
    except DulyError as error:
        say(f"duly db operator: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
