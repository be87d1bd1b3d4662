"""`duly events`: follow what happens to tasks; send events to tasks that wait for them."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

import duly
from duly_cli.events.watch import watch
from duly_cli.output.json_text import as_json, as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.payloads import read_payload

_Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of the events.")]
_Namespace = Annotated[
    str,
    typer.Option(
        help="The namespace of the lambdas whose tasks wait: what stands before / in their names.",
        show_default=False,
    ),
]

_events = Verbs(add_completion=False, cls=Noun)
_events.command()(watch)


def add_commands(app: typer.Typer) -> None:
    """Add `events` with its verbs."""
    app.add_typer(
        _events,
        name="events",
        rich_help_panel="Tasks",
        help="Follow what happens to tasks; send events to tasks that wait.",
    )


@_events.command("address")
def make_address(
    key: _Key,
    title: Annotated[
        str, typer.Option(help="What is asked, for the person who answers.", show_default=False)
    ] = "",
    namespace: _Namespace = "",
    expires_in: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="For how long it can be used, such as 2h; 7 days without it.",
            show_default=False,
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Make an address of one use: its holder sends one event to the key, without a login.

    Its page has buttons to approve (true) and to deny (false). A program may POST any JSON to it. Keep it secret.
    """
    with connected(address) as client:
        made = client.event_address(
            key, title=title, namespace=namespace, expires_in=parse_duration(expires_in, "--expires-in")
        )
    if as_json:
        say(json.dumps(as_object(made)))
    elif made.url:
        say(made.url)
    else:
        say(f"/events/{made.token}")
        say(
            "[this is the path at your console: set frontend.public_url to where people reach it, and you get the whole address]",
            err=True,
        )


@_events.command()
def send(
    key: _Key,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE", help="The event's value: JSON, such as true, or - for standard input."
        ),
    ],
    namespace: _Namespace = "",
    event_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="Your own id of the event: sent twice, it is one event.", show_default=False
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Send VALUE as bytes.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Send an event to a key: each task that waits for it runs. One that nobody waits for is kept."""
    data = read_payload(value, raw=raw)
    with connected(address) as client:
        sent = client.send_event(key, data, namespace=namespace, event_id=event_id)
    if sent.is_repeated:
        say(f"{one_line(key)}: this event was sent before; nothing was done")
    elif sent.receivers:
        say(f"{one_line(key)}: sent, {sent.receivers} {'task runs' if sent.receivers == 1 else 'tasks run'}")
    else:
        say(f"{one_line(key)}: sent; no task waits for it yet, and it is kept for one that does")


@_events.command("get", hidden=True)
@_events.command("show")
def show_key(
    key: _Key, namespace: _Namespace = "", address: Address = DEFAULT_ADDRESS, as_json: AsJson = False
) -> None:
    """Show the events of a key that are kept, and the tasks that wait for it."""
    with connected(address) as client:
        found = client.get_event_key(key, namespace=namespace)
    if not found.waiters and not found.events:
        say(f"duly: no event of the key {one_line(key)} is kept, and no task waits for it", err=True)
        raise typer.Exit(1)
    if as_json:
        say(json.dumps(as_object(found)))
        return
    for waiter in found.waiters:
        say(f"  waits  {waiter.task_id}  {waiter.lambda_name}, until {moment_text(waiter.until_at)}")
    for event in found.events:
        value = "(withheld)" if event.value_withheld else _value(event.value)
        by = f", by {one_line(event.sent_by)}" if event.sent_by else ""
        say(f"   kept  {value}  sent {moment_text(event.sent_at)}{by}, until {moment_text(event.expires_at)}")


@_events.command("list")
def list_keys(
    namespace: _Namespace = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many, by key.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the keys of which events are kept, or for which tasks wait."""
    with connected(address) as client:
        found = list(islice(client.event_keys(namespace=namespace, page_size=min(limit, 1000)), limit))
    show_all(found, _table, _as_json, as_json=as_json)


def _value(value: Any) -> str:
    return one_line(json.dumps(as_json(value), ensure_ascii=False))


def _as_json(key: "duly.EventKey") -> dict[str, Any]:
    return as_object(key, left_out=["events", "waiters"])


def _table(keys: "Iterable[duly.EventKey]") -> Iterator[str]:
    rows = [(one_line(each.key), str(each.event_count)) for each in keys]
    if not rows:
        return iter(["no events: `duly events send KEY VALUE` sends one"])
    return columns(("KEY", "EVENTS KEPT"), rows)
