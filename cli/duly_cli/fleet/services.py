"""`duly services`: the processes of Frontends, HSCs and Store Consumers."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated

import typer

import duly
from duly_cli.fleet.hosts import clock_text
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_services = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `services` with its verbs."""
    app.add_typer(
        _services,
        name="services",
        rich_help_panel="For operators",
        help="List the processes of Frontends, HSCs and Store Consumers; show one.",
    )


@_services.command("list")
def services(
    alive: Annotated[bool, typer.Option("--alive", help="Only processes that still report.")] = False,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the processes of Frontends, HSCs and Store Consumers: state, version, address, and when each reported last."""
    with connected(address) as client:
        repeatedly(
            lambda: show_all(client.services(alive=alive), _table, as_object, as_json=as_json),
            watch,
            as_json=as_json,
        )


@_services.command("get", hidden=True)
@_services.command("show")
def show_service(
    process: Annotated[
        str, typer.Argument(metavar="PROCESS", help="As `duly services` shows it in its last column.")
    ],
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show one process of a service."""
    with connected(address) as client:

        def show() -> None:
            unknown = f"no process {process!r} is known: `duly services` lists them"
            found = one_of(client.services(), lambda each: each.instance_id == process, unknown)
            show_all([found], _table, as_object, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


def _table(found: "Iterable[duly.ServiceInstance]") -> Iterator[str]:
    now = datetime.now().astimezone()
    processes = list(found)
    has_zones = any(each.zone for each in processes)
    rows = [
        (
            each.service,
            each.state.name.lower(),
            each.version,
            age_text(now - each.started_at),
            age_text(now - each.reported_at),
            clock_text(each.clock_ahead),
            *((one_line(each.zone),) if has_zones else ()),
            one_line(each.address),
            one_line(each.instance_id),
        )
        for each in processes
    ]
    if not rows:
        return iter(["no processes of services report"])
    zone = ("ZONE",) if has_zones else ()
    heads = ("SERVICE", "STATE", "VERSION", "UP", "REPORTED", "CLOCK", *zone, "ADDRESS", "PROCESS")
    cells = [", ".join(each.cells) for each in processes]
    heads_of_all, rows_of_all = with_cells(heads, rows, cells, before="UP")
    return columns(heads_of_all, rows_of_all, left_out_first=("UP",), styles={"STATE": status_style})
