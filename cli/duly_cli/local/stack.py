"""`duly up`, `duly demo` and what an operator needs around them."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from duly_cli.output.text import say
from duly_cli.startup.option_values import parse_duration

_PANEL = "On this machine"
_OPERATORS = "For operators"

EXIT_FAILED = 1


def add_commands(app: typer.Typer) -> None:
    """Add the stack's commands."""
    app.command(rich_help_panel=_PANEL)(up)
    app.command(rich_help_panel=_PANEL)(demo)


def add_operators_commands(app: typer.Typer) -> None:
    """Add what an operator needs around it."""
    app.command(rich_help_panel=_OPERATORS)(health)
    app.command(rich_help_panel=_OPERATORS)(migrate)
    app.command(rich_help_panel=_OPERATORS)(config)


OptionalQueue = Annotated[
    Literal["store", "sqs"] | None,
    typer.Option(
        show_default="queue.backend, which is store unless it is set",
        help="store (no queue beside Postgres), or sqs: without AWS settings or --endpoint-url a local stand-in (moto) is started.",
    ),
]


def up(
    apps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="Your applications, such as examples.hello:app; a worker runs for each.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where Postgres keeps its data.", show_default="~/.local/share/duly")
    ] = None,
    dsn: Annotated[
        str | None, typer.Option(help="Use this Postgres instead of the embedded one.", show_default=False)
    ] = None,
    queue: OptionalQueue = None,
    endpoint_url: Annotated[str | None, typer.Option(help="Where SQS is.", show_default=False)] = None,
    executors: Annotated[
        int | None, typer.Option(min=1, help="Executors per application.", show_default=False)
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Callback processes per Executor.", show_default=False)
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Callbacks at a time per process.", show_default=False)
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart workers when the files of their application change.")
    ] = False,
    separate: Annotated[
        bool, typer.Option("--separate", help="A process for each service, not one server for all of them.")
    ] = False,
    profile: Annotated[
        Literal["embedded", "production"],
        typer.Option(help="embedded or production: a dead host is noticed after 15 s or 60 s."),
    ] = "embedded",
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Serve the console: pages for people.")
    ] = True,
    free_ports: Annotated[
        bool,
        typer.Option(
            "--free-ports", help="Use free ports instead of the usual ones (7401, ...), and print them."
        ),
    ] = False,
) -> None:
    """Run the whole of Duly on this machine: Postgres, the server, and a worker for each application."""
    from duly_core.errors import DulyError
    from duly_core.process.service import EXIT_CONFIG, fail
    from duly_core.queues.settings import QueueSettings
    from duly_local.options import StackOptions, default_data_directory
    from duly_local.stack import up as run_stack

    try:
        queue = queue or QueueSettings.load().backend
    except DulyError as error:
        fail("up", error, EXIT_CONFIG)
    options = StackOptions(
        data_directory=data or default_data_directory(),
        dsn=dsn,
        queue=queue,
        endpoint_url=endpoint_url,
        apps=tuple(apps or ()),
        executors=executors,
        processes=processes,
        slots=slots,
        reload=reload,
        separate=separate,
        profile=profile,
        ports="free" if free_ports else "usual",
        console=console,
    )
    sys.exit(asyncio.run(run_stack(options)))


def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIRECTORY", help="Files to index.", show_default="Python's standard library"),
    ] = None,
) -> None:
    """Index every file under a directory, over SQS and without a queue; kill an Executor; check every result."""
    from fileindex.demo.command import run_demo

    sys.exit(run_demo(directory))


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
    from duly_cli.fleet.health import ask_health
    from duly_wire.peers import split_addresses

    limit = parse_duration(timeout, "--timeout")
    try:
        check_address(address)
    except DulyError as error:
        say(f"duly health: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error
    is_serving = False
    for each in split_addresses(address):
        try:
            status = ask_health(each, limit.total_seconds() if limit else 0)
        except DulyError as error:
            say(f"duly health: {error}", err=True)
            continue
        say(f"{each}: {status}")
        is_serving |= status == "SERVING"
    raise typer.Exit(0 if is_serving else EXIT_FAILED)


def migrate(
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres to migrate.", show_default="the setting store.dsn")
    ] = None,
    *,
    roles: Annotated[
        bool, typer.Option("--roles", help="Also make a role for each service, with the rights it needs.")
    ] = False,
) -> None:
    """Bring the store's schema up to this release. Services do so themselves only with store.migrate."""
    from duly_core.errors import DulyError
    from duly_core.postgres.migrate import migrate as run_migrations
    from duly_core.postgres.password import full_address
    from duly_core.postgres.rights import names
    from duly_core.postgres.service_roles import make_roles
    from duly_core.postgres.settings import StoreSettings, direct

    try:
        settings = StoreSettings.load(dsn=dsn)
        address = dsn or full_address(direct(settings))
        run_migrations(address)
        made = make_roles(address) if roles else []
    except DulyError as error:
        say(f"duly migrate: {error}", err=True)
        raise typer.Exit(_exit_code(error)) from error
    say("the store's schema is up to date")
    if roles:
        say(f"roles: {', '.join(names())}" + (f" (new: {', '.join(made)})" if made else ""))
        say("give each service a user of its own: create role hsc_user login password '...' in role duly_hsc")


def config(
    only: Annotated[
        str,
        typer.Argument(
            metavar="[FILTER]",
            help="Only settings with this text in their name or meaning: executor, timeout, queue.backend.",
            show_default=False,
        ),
    ] = "",
    toml: Annotated[
        bool, typer.Option("--toml", help="Write a duly.toml with every default instead.")
    ] = False,
) -> None:
    """Show every setting on one screen: its value, where it is set, and its meaning."""
    from duly_cli.settings.config import example_toml, settings_lines
    from duly_core.config.section_names import misspelt_variables
    from duly_core.errors import DulyError

    if toml:
        typer.echo(example_toml(), nl=False)
        return
    try:
        say("\n".join(settings_lines(only)))
    except DulyError as error:
        say(f"duly config: {error}", err=True)
        raise typer.Exit(_exit_code(error)) from error
    for variable, meant in misspelt_variables(os.environ).items():
        say(f"duly config: {variable} is not a setting; do you mean {meant}...?", err=True)


def _exit_code(error: Exception) -> int:
    from duly_core.errors import SettingsError

    return os.EX_CONFIG if isinstance(error, SettingsError) else EXIT_FAILED
