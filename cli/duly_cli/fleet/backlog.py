"""`duly backlog`: what is due, runs and is parked of each lambda."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected


def add_command(app: typer.Typer) -> None:
    """Add `backlog`."""
    app.command("backlog", rich_help_panel="For operators")(backlog)


def backlog(
    lambdas: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LAMBDA]...", help="Only these.", show_default=False),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Count what is due, in queues, held by hosts, and parked, by lambda. Large numbers are counted up to a limit."""
    with connected(address) as client:
        found = client.backlog(lambdas or ())
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
