"""`duly backlog`: what is due, runs and is parked of each lambda."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.startup.nouns import LIST, Noun, UnknownNameError
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected


class _Backlog(Noun):
    """`duly backlog LAMBDA` is short for `duly backlog show LAMBDA`."""

    named = LIST


_backlog = Verbs(add_completion=False, cls=_Backlog)


def add_commands(app: typer.Typer) -> None:
    """Add `backlog` with its verbs."""
    app.add_typer(
        _backlog,
        name="backlog",
        rich_help_panel="For operators",
        help="Count what is ready, in queues, held by hosts, and parked, by lambda.",
    )


@_backlog.command("get", hidden=True)
@_backlog.command("show")
@_backlog.command(LIST)
def backlog(
    lambdas: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LAMBDA]...", help="Only these.", show_default=False),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Count what is ready, in queues, held by hosts, and parked, by lambda. Large numbers are counted up to a limit."""
    with connected(address) as client:
        found = client.backlog(lambdas or ())
        if lambdas and not found:
            message = f"no lambda is called {' or '.join(map(repr, lambdas))}: `duly lambdas` lists them"
            raise UnknownNameError(message)
    show_all(found, _table, as_object, as_json=as_json)


def _table(found: Iterable[duly.Backlog]) -> Iterable[str]:
    now = datetime.now(UTC)
    rows = [
        (
            one_line(each.lambda_name),
            str(each.ready),
            "" if each.ready_since is None else f"{max(0.0, (now - each.ready_since).total_seconds()):.0f} s",
            str(each.enqueued),
            str(each.held),
            str(each.parked),
        )
        for each in found
    ]
    return columns(("LAMBDA", "READY", "FOR", "ENQUEUED", "HELD", "PARKED"), rows)
