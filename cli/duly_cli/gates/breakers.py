"""`duly gates breaker`: lambdas that are paused by themselves when too many of their runs fail."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

import duly
from duly.keep import KEEP
from duly_cli.access.os_user import user_name
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import say, say_changed
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.option_values import given, invalid, parse_duration
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_Lambda = Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")]


def set_breaker(
    lambda_name: _Lambda,
    failure_rate: Annotated[
        float | None,
        typer.Option(help="Open when this share of the runs failed, such as 0.5.", show_default=False),
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="The least number of runs in the window before the breaker may open (new: 20).",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="The period in which runs are counted (new: 1m).", show_default=False)
    ] = None,
    pause: Annotated[
        str | None,
        typer.Option(
            help="How long the breaker stays open before it lets probes run (new: 30s).", show_default=False
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="The number of probes (new: 3).", show_default=False),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    no_reason: Annotated[
        bool, typer.Option("--no-reason", help="Remove the reason.", show_default=False)
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the breaker instead.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set, change or remove the breaker of a lambda: it pauses the lambda when too many runs fail. A change sets only the options that you give."""
    changes: Any = {  # each is what its parameter takes
        "failure_rate": given("--failure-rate", failure_rate),
        "minimum": given("--minimum", minimum),
        "window": given("--window", parse_duration(window, "--window")),
        "pause": given("--pause", parse_duration(pause, "--pause")),
        "probes": given("--probes", probes),
        "reason": given("--reason", reason, removed=no_reason),
    }
    is_changed = any(each is not KEEP for each in changes.values())
    if remove and is_changed:
        raise invalid("--remove", "removes the whole breaker: leave out the other options")
    if remove:
        with connected(address) as client:
            client.delete_breaker(lambda_name)
        say(f"{lambda_name}: breaker removed")
        return
    if not is_changed:
        raise invalid(
            "--failure-rate",
            "is missing: 0.5 opens a new breaker when half of the runs fail; or say what to change",
        )
    with connected(address) as client:
        breaker = client.put_breaker(lambda_name, **changes, owner=user_name())
    show_all([breaker], _table, as_object, as_json=as_json)
    if not as_json:
        say_changed(breaker.changed)


def list_breakers(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the breakers, with the runs that ended within their windows."""
    with connected(address) as client:
        found = client.breakers()
    show_all(found, _table, lambda each: as_object(each, ["changed"]), as_json=as_json)


def _table(breakers: Iterable[duly.Breaker]) -> Iterator[str]:
    from duly_core.config.settings import format_duration

    rows = [
        (
            each.lambda_name,
            each.state.name.lower().replace("_", " "),
            moment_text(each.state_since),
            f"{each.failed}/{each.ended}",
            f"{each.failure_rate:.0%} of {each.minimum}+",
            format_duration(each.window),
            format_duration(each.pause),
            str(each.probes),
            each.reason,
        )
        for each in breakers
    ]
    if not rows:
        return iter(["no breakers: `duly gates breaker LAMBDA --failure-rate 0.5` sets one"])
    heads = ("LAMBDA", "STATE", "SINCE", "FAILED", "OPENS AT", "WINDOW", "PAUSE", "PROBES", "REASON")
    return columns(heads, rows, left_out_first=("PROBES", "PAUSE", "WINDOW"))
