"""Arguments and options that name tasks: ids, or a lambda and idempotency keys."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import duly

if TYPE_CHECKING:
    from duly.tasks.reads import TaskRef

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Task ids; or name tasks by --lambda and --key.", metavar="TASK_ID"),
]
OfLambda = Annotated[
    str, typer.Option("--lambda", help="With --key: the lambda of the tasks.", show_default=False)
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        help="With --lambda: the idempotency key that a task was scheduled with; may be repeated.",
        show_default=False,
    ),
]


def named_tasks(
    task_ids: Sequence[str] | None, lambda_name: str, keys: Sequence[str] | None
) -> "list[TaskRef]":
    """Return what names the tasks. Raises BadParameter if nothing does, or if --lambda or --key stands alone."""
    if bool(lambda_name) is not bool(keys):
        message = "--lambda and --key go together: a key belongs to a lambda"
        raise typer.BadParameter(message)
    named: list[TaskRef] = [*(task_ids or ()), *(duly.TaskKey(lambda_name, key) for key in keys or ())]
    if not named:
        message = "name tasks: give task ids, or --lambda and --key"
        raise typer.BadParameter(message)
    return named
