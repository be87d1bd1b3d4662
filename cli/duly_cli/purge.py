"""`duly purge`: delete finished tasks."""

from typing import TYPE_CHECKING, Annotated

import typer

from duly_cli.bulk import DryRun, Everything, Limit, Yes, confirm, parse_statuses
from duly_cli.dead_letters import Collection, Lambda, Since, Until
from duly_cli.option_values import parse_moment_or_distance
from duly_cli.tasks import DEFAULT_ADDRESS, Address, connected
from duly_cli.text import say

if TYPE_CHECKING:
    from duly.filters import PurgeFilter


def add_command(app: typer.Typer) -> None:
    """Add `purge`."""
    app.command(rich_help_panel="Tasks")(purge)


def purge(
    lambda_name: Lambda = "",
    collection: Collection = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Which ended so only: success, fatal_failure, cancelled, dropped; may be repeated.",
            show_default=False,
        ),
    ] = None,
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
    which: PurgeFilter = {}
    if lambda_name:
        which["lambda_name"] = lambda_name
    if collection:
        which["collection"] = collection
    if status:
        which["statuses"] = parse_statuses(status)
    if since is not None:
        which["finished_after"] = parse_moment_or_distance(since, "--since", -1)
    if until is not None:
        which["finished_before"] = parse_moment_or_distance(until, "--until", -1)
    if bool(which) is everything:
        message = (
            "--all goes without filters" if everything else "say which: filters such as --until 7d, or --all"
        )
        raise typer.BadParameter(message)
    with connected(address) as client:
        if dry_run or not yes:
            count = client.purge(limit=limit, dry_run=True, **which)
            say(f"would be deleted: {count:,}" if count else "no finished tasks match")
            if dry_run or not count:
                return
            confirm("delete", count)
        count = client.purge(limit=limit, **which)
    say(f"deleted: {count:,}" if count else "no finished tasks match")
