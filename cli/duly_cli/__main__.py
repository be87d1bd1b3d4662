"""The `duly` command: services for operators, tasks for client services, the local stack for everybody.

Each command imports what it needs only when it runs: a host that has no store drivers can still run
`duly worker`, and a client `duly schedule`.
"""

import os
import sys
from collections.abc import Callable
from typing import Annotated

if __name__ == "__main__":
    from duly_cli.startup import light_start

    light_start.run(sys.argv[1:])

try:
    import typer
except ModuleNotFoundError:
    sys.exit("duly: the command needs more than the SDK: pip install 'duly[local]' (or [services], [worker])")

from duly_cli.access import audit, certs, grants, tokens
from duly_cli.attachments import commands as attachments
from duly_cli.capacity import commands as capacity
from duly_cli.cells import commands as cells
from duly_cli.chores import commands as chores
from duly_cli.events import commands as events
from duly_cli.explain import commands as explain
from duly_cli.fleet import activity, backlog, console_address, health, hosts, queues, services, top
from duly_cli.gates import breakers, pausing
from duly_cli.gates import commands as gates
from duly_cli.graphs import commands as graphs
from duly_cli.lambdas import commands as lambdas
from duly_cli.lambdas import register
from duly_cli.limits import commands as resources
from duly_cli.local import conformance, new_project, stack
from duly_cli.oidc import commands as oidc
from duly_cli.pools import autoscaler
from duly_cli.pools import commands as pools
from duly_cli.postgres import db, migrate
from duly_cli.problems import notifications, status
from duly_cli.search import commands as search
from duly_cli.sessions import commands as sessions
from duly_cli.settings import commands as settings
from duly_cli.settings import config
from duly_cli.slo import commands as slo
from duly_cli.startup import completion, partial_answers, run_services
from duly_cli.startup.nouns import Commands
from duly_cli.startup.verbs import Verbs
from duly_cli.task_output import commands as task_output
from duly_cli.tasks import cancel, complete, dead_letters, purge, reveal, run_here, schedule, update
from duly_cli.tasks import commands as tasks
from duly_cli.time_tables import calendars
from duly_cli.time_tables import commands as time_tables

_EXIT_INTERRUPTED = 130

app = Verbs(
    name="duly",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Asynchronous task scheduling: at least once, never twice at a time, on time. Begin with `duly demo`, or with "
    "`duly up examples.hello:app` and, in another terminal, `duly schedule`.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # it reads e-mail, which help does not

        typer.echo(f"duly {version('duly')}")
        raise typer.Exit


def _misplaced(parameter: typer.CallbackParam, value: object) -> None:
    if value:
        message = f"write {parameter.opts[0]} after the command: duly COMMAND ... {parameter.opts[0]}"
        raise typer.BadParameter(message)


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    _as_json: Annotated[bool, typer.Option("--json", callback=_misplaced, hidden=True)] = False,
    _address: Annotated[str, typer.Option("--address", callback=_misplaced, hidden=True)] = "",
    _output: Annotated[str, typer.Option("--output", "-o", callback=_misplaced, hidden=True)] = "",
    _watch: Annotated[bool, typer.Option("--watch", "-w", callback=_misplaced, hidden=True)] = False,
) -> None:
    pass


# in the order in which help shows their panels
stack.add_commands(app)
run_here.add_command(app)
new_project.add_command(app)
conformance.add_command(app)
schedule.add_command(app)
tasks.add_commands(app)
search.add_command(app)
explain.add_command(app)
attachments.add_commands(app)
task_output.add_commands(app)
events.add_commands(app)
chores.add_commands(app)
lambdas.add_commands(app)
update.add_command(app)
cancel.add_command(app)
complete.add_command(app)
time_tables.add_commands(app)
calendars.add_commands(app)
dead_letters.add_commands(app)
purge.add_command(app)
sessions.add_commands(app)
resources.add_commands(app)
pools.add_commands(app)
cells.add_commands(app)
gates.add_commands(app)
breakers.add_commands(app)
pausing.add_commands(app)
backlog.add_commands(app)
hosts.add_commands(app)
queues.add_commands(app)
services.add_commands(app)
top.add_command(app)
status.add_command(app)
notifications.add_commands(app)
console_address.add_command(app)
completion.add_command(app)
reveal.add_command(app)
activity.add_command(app)
slo.add_commands(app)
register.add_command(app)
graphs.add_commands(app)
settings.add_commands(app)
health.add_command(app)
migrate.add_command(app)
config.add_command(app)
grants.add_commands(app)
oidc.add_commands(app)
tokens.add_commands(app)
audit.add_commands(app)
certs.add_command(app)
db.add_commands(app)
capacity.add_command(app)
run_services.add_commands(app)
autoscaler.add_commands(app)


def main(on_loaded: Callable[[], object] = lambda: None) -> None:
    """Run the command that the command line names; `on_loaded` is called when its options are known."""
    command = typer.main.get_command(app)
    completion.prepare(command)
    partial_answers.say_what_is_missing()
    on_loaded()
    try:
        command(prog_name="duly")
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    except RecursionError:
        sys.exit("duly: something that others wrote, such as a payload, is nested too deeply to be shown")
    except BrokenPipeError:  # whoever read has enough: `duly list | head -1`
        _forget_stdout()
        sys.exit(1)
    finally:
        try:
            sys.stdout.flush()  # here, for at the very end it could only complain
        except BrokenPipeError:
            _forget_stdout()


def _forget_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
