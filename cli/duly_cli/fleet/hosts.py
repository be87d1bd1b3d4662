"""`duly hosts`: the hosts that run callbacks, with their Executors, slots and lambdas."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.nouns import LIST, Noun, UnknownNameError
from duly_cli.startup.option_values import parse_member
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_MOST_SHOWN = 20
_NO_DIFFERENCE = timedelta(seconds=2)
"""As the alert ClocksDiffer has it."""


class _Hosts(Noun):
    """`duly hosts ID` is short for `duly hosts show ID`."""

    named = LIST


_hosts = Verbs(add_completion=False, cls=_Hosts)


def add_commands(app: typer.Typer) -> None:
    """Add `hosts` with its verbs."""
    app.add_typer(
        _hosts,
        name="hosts",
        rich_help_panel="For operators",
        help="List the hosts that run callbacks; show one with its Executors and lambdas.",
    )


@_hosts.command(LIST)
def list_hosts(
    host_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HOST_ID]...",
            help="Show these in detail, as `duly hosts show` does.",
            show_default=False,
        ),
    ] = None,
    lambda_name: Annotated[str, typer.Option("--lambda", help="Only hosts that serve this lambda.")] = "",
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="Only in this state: alive, draining, stopped or silent; may be repeated. Default: alive, draining, "
            "silent.",
            show_default=False,
        ),
    ] = None,
    cell: Annotated[
        str, typer.Option("--cell", help="Only hosts that report to this cell: `duly cells` lists them.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many, by id.")] = 100,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the hosts: state, version, Executors, busy slots, lambdas, and when each reported last.

    A host is silent when it missed three reports. Hosts that ended are kept for a day.
    """
    asked = [parse_member("--state", name, duly.HostState, "a state") for name in states or ()]
    if host_ids:
        _show(host_ids, asked, lambda_name, cell, watch, address, as_json=as_json)
        return
    if not asked:
        asked = [each for each in duly.HostState if each is not duly.HostState.STOPPED]
    with connected(address) as client:

        def show() -> None:
            found = client.hosts(lambda_name=lambda_name, states=asked, cell=cell, page_size=min(limit, 1000))
            show_all(list(islice(found, limit)), host_table, host_as_json, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


@_hosts.command("get", hidden=True)
@_hosts.command("show")
def show_hosts(
    host_ids: Annotated[
        list[str], typer.Argument(metavar="HOST_ID...", help="As `duly hosts` shows it in its last column.")
    ],
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show hosts with their Executors and lambdas, stopped ones, too; exit 1 if there is none of them."""
    _show(host_ids, (), "", "", watch, address, as_json=as_json)


def _show(
    host_ids: Sequence[str],
    states: Sequence[duly.HostState],
    lambda_name: str,
    cell: str,
    watch: str | None,
    address: str,
    *,
    as_json: bool,
) -> None:
    with connected(address) as client:

        def show() -> None:
            found = list(
                client.hosts(
                    lambda_name=lambda_name,
                    states=states,
                    host_ids=host_ids,
                    include_lambdas=True,
                    cell=cell,
                )
            )
            if not found:
                message = f"no host has the id {' or '.join(map(repr, host_ids))}: `duly hosts` lists them"
                raise UnknownNameError(message)
            if as_json:
                show_all(found, host_table, host_as_json, as_json=True)
            else:
                say("\n\n".join("\n".join(host_lines(each)) for each in found))

        repeatedly(show, watch, as_json=as_json)


def host_as_json(host: "duly.Host") -> dict[str, Any]:
    """All that is known of a host."""
    return as_object(host, total_slots=host.slots, busy_slots=host.busy_slots)


def host_table(found: "Iterable[duly.Host]") -> Iterator[str]:
    """Hosts, a line each."""
    now = datetime.now().astimezone()
    hosts = list(found)
    has_zones = any(each.zone for each in hosts)
    rows = [
        (
            each.state.name.lower(),
            each.version,
            str(len(each.executors)),
            f"{each.busy_slots}/{each.slots}",
            str(each.lambda_count),
            ", ".join(each.labels),
            each.pool,
            *((one_line(each.zone),) if has_zones else ()),
            age_text(now - each.started_at),
            age_text(now - each.reported_at),
            clock_text(each.clock_ahead),
            one_line(each.host_id),
        )
        for each in hosts
    ]
    if not rows:
        return iter(["no hosts match; `duly worker MODULE:APP` starts one"])
    zone = ("ZONE",) if has_zones else ()
    heads = (
        "STATE",
        "VERSION",
        "EXECUTORS",
        "BUSY",
        "LAMBDAS",
        "LABELS",
        "POOL",
        *zone,
        "UP",
        "REPORTED",
        "CLOCK",
        "HOST",
    )
    cells = [", ".join(each.cells) for each in hosts]
    heads_of_all, rows_of_all = with_cells(heads, rows, cells, before="UP")
    return columns(
        heads_of_all, rows_of_all, left_out_first=("UP", "VERSION"), styles={"STATE": status_style}
    )


def host_lines(host: "duly.Host") -> Iterator[str]:
    """A host, with its Executors and lambdas."""
    now = datetime.now().astimezone()
    values = {
        "host": host.host_id,
        "machine": host.name,
        "state": host.state.name.lower(),
        "version": host.version,
        "queue": host.queue_backend,
        "started": moment_text(host.started_at),
        "reported": f"{age_text(now - host.reported_at)} ago, each {age_text(host.interval)}",
        "reported by": host.reported_by,
        "busy slots": f"{host.busy_slots} of {host.slots}",
        "clock": clock_text(host.clock_ahead, long=True),
        "labels": ", ".join(host.labels),
        "pool": host.pool,
        "zone": host.zone,
        "lambdas": host.lambda_count,
    }
    for name, value in values.items():
        if value != "":
            yield f"{name:>12}  {one_line(str(value))}"
    if host.executors:
        yield ""
        yield from columns(
            ("PID", "VERSION", "PROCESSES", "SLOTS", "BUSY", "UP", "EXECUTOR"),
            [_executor_row(each, now) for each in host.executors],
        )
    if host.lambdas:
        yield ""
        yield from columns(
            ("VERSION", "LAMBDA"), [(each.version, each.name) for each in host.lambdas[:_MOST_SHOWN]]
        )
        if host.lambda_count > _MOST_SHOWN:
            yield f"and {host.lambda_count - _MOST_SHOWN:,} more: --json has them"


def clock_text(ahead: timedelta | None, *, long: bool = False) -> str:
    """Return how a clock stands to Postgres's; up to 2 s are no difference.

    >>> clock_text(timedelta(milliseconds=3)), clock_text(timedelta(minutes=10)), clock_text(timedelta(seconds=-5), long=True)
    ('ok', '+10m', "5s behind Postgres's")
    """
    if ahead is None:
        return "unknown" if long else "?"
    if abs(ahead) <= _NO_DIFFERENCE:
        return "as Postgres's" if long else "ok"
    age = age_text(abs(ahead))
    if long:
        return f"{age} {'behind' if ahead < timedelta() else 'ahead of'} Postgres's"
    return f"{'-' if ahead < timedelta() else '+'}{age}"


def _executor_row(executor: "duly.ExecutorInfo", now: datetime) -> Sequence[str]:
    return (
        str(executor.pid),
        executor.version,
        str(executor.processes),
        str(executor.processes * executor.slots),
        "?" if executor.busy_slots is None else str(executor.busy_slots),
        "" if executor.started_at is None else age_text(max(timedelta(), now - executor.started_at)),
        one_line(executor.executor_id),
    )
