"""`duly activity`: the number of tasks scheduled and ended so far, with the lateness of recent starts."""

from collections.abc import Iterable
from datetime import timedelta

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.table import columns
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected


def add_command(app: typer.Typer) -> None:
    """Add `activity`."""
    app.command("activity", rich_help_panel="For operators")(activity)


def activity(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show how many tasks were scheduled and have ended so far, and the lateness of recent starts."""
    with connected(address) as client:
        found = client.activity()
    show_all([found], _table, as_object, as_json=as_json)


def _table(found: "Iterable[duly.Activity]") -> Iterable[str]:
    rows = [
        (
            str(each.scheduled),
            str(each.ended),
            str(each.starts),
            _late(each.median_lateness),
            _late(each.p99_lateness),
        )
        for each in found
    ]
    return columns(("SCHEDULED", "ENDED", "STARTS", "MEDIAN LATENESS", "P99 LATENESS"), rows)


def _late(lateness: timedelta | None) -> str:
    return "" if lateness is None else f"{lateness.total_seconds():.3f} s"
