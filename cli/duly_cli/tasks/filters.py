"""Options that say which tasks a command is about, and what is made of them."""

from typing import Annotated, Any

import typer

import duly
from duly_cli.startup.option_values import (
    parse_attributes,
    parse_member,
    parse_moment_or_distance,
    parse_priority,
)

Lambda = Annotated[str, typer.Option("--lambda", help="Of this lambda only.")]
InCell = Annotated[str, typer.Option("--cell", help="In this cell only: `duly cells` lists them.")]
Collection = Annotated[str, typer.Option(help="Of this collection only.")]
Priorities = Annotated[
    list[str] | None,
    typer.Option("--priority", help="Of this priority only; may be repeated.", show_default=False),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="With this attribute only: order=17. Repeatable: with all of them.",
        show_default=False,
    ),
]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        help="Only those that ended by this kind of failure, the first word under WHY: attempts_exhausted, quarantined, "
        "expired, exception (not to be retried), ...; may be repeated.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        help="Only those that ended at this time or later: ISO 8601, or 2h for 2 hours ago.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(help="Only those that ended before this time, written as for --since.", show_default=False),
]


def which_tasks(
    lambda_name: str,
    collection: str,
    *,
    status: list[str] | None = None,
    priority: list[str] | None = None,
    kind: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    where: list[str] | None = None,
    cell: str = "",
) -> dict[str, Any]:
    """Return the SDK's filter; what was not said is not in it."""
    said = {
        "lambda_name": lambda_name,
        "collection": collection,
        "cell": cell,
        "statuses": [parse_member("--status", name, duly.TaskStatus, "a status") for name in status or ()],
        "priorities": [parse_priority(name) for name in priority or ()],
        "failure_kinds": [
            parse_member("--kind", name, duly.FailureKind, "a kind of failure") for name in kind or ()
        ],
        "finished_after": parse_moment_or_distance(since, "--since", -1),
        "finished_before": parse_moment_or_distance(until, "--until", -1),
        "attributes": {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in parse_attributes(where or (), "--where").items()
        },
    }
    return {name: value for name, value in said.items() if value}
