"""`duly cancel`: cancel tasks by their ids, or all that filters find."""

from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.tasks.bulk import DryRun, Everything, Limit, Yes, change_all, check_filter, refuse_filters
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, add_to_tasks, connected, say_answers
from duly_cli.tasks.filters import Collection, Lambda, Priorities, Where, which_tasks
from duly_cli.tasks.references import named_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.tasks.reads import TaskRef


_RUNNING = {"claimed", "processing"}


def add_command(app: typer.Typer) -> None:
    """Add `cancel`."""
    add_to_tasks(app, cancel)


def cancel(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Task ids; or say which by filters.", metavar="TASK_ID")
    ] = None,
    lambda_name: Lambda = "",
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="The task of --lambda that was scheduled with this idempotency key; may be repeated.",
            show_default=False,
        ),
    ] = None,
    collection: Collection = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="In this status only: new, waiting, enqueued, retriable_failure; claimed and processing ask callbacks that "
            "run to stop; may be repeated.",
            show_default="all that nobody runs",
        ),
    ] = None,
    priority: Priorities = None,
    where: Where = None,
    everything: Everything = False,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill",
            help="With task ids: end callbacks that do not stop by themselves, if need be with their process. Others in that "
            "process have executor.neighbour_grace to end; then they run again, uncharged.",
        ),
    ] = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Cancel tasks: those named, or those that the filters find; a running one is told with its next heartbeat."""
    which = which_tasks(lambda_name, collection, status=status, priority=priority, where=where)
    if key:
        refuse_filters(
            collection or status or priority or where or everything or limit or dry_run, "--limit, --dry-run"
        )
        _cancel_named(named_tasks(task_ids, lambda_name, key), address, kill=kill)
        return
    if task_ids:
        refuse_filters(which or everything or limit or dry_run, "--limit, --dry-run")
        _cancel_named(task_ids, address, kill=kill)
        return
    if kill:
        raise typer.BadParameter(
            "--kill needs task ids: `duly list --status processing` shows those that run"
        )
    check_filter(which, everything=everything, instead="task ids, filters such as --lambda")
    with connected(address) as client:
        changed = "cancelled, or asked to stop" if _RUNNING & set(status or ()) else "cancelled"
        words = ("cancel", changed, _nothing(status))
        change_all(client.cancel_where, which, words, limit=limit, dry_run=dry_run, yes=yes)


def _nothing(status: "Sequence[str] | None") -> str:
    """Return what is said if no task matches: a caller may expect that those that run are meant, too."""
    if status:
        return "no tasks match"
    return "no tasks match that nobody runs; those that run: add --status claimed --status processing"


def _cancel_named(tasks: "Sequence[TaskRef]", address: str, *, kill: bool) -> None:
    asked = "is killed if it does not stop at once" if kill else "is asked to stop"
    with connected(address) as client:
        answers = client.cancel_many(tasks, kill=kill)
    say_answers(
        tasks,
        answers,
        lambda status: (
            "cancelled"
            if status is duly.TaskStatus.CANCELLED
            else f"is {status.name.lower()}; its callback {asked}"
        ),
    )
