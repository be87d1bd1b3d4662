"""What commands share that change all tasks which a filter finds."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from duly_cli.output.safe_text import say

Limit = Annotated[
    int | None, typer.Option(min=1, help="At most this many, the oldest first.", show_default="all")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: only say how many it would be.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Everything = Annotated[bool, typer.Option("--all", help="Of all lambdas and collections.")]


def check_filter(which: Mapping[str, Any], *, everything: bool, instead: str) -> None:
    """Refuse a command that has neither filters nor --all, or both; `instead` says what it may have."""
    if bool(which) is everything:
        message = "--all cannot be combined with filters" if everything else f"say which: {instead}, or --all"
        raise typer.BadParameter(message)


def refuse_filters(filters: object, options: str) -> None:
    """Refuse filters beside task ids."""
    if filters:
        message = f"give either task ids or filters: {options} and --all go with filters"
        raise typer.BadParameter(message)


def change_all(
    change: Callable[..., int],
    which: Mapping[str, Any],
    words: tuple[str, str, str],
    *,
    limit: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Count what the filter finds, ask, and change it; `words` are the verb, its participle, and what is said of none."""
    verb, changed, none = words
    if dry_run or not yes:
        count = change(limit=limit, dry_run=True, **which)
        say(f"would be {changed}: {count:,}" if count else none)
        if dry_run or not count:
            return
        confirm(verb, count)
    count = change(limit=limit, **which)
    say(f"{changed}: {count:,}" if count else none)


def confirm(verb: str, count: int) -> None:
    """Ask whoever sits at the terminal; end the command if nobody does."""
    if not is_terminal():
        say(f"duly: stdin is not a terminal, so nothing can be confirmed: add --yes to {verb} them", err=True)
        raise typer.Exit(2)
    typer.confirm(f"{verb} {count:,}?", abort=True)


def is_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty()
