"""`duly update`: change tasks that nobody runs yet."""

from typing import Annotated

import typer

import duly
from duly.keep import KEEP
from duly_cli.startup.option_values import parse_duration, parse_moment, parse_priority
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, add_to_tasks, connected, say_answers
from duly_cli.tasks.payloads import read_payload
from duly_cli.tasks.references import Ids, Keys, OfLambda, named_tasks


def add_command(app: typer.Typer) -> None:
    """Add `update`."""
    add_to_tasks(app, update)


def update(
    task_ids: Ids = None,
    lambda_name: OfLambda = "",
    key: Keys = None,
    delay: Annotated[
        str | None, typer.Option(help="Run them this long from now: 0s, 90s, 2h.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Run them at this instant: 2026-12-24T18:00:00+01:00.", show_default=False),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="urgent, high, normal or low.", show_default=False)
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            help="Give the callback this instead: JSON, or - for standard input.", show_default=False
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Send the payload as bytes.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Change tasks that nobody runs yet: when they run, their priority, their payload."""
    if all(each is None for each in (delay, at, priority, payload)):
        message = "say what is to change: --delay, --at, --priority or --payload"
        raise typer.BadParameter(message)
    ahead, moment = parse_duration(delay, "--delay"), parse_moment(at, "--at", needs_zone=True)
    urgency = None if priority is None else parse_priority(priority)
    value = KEEP if payload is None else read_payload(payload, raw=raw)
    named = named_tasks(task_ids, lambda_name, key)
    with connected(address) as client:
        updates = [duly.TaskUpdate(each, moment, ahead, urgency, value) for each in named]
        answers = client.update_many(updates)
    say_answers(named, answers, lambda status: f"updated, is {status.name.lower()}")
