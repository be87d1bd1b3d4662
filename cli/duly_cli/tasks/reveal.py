"""`duly reveal`: shows tasks with their payloads; the audit log records who read them."""

from typing import Annotated

import typer

import duly
from duly_cli.output.safe_text import say
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, TaskIds, add_to_tasks, connected
from duly_cli.tasks.commands import show as show_tasks


def add_command(app: typer.Typer) -> None:
    """Add `reveal`."""
    add_to_tasks(app, reveal, "For operators")


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
