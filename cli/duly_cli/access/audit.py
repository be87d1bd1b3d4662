"""`duly audit`: who changed what, and who was refused."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.access.grants import PANEL
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_moment_or_distance
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_audit = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `audit` with its verbs."""
    app.add_typer(
        _audit, name="audit", rich_help_panel=PANEL, help="List who changed what, and who was refused."
    )


@_audit.command("list")
def list_events(
    actor: Annotated[str, typer.Option(help="Of this principal only.")] = "",
    method: Annotated[str, typer.Option(help="Of this method only, such as CancelTask.")] = "",
    mentions: Annotated[
        str, typer.Option(help="Whose request has this text: a task's id, a lambda, a principal.")
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(help="At this time or later: ISO 8601, or 2h for 2 hours ago.", show_default=False),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only calls that were refused for want of a token or a role.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most; the newest are shown.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List who changed what, and who was refused, the newest last. `duly get` shows who scheduled a task."""
    moment = parse_moment_or_distance(since, "--since", -1)
    with connected(address) as client:
        newest = client.audit_events(
            actor=actor,
            method=method,
            mentions=mentions,
            since=moment,
            refused=refused,
            page_size=min(limit, 1000),
        )
        events = [*islice(newest, limit)][::-1]
    show_all(events, _table, as_object, as_json=as_json)


def _table(events: "Iterable[duly.AuditEvent]") -> Iterator[str]:
    rows = [
        (
            moment_text(each.at),
            each.actor or "-",
            each.method.partition("/")[2] or each.method,
            each.outcome,
            each.peer,
            _short(each.request),
        )
        for each in events
    ]
    if not rows:
        return iter(["no events match"])
    heads = ("AT", "WHO", "CALL", "OUTCOME", "FROM", "WHAT IT NAMED")
    return columns(heads, rows, left_out_first=("FROM",))


def _short(request: Any) -> str:
    return "" if request is None else json.dumps(request, ensure_ascii=False)
