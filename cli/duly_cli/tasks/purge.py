"""`duly purge`: delete finished tasks."""

from typing import Annotated

import typer

from duly_cli.tasks.bulk import DryRun, Everything, Limit, Yes, change_all, check_filter
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, add_to_tasks, connected
from duly_cli.tasks.filters import Collection, Lambda, Since, Until, Where, which_tasks


def add_command(app: typer.Typer) -> None:
    """Add `purge`."""
    add_to_tasks(app, purge)


def purge(
    lambda_name: Lambda = "",
    collection: Collection = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only tasks with this final status: success, fatal_failure, cancelled, dropped; may be repeated.",
            show_default=False,
        ),
    ] = None,
    where: Where = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Delete finished tasks that the filters find, with their results, histories and idempotency keys.

    Tasks of a graph that runs stay.
    """
    which = which_tasks(lambda_name, collection, status=status, since=since, until=until, where=where)
    check_filter(which, everything=everything, instead="filters such as --until 7d")
    with connected(address) as client:
        words = ("delete", "deleted", "no finished tasks match")
        change_all(client.purge, which, words, limit=limit, dry_run=dry_run, yes=yes)
