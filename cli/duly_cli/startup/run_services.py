"""`duly frontend`, `duly worker` and the others: each runs one service in the foreground until SIGTERM or Ctrl-C."""

from typing import Annotated, Literal

import typer

from duly_cli.startup.light_start import command_lambdas, http_lambdas
from duly_cli.startup.option_values import invalid, parse_duration
from duly_cli.startup.programs import Lambdas, Program, program_of

PANEL = "Services (any order, any number of replicas)"

Listen = Annotated[str | None, typer.Option(help="HOST:PORT to serve on.", show_default=False)]
Application = Annotated[
    str,
    typer.Argument(
        help="The application with the lambdas, such as examples.hello:app.", metavar="MODULE:APP"
    ),
]
Processes = Annotated[int | None, typer.Option(help="Callback processes per Executor.", show_default=False)]
Slots = Annotated[
    int | None, typer.Option(help="Callbacks at a time per callback process.", show_default=False)
]
DebugPort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65_535,
        help="While you write callbacks: let a debugger attach to them at this port of 127.0.0.1. max_runtime does not hold then.",
        show_default="executor.debug_port; no port unless it is set",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Add the services' commands."""
    for command in (server, frontend, store_consumer, hsc, console, worker, controller, executor):
        app.command(rich_help_panel=PANEL)(command)


def server(
    roles: Annotated[
        str, typer.Option(help="Which to run, separated by commas; console is one, too.")
    ] = "frontend,store-consumer,hsc",
) -> None:
    """Frontend, Store Consumer and HSC in one process; each has the settings of its own section."""
    from duly_server.__main__ import main

    main(roles)


def frontend(listen: Listen = None) -> None:
    """What client services call: schedules, reads, lists, cancels and waits for tasks."""
    from duly_frontend.__main__ import main

    main(listen=listen)


def store_consumer(
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for health checks.", show_default=False)
    ] = None,
    poll_interval: Annotated[
        str | None,
        typer.Option(help="How often to poll if nothing wakes it, such as 2s.", show_default=False),
    ] = None,
) -> None:
    """Fires time tables, reclaims tasks of silent workers, ends expired tasks, removes old ones; with SQS, sends due tasks to queues."""
    from duly_store_consumer.__main__ import main

    main(listen=listen, poll_interval=poll_interval)


def hsc(listen: Listen = None) -> None:
    """Heartbeat and status controller: writes claims, heartbeats and results for workers."""
    from duly_hsc.__main__ import main

    main(listen=listen)


def console(
    listen: Listen = None,
    frontend_address: Annotated[
        str | None, typer.Option(help="HOST:PORT of the Frontend.", show_default=False)
    ] = None,
) -> None:
    """Pages for people: what waits, runs and failed, and what operators change."""
    try:
        from duly_console.__main__ import main
    except ModuleNotFoundError as error:
        from duly_core.process.service import EXIT_CONFIG, fail

        fail("console", ModuleNotFoundError(f"{error}: pip install 'duly[console]'"), EXIT_CONFIG)
    main(listen=listen, frontend_address=frontend_address)


def worker(
    application: Annotated[
        str | None,
        typer.Argument(
            help="The application with the lambdas, such as examples.hello:app.",
            metavar="MODULE:APP",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            help="Run the HTTP lambdas of this file, instead of an application.",
            metavar="FILE.toml",
            show_default=False,
        ),
    ] = None,
    commands: Annotated[
        str | None,
        typer.Option(
            help="Run the command lambdas of this file, instead of an application.",
            metavar="FILE.toml",
            show_default=False,
        ),
    ] = None,
    program: Program = None,
    lambdas: Lambdas = None,
    owner: Annotated[
        str | None, typer.Option(help="With --exec: who answers for its lambdas.", show_default=False)
    ] = None,
    code_version: Annotated[
        str | None,
        typer.Option(help="With --exec: the version of its code, such as 1.4.2.", show_default=False),
    ] = None,
    messages: Annotated[
        Literal["json", "protobuf"] | None,
        typer.Option(help="With --exec: how it reads and writes messages.", show_default="json"),
    ] = None,
    max_runtime: Annotated[
        str | None,
        typer.Option(help="With --exec: a task that runs longer is ended, such as 5m.", show_default="1h"),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="With --exec: failures after which a task is given up.", show_default="10"),
    ] = None,
    executors: Annotated[int | None, typer.Option(help="Executors on this host.", show_default=False)] = None,
    processes: Processes = None,
    slots: Slots = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="Run tasks of this domain; may be repeated. `default` are the tasks of no domain.",
            show_default="executor.domains, which is default unless it is set",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="What this host can do or is, such as gpu or region=eu; may be repeated. Tasks that require other labels do not "
            "run here.",
            show_default="executor.labels",
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="The pool that this worker belongs to, as `duly pools` lists it: the autoscaler counts it, and may tell it to end.",
            show_default="controller.pool",
        ),
    ] = None,
    exit_when_idle: Annotated[
        str | None,
        typer.Option(
            help="End, with code 0, after so long without a task, such as 5m.",
            show_default="controller.exit_when_idle, which is never unless it is set",
        ),
    ] = None,
    debug_port: DebugPort = None,
) -> None:
    """Runs one application, a file of HTTP or command lambdas, or a program: a Controller and its Executors."""
    from duly_controller.__main__ import run_worker

    served = program_of(
        program,
        lambdas or (),
        owner=owner,
        code_version=code_version,
        messages=messages,
        max_runtime=parse_duration(max_runtime, "--max-runtime"),
        max_attempts=max_attempts,
    )
    files = http and http_lambdas(http), commands and command_lambdas(commands)
    named = [each for each in (application, *files, served) if each]
    if len(named) != 1:
        raise typer.BadParameter(
            "name either an application, as in examples.hello:app, or a file with --http or --commands, or a program with --exec"
        )
    if debug_port is not None and application is None:
        raise invalid("--debug-port", "only with MODULE:APP: nothing else has callbacks in Python")
    domains, labels = (", ".join(each) if each else None for each in (domain, label))
    run_worker(
        named[0],
        processes,
        slots,
        domains,
        labels,
        debug_port,
        executors=executors,
        pool=pool,
        exit_when_idle=exit_when_idle,
    )


def controller(
    listen: Annotated[
        str | None, typer.Option(help="unix:PATH of the local socket.", show_default=False)
    ] = None,
) -> None:
    """A Controller alone, for Executors that you start with `duly executor`."""
    from duly_controller.__main__ import main

    main(listen=listen)


def executor(
    application: Application,
    controller: Annotated[
        str | None, typer.Option(help="The Controller's unix:PATH.", show_default="its default socket")
    ] = None,
    processes: Processes = None,
    slots: Slots = None,
) -> None:
    """An Executor alone, for the Controller of this host."""
    from duly_core.errors import SettingsError
    from duly_core.process.parent import default_socket
    from duly_core.process.service import EXIT_CONFIG, fail
    from duly_executor.__main__ import main

    try:
        address = controller or default_socket()
    except SettingsError as error:
        fail("executor", error, EXIT_CONFIG)
    main(application, address, processes=processes, slots=slots)
