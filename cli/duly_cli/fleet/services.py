"""`duly services`: the processes of Frontends, HSCs and Store Consumers."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected


def add_command(app: typer.Typer) -> None:
    """Add `services`."""
    app.command("services", rich_help_panel="For operators")(services)


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


def _table(found: Iterable[duly.ServiceInstance]) -> Iterator[str]:
    now = datetime.now().astimezone()
    rows = [
        (
            each.service,
            each.state.name.lower(),
            each.version,
            age_text(now - each.started_at),
            age_text(now - each.reported_at),
            one_line(each.address),
            one_line(each.instance_id),
        )
        for each in found
    ]
    if not rows:
        return iter(["no processes of services report"])
    heads = ("SERVICE", "STATE", "VERSION", "UP", "REPORTED", "ADDRESS", "PROCESS")
    return columns(heads, rows, left_out_first=("UP",))
