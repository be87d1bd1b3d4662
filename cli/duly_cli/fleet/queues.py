"""`duly queues`: how many live tasks each lambda and priority has, by status."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.option_values import parse_member, parse_priority
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import Priorities

Lambdas = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LAMBDA]...",
        help="Names, or patterns in quotes, such as 'mail.*'. Default: all.",
        show_default=False,
    ),
]
_THOUSAND, _MILLION = 1_000, 1_000_000
_EXACT_BELOW = 100_000


def add_command(app: typer.Typer) -> None:
    """Add `queues`."""
    app.command("queues", rich_help_panel="For operators")(queues)


def queues(
    lambdas: Lambdas = None,
    priority: Priorities = None,
    order: Annotated[
        str,
        typer.Option(
            "--order",
            help="backlog: the most due tasks first; age: the longest wait first; name: by lambda.",
        ),
    ] = "backlog",
    include_empty: Annotated[
        bool, typer.Option("--include-empty", help="Queues without a live task, too.")
    ] = False,
    include_rates: Annotated[
        bool,
        typer.Option("--include-rates", help="How many tasks were scheduled in the last ten seconds, too."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Count the live tasks of each lambda and priority, by status. Numbers with ~ are estimates.

    DUE wait for a host; LATER are scheduled for later or retried later; WAIT is for resources, sessions and graphs; SENT are
    in queues of SQS; RUN are claimed or running.
    """
    sorted_by = read_order(order)
    with connected(address) as client:

        def show() -> None:
            found = client.queues(
                lambdas or (),
                priorities=[parse_priority(name) for name in priority or ()],
                order=sorted_by,
                include_empty=include_empty,
                include_rates=include_rates,
                page_size=min(limit, 1000),
            )
            show_all(list(islice(found, limit)), queue_table, queue_as_json, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


def read_order(name: str) -> duly.QueueOrder | None:
    """Return the order that `--order` names; None: by lambda."""
    if name.lower() == "name":
        return None
    return parse_member("--order", name, duly.QueueOrder, "an order (or name)")


def queue_as_json(queue: duly.LambdaQueue) -> dict[str, Any]:
    """All that is known of a queue."""
    return as_object(queue, live=as_object(queue.live))


def number_text(count: duly.TaskCount) -> str:
    """Return a number in at most six characters; `~` marks an estimate."""
    number, mark = count.count, "~" if count.estimated else ""
    if number < _EXACT_BELOW and not count.estimated:
        return str(number)
    if number < 10 * _THOUSAND:
        return f"{mark}{number}"
    if number < _MILLION:
        return f"{mark}{number / _THOUSAND:.0f}k"
    return f"{mark}{number / _MILLION:.1f}M" if number < 100 * _MILLION else f"{mark}{number / _MILLION:.0f}M"


def together(*counts: duly.TaskCount) -> duly.TaskCount:
    """Return the sum of numbers."""
    return duly.TaskCount(sum(each.count for each in counts), any(each.estimated for each in counts))


def queue_table(found: Iterable[duly.LambdaQueue]) -> Iterator[str]:
    """Queues, a line each."""
    rows = []
    for each in found:
        rates = () if each.recently_scheduled is None else (number_text(each.recently_scheduled),)
        rows.append(
            (
                each.priority.name.lower(),
                number_text(each.ready),
                waited(each),
                number_text(together(each.scheduled, each.backing_off)),
                number_text(each.waiting),
                number_text(each.enqueued),
                number_text(together(each.claimed, each.processing)),
                str(each.hosts),
                *rates,
                one_line(each.lambda_name),
            )
        )
    if not rows:
        return iter(["no live tasks"])
    heads = ["PRIORITY", "DUE", "FOR", "LATER", "WAIT", "SENT", "RUN", "HOSTS", "LAMBDA"]
    if len(rows[0]) > len(heads):
        heads.insert(-1, "NEW/10s")
    return columns(heads, rows)


def waited(queue: duly.LambdaQueue) -> str:
    """Return for how long the oldest due task of a queue has been due."""
    oldest: datetime | None = queue.oldest_ready_at
    return "" if oldest is None else age_text(max(timedelta(), queue.counted_at - oldest))
