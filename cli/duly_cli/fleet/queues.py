"""`duly queues`: how many live tasks each lambda and priority has, by status."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.nouns import LIST, Noun, UnknownNameError
from duly_cli.startup.option_values import parse_member, parse_priority
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell, Priorities

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


class _Queues(Noun):
    """`duly queues 'mail.*'` is short for `duly queues list 'mail.*'`."""

    named = LIST


_queues = Verbs(add_completion=False, cls=_Queues)


def add_commands(app: typer.Typer) -> None:
    """Add `queues` with its verbs."""
    app.add_typer(
        _queues,
        name="queues",
        rich_help_panel="For operators",
        help="Count the live tasks of each lambda and priority, by status.",
    )


@_queues.command(LIST)
def list_queues(
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
    cell: InCell = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Count the live tasks of each lambda and priority, by status. Numbers with ~ are estimates.

    READY are due, and wait for a host; FOR is since when the oldest does. SCHEDULED are for later, BACKING OFF retried later.
    WAITING is for resources, sessions and graphs; ENQUEUED are in queues of SQS; HELD are claimed or processing.
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
                cell=cell,
                page_size=min(limit, 1000),
            )
            listed = list(islice(found, limit))
            if not listed and not include_empty and not cell:
                _check_names(client, lambdas or ())
            show_all(listed, queue_table, queue_as_json, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


@_queues.command("get", hidden=True)
@_queues.command("show")
def show_queues(
    lambdas: Annotated[list[str], typer.Argument(metavar="LAMBDA...", help="Names, or patterns in quotes.")],
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Count the live tasks of lambdas by priority and status, those of queues without a live task, too."""
    with connected(address) as client:

        def show() -> None:
            found = list(client.queues(lambdas, order=None, include_empty=True))
            if not found:
                raise _unknown(lambdas)
            show_all(found, queue_table, queue_as_json, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


def _check_names(client: "duly.Client", lambdas: Sequence[str]) -> None:
    """Tell a name that no lambda has from a lambda without tasks; of a pattern nothing is asked.

    Raises:
        UnknownNameError: no lambda has such a name.
    """
    if not lambdas or any("*" in name for name in lambdas):
        return
    if next(client.queues(lambdas, include_empty=True, page_size=1), None) is None:
        raise _unknown(lambdas)


def _unknown(lambdas: Sequence[str]) -> UnknownNameError:
    return UnknownNameError(
        f"no lambda is called {' or '.join(map(repr, lambdas))}: `duly lambdas` lists them"
    )


def read_order(name: str) -> duly.QueueOrder | None:
    """Return the order that `--order` names; None: by lambda."""
    if name.lower() == "name":
        return None
    return parse_member("--order", name, duly.QueueOrder, "an order (or name)")


def queue_as_json(queue: "duly.LambdaQueue") -> dict[str, Any]:
    """All that is known of a queue."""
    return as_object(queue, live=as_object(queue.live))


def number_text(count: "duly.TaskCount") -> str:
    """Return a number in at most six characters; `~` marks an estimate."""
    number, mark = count.count, "~" if count.estimated else ""
    if number < _EXACT_BELOW and not count.estimated:
        return str(number)
    if number < 10 * _THOUSAND:
        return f"{mark}{number}"
    if number < _MILLION:
        return f"{mark}{number / _THOUSAND:.0f}k"
    return f"{mark}{number / _MILLION:.1f}M" if number < 100 * _MILLION else f"{mark}{number / _MILLION:.0f}M"


def together(*counts: "duly.TaskCount") -> "duly.TaskCount":
    """Return the sum of numbers."""
    return duly.TaskCount(sum(each.count for each in counts), any(each.estimated for each in counts))


def queue_table(found: "Iterable[duly.LambdaQueue]") -> Iterator[str]:
    """Queues, a line each; ENQUEUED only if there is something in queues of SQS."""
    queues = list(found)
    if not queues:
        return iter(["no live tasks"])
    cells: dict[str, Callable[[duly.LambdaQueue], str]] = {
        "PRIORITY": lambda each: each.priority.name.lower(),
        "READY": lambda each: number_text(each.ready),
        "FOR": waited,
        "SCHEDULED": lambda each: number_text(each.scheduled),
        "BACKING OFF": lambda each: number_text(each.backing_off),
        "WAITING": lambda each: number_text(each.waiting),
        "ENQUEUED": lambda each: number_text(each.enqueued),
        "HELD": lambda each: number_text(together(each.claimed, each.processing)),
        "HOSTS": lambda each: str(each.hosts),
        "NEW/10s": lambda each: number_text(each.recently_scheduled or duly.TaskCount(0, estimated=False)),
        "CELL": lambda each: each.cell,
        "LAMBDA": lambda each: one_line(each.lambda_name),
    }
    if not any(each.cell for each in queues):
        del cells["CELL"]
    if not any(each.enqueued.count for each in queues):
        del cells["ENQUEUED"]
    if queues[0].recently_scheduled is None:
        del cells["NEW/10s"]
    rows = [[cell(each) for cell in cells.values()] for each in queues]
    return columns([*cells], rows, left_out_first=("BACKING OFF", "SCHEDULED"))


def waited(queue: "duly.LambdaQueue") -> str:
    """Return for how long the oldest due task of a queue has been due."""
    oldest: datetime | None = queue.oldest_ready_at
    return "" if oldest is None else age_text(max(timedelta(), queue.counted_at - oldest))
