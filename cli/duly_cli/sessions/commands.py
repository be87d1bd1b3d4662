"""`duly sessions`: tasks that run one at a time, in order; what stands in a session, and why it does not move on."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.error_text import error_text
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, one_line, say
from duly_cli.output.table import columns
from duly_cli.startup.nouns import Noun
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.bulk import DryRun, Yes, confirm
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell
from duly_wire.queue_names import QueueName

_Key = Annotated[str, typer.Argument(metavar="KEY", help="The session's key.")]

_Namespace = Annotated[
    str,
    typer.Option(
        help="The namespace of its lambdas: what stands before / in their names.", show_default=False
    ),
]

_DEFAULT = "default"
"""The namespace of lambdas without one, as people write it."""

_sessions = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `sessions` with its verbs."""
    app.add_typer(
        _sessions,
        name="sessions",
        rich_help_panel="Tasks",
        help="List sessions, show one, end its block.",
    )


@_sessions.command("list")
def list_sessions(
    blocked: Annotated[bool, typer.Option("--blocked", help="Only those that a failed task blocks.")] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Only those of this namespace; 'default' is that of lambdas without one.", show_default="all"
        ),
    ] = None,
    cell: InCell = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many, by namespace and key.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the sessions that have live tasks or are blocked."""
    with connected(address) as client:
        pages = client.sessions(
            namespace=None if namespace is None else _read(namespace),
            blocked=blocked,
            cell=cell,
            page_size=min(limit, 1000),
        )
        found = list(islice(pages, limit))
    if (blocked or cell) and not found and not as_json:
        say(f"no session{f' of cell {cell}' if cell else ''} {'is blocked' if blocked else 'has live tasks'}")
        return
    show_all(found, _table, _as_json, as_json=as_json)


@_sessions.command("get", hidden=True)
@_sessions.command("show")
def show_session(
    key: _Key,
    namespace: _Namespace = _DEFAULT,
    max_tasks: Annotated[
        int, typer.Option(min=0, max=1000, help="Show at most this many waiting tasks.")
    ] = 10,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show a session: which task may run, which wait, and what blocks it; exit 1 if it has none."""
    with connected(address) as client:
        session = client.get_session(key, namespace=_read(namespace), max_tasks=max_tasks)
    if session is None:
        advice = "; `duly sessions list` shows those of all namespaces"
        say(
            f"duly: the session {key!r} of the namespace {namespace!r} has no live tasks, and is not blocked{advice}",
            err=True,
        )
        raise typer.Exit(1)
    if as_json:
        say(json.dumps(as_object(session)))
        return
    shown = _as_json(session) | {"namespace": _written(session.namespace)}
    values = {name: value for name, value in shown.items() if value}
    for name, value in values.items():
        say(f"{name.replace('_', ' '):>18}  {one_line(str(value))}")
    for place, task_id in enumerate(session.waiting_task_ids):
        say(f"{'' if place else 'next':>18}  {task_id}")


@_sessions.command()
def unblock(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="The keys of sessions; or say --blocked.", show_default=False),
    ] = None,
    namespace: _Namespace = _DEFAULT,
    blocked_by: Annotated[
        str | None,
        typer.Option(
            help="Only if this task blocks it; safe to repeat.", metavar="TASK_ID", show_default=False
        ),
    ] = None,
    blocked: Annotated[
        bool, typer.Option("--blocked", help="All blocked sessions of the namespace.")
    ] = False,
    lambda_name: Annotated[
        str,
        typer.Option(
            "--lambda", help="With --blocked: that a task of this lambda blocks.", show_default=False
        ),
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Let the next task of blocked sessions run; to run the failed tasks again, use `duly redrive`."""
    if bool(keys) is blocked:
        raise typer.BadParameter("say which: keys of sessions, or --blocked")
    if blocked_by is not None and (blocked or len(keys or ()) > 1):
        raise typer.BadParameter("--blocked-by goes with one key")
    if keys and (lambda_name or dry_run):
        raise typer.BadParameter("--lambda and --dry-run go with --blocked")
    with connected(address) as client:
        if blocked:
            _unblock_all(client, _read(namespace), lambda_name, dry_run=dry_run, yes=yes)
            return
        failed = False
        for key in keys or ():
            try:
                client.unblock_session(key, namespace=_read(namespace), blocked_by=blocked_by)
            except duly.DulyError as error:
                if len(keys or ()) == 1:
                    raise
                say(f"{one_line(key)}: {error_text(error)}", err=True)
                failed = True
            else:
                say(f"{one_line(key)}: unblocked")
    if failed:
        raise typer.Exit(1)


def _unblock_all(
    client: "duly.Client", namespace: str, lambda_name: str, *, dry_run: bool, yes: bool
) -> None:
    """Count the blocked sessions of a namespace, ask, and unblock these: what is blocked later stays so."""
    found = [*client.sessions(namespace=namespace, blocked=True, page_size=1000)]
    if lambda_name:
        blockers = client.get_many([each.blocked_by_task_id or "" for each in found])
        found = [
            each
            for each, task in zip(found, blockers, strict=True)
            if task is not None
            and lambda_name in (task.lambda_name, QueueName.parse(task.lambda_name).lambda_name)
        ]
    if not found:
        say("no session is blocked")
        return
    if dry_run:
        say(f"would be unblocked: {len(found):,}")
        return
    if not yes:
        say(f"{counted(len(found), 'blocked session')}: the next task of each runs, without the failed one")
        confirm("unblock", len(found))
    refused = [each for each in client.unblock_sessions(found) if each is not None]
    say(f"unblocked: {len(found) - len(refused):,}")
    if refused:
        say(f"not unblocked: {len(refused):,}, the first because {error_text(refused[0])}", err=True)
        raise typer.Exit(1)


def _read(namespace: str) -> str:
    """Return what the wire has for a namespace as people write it."""
    return "" if namespace == _DEFAULT else namespace


def _written(namespace: str) -> str:
    return namespace or _DEFAULT


def _as_json(session: duly.SessionState) -> dict[str, Any]:
    return as_object(session, left_out=["waiting_task_ids"])


def _table(sessions: Iterable[duly.SessionState]) -> Iterator[str]:
    rows, cells = [], []
    for session in sessions:
        cells.append(session.cell)
        state = session.head_status.name.lower() if session.head_status else "blocked"
        rows.append(
            (
                _written(session.namespace),
                one_line(session.key),
                str(session.length),
                "failing" if session.failing else state,
                session.head_task_id or session.blocked_by_task_id or "",
            )
        )
    if not rows:
        return iter(["no sessions: `duly schedule --session KEY` puts a task into one"])
    heads = ("NAMESPACE", "SESSION", "TASKS", "STATE", "HEAD, OR WHAT BLOCKS IT")
    return columns(*with_cells(heads, rows, cells, before="TASKS"), styles={"STATE": status_style})
