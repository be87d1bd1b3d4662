"""`duly reveal` and `duly activity`: what people look at."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.table import columns
from duly_cli.output.text import say
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, TaskIds, connected
from duly_cli.tasks.commands import show as show_tasks


def add_commands(app: typer.Typer) -> None:
    """Add them."""
    app.command("reveal", rich_help_panel="For operators")(reveal)
    app.command("activity", rich_help_panel="For operators")(activity)


def reveal(
    task_ids: TaskIds,
    reason: Annotated[str, typer.Option(help="Why, for the audit log.")] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show tasks with payload, result and tracebacks; the audit log says who looked."""
    with connected(address) as client:
        try:
            found = [client.reveal(each, reason=reason) for each in task_ids]
        except (duly.TaskNotFoundError, duly.InvalidTaskError, duly.PermissionDeniedError) as error:
            say(f"duly: {error}", err=True)
            raise typer.Exit(1) from error
    show_tasks(found, as_json=as_json)


def activity(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Tell how many tasks were scheduled and ended until now, and how late tasks started lately."""
    with connected(address) as client:
        found = client.activity()
    show_all([found], _table, as_object, as_json=as_json)


def _table(found: Iterable[duly.Activity]) -> Iterable[str]:
    rows = [
        (
            str(each.scheduled),
            str(each.ended),
            str(each.starts),
            _late(each.median_lateness),
            _late(each.p99_lateness),
        )
        for each in found
    ]
    return columns(("SCHEDULED", "ENDED", "STARTS", "MEDIAN LATENESS", "P99 LATENESS"), rows)


def _late(lateness: timedelta | None) -> str:
    return "" if lateness is None else f"{lateness.total_seconds():.3f} s"
