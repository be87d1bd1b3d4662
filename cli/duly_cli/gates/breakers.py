"""`duly breakers`: lambdas that are paused by themselves when too many of their runs fail."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

import duly
from duly.keep import KEEP
from duly_cli.access.os_user import user_name
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import say, say_changed
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.option_values import given, invalid, parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell

_Lambda = Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")]
_FailureRate = Annotated[
    float | None,
    typer.Option(help="Open when this share of the runs failed, such as 0.5.", show_default=False),
]
_Minimum = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="The least number of runs in the window before the breaker may open (new: 20).",
        show_default=False,
    ),
]
_Window = Annotated[
    str | None, typer.Option(help="The period in which runs are counted (new: 1m).", show_default=False)
]
_Pause = Annotated[
    str | None,
    typer.Option(
        help="How long the breaker stays open before it lets probes run (new: 30s).", show_default=False
    ),
]
_Probes = Annotated[
    int | None, typer.Option(min=1, max=1_000, help="The number of probes (new: 3).", show_default=False)
]
_Reason = Annotated[str | None, typer.Option(help="For people: why.", show_default=False)]
_NoReason = Annotated[bool, typer.Option("--no-reason", help="Remove the reason.", show_default=False)]

_breakers = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `breakers` with its verbs."""
    app.add_typer(
        _breakers,
        name="breakers",
        rich_help_panel="For operators",
        help="Pause lambdas by themselves when too many of their runs fail.",
    )


def change_breaker(
    lambda_name: _Lambda,
    failure_rate: _FailureRate = None,
    minimum: _Minimum = None,
    window: _Window = None,
    pause: _Pause = None,
    probes: _Probes = None,
    reason: _Reason = None,
    no_reason: _NoReason = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the breaker instead.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set, change or remove a breaker: `duly breakers set` and `delete` by an older name."""
    if not remove:
        set_breaker(
            lambda_name,
            failure_rate,
            minimum,
            window,
            pause,
            probes,
            reason,
            no_reason=no_reason,
            address=address,
            as_json=as_json,
        )
        return
    if no_reason or any(each is not None for each in (failure_rate, minimum, window, pause, probes, reason)):
        raise invalid("--remove", "removes the whole breaker: leave out the other options")
    delete_breaker(lambda_name, address)


@_breakers.command("set")
def set_breaker(
    lambda_name: _Lambda,
    failure_rate: _FailureRate = None,
    minimum: _Minimum = None,
    window: _Window = None,
    pause: _Pause = None,
    probes: _Probes = None,
    reason: _Reason = None,
    no_reason: _NoReason = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set the breaker of a lambda, or change it: only the options that you give. It pauses the lambda when too many runs fail."""
    changes: Any = {  # each is what its parameter takes
        "failure_rate": given("--failure-rate", failure_rate),
        "minimum": given("--minimum", minimum),
        "window": given("--window", parse_duration(window, "--window")),
        "pause": given("--pause", parse_duration(pause, "--pause")),
        "probes": given("--probes", probes),
        "reason": given("--reason", reason, removed=no_reason),
    }
    if all(each is KEEP for each in changes.values()):
        raise invalid(
            "--failure-rate",
            "is missing: 0.5 opens a new breaker when half of the runs fail; or say what to change",
        )
    with connected(address) as client:
        breaker = client.put_breaker(lambda_name, **changes, owner=user_name())
    show_all([breaker], _table, as_object, as_json=as_json)
    if not as_json:
        say_changed(breaker.changed)


@_breakers.command("delete")
def delete_breaker(lambda_name: _Lambda, address: Address = DEFAULT_ADDRESS) -> None:
    """Delete the breaker of a lambda; if it is open, what it held is due at once."""
    with connected(address) as client:
        client.delete_breaker(lambda_name)
    say(f"{lambda_name}: breaker removed")


@_breakers.command("get", hidden=True)
@_breakers.command("show")
def show_breaker(lambda_name: _Lambda, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show the breaker of a lambda: its state, its limits, and the runs that ended within its window."""
    with connected(address) as client:
        unknown = f"{lambda_name!r} has no breaker: `duly breakers list` names the others"
        found = one_of(client.breakers(), lambda each: each.lambda_name == lambda_name, unknown)
    show_all([found], _table, lambda each: as_object(each, ["changed"]), as_json=as_json)


@_breakers.command("list")
def list_breakers(cell: InCell = "", address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the breakers, with the runs that ended within their windows."""
    with connected(address) as client:
        found = client.breakers(cell=cell)
    if cell and not (found or as_json):
        say(f"no lambda of cell {cell} has a breaker")
        return
    show_all(found, _table, lambda each: as_object(each, ["changed"]), as_json=as_json)


def _table(breakers: "Iterable[duly.Breaker]") -> Iterator[str]:
    from duly_core.config.settings import format_duration

    listed = list(breakers)
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
        for each in listed
    ]
    if not rows:
        return iter(["no breakers: `duly breakers set LAMBDA --failure-rate 0.5` sets one"])
    heads = ("LAMBDA", "STATE", "SINCE", "FAILED", "OPENS AT", "WINDOW", "PAUSE", "PROBES", "REASON")
    return columns(
        *with_cells(heads, rows, [each.cell for each in listed], before="STATE"),
        left_out_first=("PROBES", "PAUSE", "WINDOW"),
        styles={"STATE": status_style},
    )
