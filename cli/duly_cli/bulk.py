"""What commands share that change all tasks which a filter finds."""

import sys
from typing import Annotated

import typer

import duly
from duly_cli.option_values import invalid
from duly_cli.text import say

Limit = Annotated[
    int | None, typer.Option(min=1, help="At most so many, the oldest first.", show_default="all")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: only say how many it would be.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Everything = Annotated[bool, typer.Option("--all", help="Of all lambdas and collections.")]


def confirm(verb: str, count: int) -> None:
    """Ask whoever sits at the terminal; end the command if nobody does."""
    if not sys.stdin.isatty():
        say(f"duly: nobody is here to be asked: add --yes to {verb} them", err=True)
        raise typer.Exit(2)
    typer.confirm(f"{verb} {count:,}?", abort=True)


def parse_statuses(names: list[str]) -> list[duly.TaskStatus]:
    """Statuses of the command line, in any case."""
    try:
        return [duly.TaskStatus[name.upper()] for name in names]
    except KeyError as error:
        known = ", ".join(each.name.lower() for each in duly.TaskStatus)
        raise invalid("--status", f"{error.args[0].lower()!r} is not a status: {known}") from error
