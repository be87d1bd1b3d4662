"""`duly cancel`: cancel tasks by their ids, or all that filters find."""

from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.bulk import DryRun, Everything, Limit, Yes, confirm, parse_statuses
from duly_cli.dead_letters import Collection, Lambda
from duly_cli.option_values import parse_priority
from duly_cli.tasks import DEFAULT_ADDRESS, Address, connected, say_answers
from duly_cli.text import say

if TYPE_CHECKING:
    from duly.filters import CancelFilter


def add_command(app: typer.Typer) -> None:
    """Add `cancel`."""
    app.command(rich_help_panel="Tasks")(cancel)


def cancel(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Task ids; or say which by filters.", metavar="TASK_ID")
    ] = None,
    lambda_name: Lambda = "",
    collection: Collection = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="In this status only: new, waiting, enqueued, retriable_failure; claimed and processing ask callbacks that "
            "run to stop; may be repeated.",
            show_default="all that nobody runs",
        ),
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(help="Of this priority only; may be repeated.", show_default=False),
    ] = None,
    everything: Everything = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Cancel tasks: those named, or those that the filters find; a running one is told with its next heartbeat."""
    which: CancelFilter = {}
    if lambda_name:
        which["lambda_name"] = lambda_name
    if collection:
        which["collection"] = collection
    if status:
        which["statuses"] = parse_statuses(status)
    if priority:
        which["priorities"] = [parse_priority(name) for name in priority]
    if task_ids:
        if which or everything or limit or dry_run:
            message = "say either task ids or filters: --limit, --dry-run and --all go with filters"
            raise typer.BadParameter(message)
        _cancel_named(task_ids, address)
        return
    if bool(which) is everything:
        message = (
            "--all goes without filters"
            if everything
            else "say which: task ids, filters such as --lambda, or --all"
        )
        raise typer.BadParameter(message)
    with connected(address) as client:
        if dry_run or not yes:
            count = client.cancel_where(limit=limit, dry_run=True, **which)
            say(f"would be cancelled: {count:,}" if count else "no tasks match")
            if dry_run or not count:
                return
            confirm("cancel", count)
        count = client.cancel_where(limit=limit, **which)
    say(f"cancelled: {count:,}" if count else "no tasks match")


def _cancel_named(task_ids: list[str], address: str) -> None:
    with connected(address) as client:
        answers = client.cancel_many(task_ids)
    say_answers(
        task_ids,
        answers,
        lambda status: (
            "cancelled"
            if status is duly.TaskStatus.CANCELLED
            else f"is {status.name.lower()}; its callback is asked to stop"
        ),
    )
