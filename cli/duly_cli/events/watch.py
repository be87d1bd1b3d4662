"""`duly events watch`: what happens to tasks and graphs, as it happens."""

import json
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.task_text import moment_text
from duly_cli.startup.option_values import parse_duration
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected


def watch(
    lambdas: Annotated[
        list[str] | None,
        typer.Option(
            "--lambda",
            help="Only of these lambdas: a name, or a prefix such as 'mail.*'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    graph_id: Annotated[
        str, typer.Option("--graph", metavar="GRAPH_ID", help="Only of this graph.", show_default=False)
    ] = "",
    session: Annotated[
        str, typer.Option(metavar="KEY", help="Only of this session.", show_default=False)
    ] = "",
    namespace: Annotated[
        str, typer.Option(help="The namespace of the session's lambdas.", show_default=False)
    ] = "",
    after: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="Go on behind an event: its position, as --json writes it. Repeat the other options.",
            show_default=False,
        ),
    ] = "",
    keep_for: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="For how long you can go on after you stopped, such as 1h; 10m without it.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many events.", show_default=False)
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Follow what happens to tasks and graphs: runs that end, tasks that end, graphs that finish. Starts are not told.

    It tells what happens after it began. Ctrl-C ends it, and stderr then has the position to go on from with --after.
    """
    with connected(address) as client:
        found = client.watch(
            lambdas=lambdas or (),
            graph=graph_id or None,
            session=session,
            namespace=namespace,
            after=after,
            keep_for=parse_duration(keep_for, "--keep-for"),
        )
        say("[watching]", err=True)
        left = count
        try:
            while left is None or left > 0:
                event = next(found)
                say(json.dumps(as_object(event)) if as_json else line_of(event))
                left = None if left is None else left - 1
        finally:
            say(f"[go on with --after {found.position}]", err=True)


def line_of(event: "duly.TaskEvent") -> str:
    """Return an event as people read it."""
    what, subject = _words(event)
    return one_line("  ".join([moment_text(event.at), f"{what:<24}", subject]).rstrip())


def _words(event: "duly.TaskEvent") -> tuple[str, str]:
    if event.kind is duly.TaskEventKind.GRAPH_FINISHED:
        return f"graph {_name(event.graph_status)}", event.graph_id
    of_graph = f"graph {event.graph_id}" if event.graph_id else ""
    of_session = f"session {event.session}" if event.session else ""
    subject = "  ".join(filter(None, [event.task_id, event.lambda_name, of_session, of_graph]))
    if event.kind is duly.TaskEventKind.TASK_ENDED:
        return f"task {_name(event.status)}", _with_failure(subject, event)
    again = f"next at {moment_text(event.next_at)}" if event.next_at else ""
    return f"run {event.run} {_name(event.outcome)}", "  ".join(
        filter(None, [_with_failure(subject, event), again])
    )


def _with_failure(subject: str, event: "duly.TaskEvent") -> str:
    return f"{subject}  {_name(event.failure_kind)}" if event.failure_kind else subject


def _name(member: object) -> str:
    return str(getattr(member, "name", "")).lower()
