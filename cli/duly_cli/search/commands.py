"""`duly search`: what a text may mean, by kind."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, say
from duly_cli.output.table import columns
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_DEFAULT_NAMESPACE = "default"


def add_command(app: typer.Typer) -> None:
    """Add `search`."""
    app.command(rich_help_panel="Tasks")(search)


def search(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="Digits of the begin or the end of an id; a part of a name; the begin of a session's key; a whole idempotency key "
            "or unique key; an attribute, as in order=17; a part of an exception and its message.",
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, max=20, help="How many of each kind at most.")] = 5,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Find tasks, graphs, lambdas, sessions, hosts and causes of dead letters; exit 1 if nothing is found."""
    with connected(address) as client:
        found = client.search(text, limit=limit)
    if not (found or as_json):
        say("nothing was found", err=True)
    else:
        show_all(found, _table, as_object, as_json=as_json)
    if not found:
        raise typer.Exit(1)


def _table(found: "Sequence[duly.SearchHit]") -> Iterable[str]:
    rows = [(_kind(each), each.id, _about(each)) for each in found]
    return columns(("KIND", "FOUND", "ABOUT IT"), rows)


def _kind(hit: "duly.SearchHit") -> str:
    return hit.kind.name.lower().replace("_", " ")


def _about(hit: "duly.SearchHit") -> str:
    if hit.status is not None:
        return f"{hit.lambda_name}, {hit.status.name.lower()}"
    if hit.kind is duly.SearchKind.GRAPH:
        return f"{hit.text}, " + (f"{counted(hit.tasks, 'task')} not ended" if hit.tasks else "finished")
    if hit.kind is duly.SearchKind.SESSION:
        state = ", blocked" if hit.is_marked else ""
        return f"namespace {hit.namespace or _DEFAULT_NAMESPACE}, {counted(hit.tasks, 'task')}{state}"
    if hit.kind is duly.SearchKind.HOST:
        return f"{hit.text}, stopped" if hit.is_marked else hit.text
    if hit.kind is duly.SearchKind.CAUSE:
        return f"{hit.lambda_name}, {counted(hit.tasks, 'dead letter')}: {hit.text}"
    return f"owner {hit.text}" if hit.text else ""
