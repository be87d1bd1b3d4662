"""`duly up` and `duly demo`: the whole of Duly on this machine."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from duly_cli.startup.light_start import command_lambdas, http_lambdas
from duly_cli.startup.option_values import invalid
from duly_cli.startup.programs import Lambdas, Program, program_of

_PANEL = "On this machine"
_LAST_PORT = 65_535
_MOST_CELLS = 26


def add_commands(app: typer.Typer) -> None:
    """Add the stack's commands."""
    app.command(rich_help_panel=_PANEL)(up)
    app.command(rich_help_panel=_PANEL)(demo)


OptionalQueue = Annotated[
    Literal["store", "sqs"] | None,
    typer.Option(
        show_default="queue.backend, which is store unless it is set",
        help="store (Postgres only) or sqs. For sqs without AWS settings or --endpoint-url, a local server (moto) is started.",
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
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.toml",
            help="A file of HTTP lambdas; a worker runs for each. May be repeated.",
            show_default=False,
        ),
    ] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.toml",
            help="A file of command lambdas; a worker runs for each. May be repeated.",
            show_default=False,
        ),
    ] = None,
    program: Program = None,
    lambdas: Lambdas = None,
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
    elastic: Annotated[
        bool,
        typer.Option(
            "--elastic",
            help="Start and end workers as tasks need them, by an autoscaler with a pool for each application.",
        ),
    ] = False,
    max_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --elastic: the most workers of each application.",
            show_default="as many as processors",
        ),
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_CELLS,
            help="Keep namespaces in so many cells, a, b, ...: schemas of this Postgres. Later starts go on with them; a higher number adds.",
            show_default="those that --data has",
        ),
    ] = None,
    free_ports: Annotated[
        bool,
        typer.Option(
            "--free-ports", help="Use free ports instead of the usual ones (7401, ...), and print them."
        ),
    ] = False,
    debug_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_LAST_PORT,
            help="While you write callbacks: let a debugger attach to them at this port of 127.0.0.1; with several applications, "
            "at the ports that follow. max_runtime does not hold then.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the whole of Duly on this machine: Postgres, the server, and a worker for each application."""
    from duly_core.errors import DulyError
    from duly_core.process.service import EXIT_CONFIG, fail
    from duly_core.queues.settings import QueueSettings
    from duly_local.options import StackOptions, default_data_directory
    from duly_local.stack import up as run_stack

    if max_workers is not None and not elastic:
        raise invalid("--max-workers", "only with --elastic")
    if reload and elastic:
        raise invalid("--reload", "not with --elastic: its workers come and go")
    if debug_port is not None:
        _check_debug_port(
            debug_port, len(apps or ()), has_others=bool(http or commands or program), elastic=elastic
        )
    served = program_of(program, lambdas or ())
    try:
        queue = queue or QueueSettings.load().backend
    except DulyError as error:
        fail("up", error, EXIT_CONFIG)
    options = StackOptions(
        data_directory=data or default_data_directory(),
        dsn=dsn,
        queue=queue,
        endpoint_url=endpoint_url,
        apps=(
            *(apps or ()),
            *map(http_lambdas, http or ()),
            *map(command_lambdas, commands or ()),
            *([served] if served else ()),
        ),
        executors=executors,
        processes=processes,
        slots=slots,
        reload=reload,
        separate=separate,
        profile=profile,
        ports="free" if free_ports else "usual",
        console=console,
        elastic=elastic,
        max_workers=max_workers,
        cells=cells,
        debug_port=debug_port,
    )
    sys.exit(asyncio.run(run_stack(options)))


def _check_debug_port(port: int, applications: int, *, has_others: bool, elastic: bool) -> None:
    if elastic:
        raise invalid("--debug-port", "not with --elastic: its workers come and go")
    if has_others or not applications:
        raise invalid("--debug-port", "only with MODULE:APP: nothing else has callbacks in Python")
    if port + applications - 1 > _LAST_PORT:
        raise invalid(
            "--debug-port", f"{applications} applications need ports up to {port + applications - 1}"
        )


def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIRECTORY", help="Files to index.", show_default="Python's standard library"),
    ] = None,
) -> None:
    """Index every file under a directory, over SQS and without a queue; kill an Executor; check every result."""
    from fileindex.demo.command import run_demo

    sys.exit(run_demo(directory))
