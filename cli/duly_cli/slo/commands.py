"""`duly slo`: what is promised, how much of it is kept, and what is left of the error budget; objectives of lambdas."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Annotated

import typer

import duly
from duly.keep import KEEP
from duly_cli.output.cell_column import with_cells
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, one_line, say, say_changed
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun, UnknownNameError
from duly_cli.startup.option_values import invalid, parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell

_NO_DATA = "no data"
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_Pattern = Annotated[
    str,
    typer.Argument(
        metavar="LAMBDA", help="A lambda, or a prefix such as 'mail.*' or 'team/*'.", show_default=False
    ),
]


class _Slo(Noun):
    """`duly slo LAMBDA` is short for `duly slo show LAMBDA`."""

    named = "show"


_slo = Verbs(add_completion=False, cls=_Slo)


def add_commands(app: typer.Typer) -> None:
    """Add `slo` with its verbs."""
    app.add_typer(
        _slo,
        name="slo",
        rich_help_panel="For operators",
        help="Show what is promised and how much of it is kept; set objectives of lambdas.",
    )


@_slo.command("list")
def list_levels(cell: InCell = "", address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show what is promised, how much of it is kept, and how fast the error budget burns.

    `duly settings set slo.starts_objective 99` changes what is promised of lambdas without an objective of their own.
    """
    with connected(address) as client:
        found = client.service_levels(cell=cell)
    show_all(found, _table, as_object, as_json=as_json)


@_slo.command("get", hidden=True)
@_slo.command("show")
def show_level(
    lambda_name: Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")],
    cell: InCell = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what is promised of one lambda, whether it had runs or not."""
    with connected(address) as client:
        try:
            found = client.service_levels(lambda_name=lambda_name, cell=cell)
        except duly.InvalidTaskError as error:
            raise UnknownNameError(str(error)) from error
    show_all(found, _table, as_object, as_json=as_json)


@_slo.command("set")
def set_objective(
    lambda_name: _Pattern,
    within: Annotated[
        str | None,
        typer.Option(
            help="A run is on time if it starts so long after it could: 1s, 10m.", show_default=False
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(help="The percentage of runs that is to be on time, such as 99.9.", show_default=False),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set the objective of a lambda or prefix, or change it: only the options that you give. The longest prefix that fits holds."""
    if within is None and share is None:
        raise invalid("--within", "is missing, and --share: such as --within 1s --share 99.9")
    percentage = None if share is None else _read_percentage(share)
    start_within = parse_duration(within, "--within")
    with connected(address) as client:
        done = client.put_objective(
            lambda_name,
            KEEP if percentage is None else round(percentage / _ALL, _DIGITS),
            start_within=KEEP if start_within is None else start_within,
        )
    show_all([done], _objectives, as_object, as_json=as_json)
    if not as_json:
        say_changed(done.changed)
        say(_reach(done))


@_slo.command("reset")
def reset_objective(lambda_name: _Pattern, address: Address = DEFAULT_ADDRESS) -> None:
    """Remove the objective of a lambda or prefix: a shorter prefix or the settings hold again."""
    with connected(address) as client:
        client.delete_objective(lambda_name)
    say(f"{lambda_name}: objective removed")


@_slo.command("objectives")
def list_objectives(cell: InCell = "", address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the objectives of lambdas and prefixes."""
    with connected(address) as client:
        found = client.objectives(cell=cell)
    if cell and not (found or as_json):
        say(f"no lambda of cell {cell} has an objective of its own")
        return
    show_all(found, _objectives, lambda each: as_object(each, ["changed", "lambdas"]), as_json=as_json)


def _read_percentage(text: str) -> float:
    """Return a percentage; a part of 1, such as 0.999, is refused: as a percentage nearly every run would keep it."""
    try:
        percentage = float(text.strip().removesuffix("%"))
    except ValueError:
        raise invalid("--share", f"must be a percentage, such as 99.9, not {text!r}") from None
    if percentage == _ALL:
        raise invalid("--share", "must be less than 100: with 100 there is no budget")
    if not _LEAST <= percentage < _ALL:
        raise invalid(
            "--share", f"must be a percentage from {_LEAST} to less than 100, such as 99.9, not {text!r}"
        )
    return percentage


_ALL = 100
_LEAST = 50
_DIGITS = 12
"""Of a share: 99.9 / 100 is 0.999."""


def _reach(done: duly.Objective) -> str:
    number = done.lambdas or 0
    if number:
        return f"holds for {counted(number, 'registered lambda')}"
    if done.lambda_name.endswith("*"):
        return "holds for no registered lambda yet: none has this prefix, or each has a narrower objective"
    return "no lambda of this name is registered yet: it holds as soon as one is"


def _objectives(found: Iterable[duly.Objective]) -> Iterator[str]:
    listed = list(found)
    rows = [
        (
            one_line(each.lambda_name),
            f"starts within {_length(each.start_within)}",
            _percent(each.share),
            moment_text(each.changed_at),
        )
        for each in listed
    ]
    if not rows:
        return iter(["no objectives: `duly slo set LAMBDA --within 1s --share 99.9` sets one"])
    heads = ("LAMBDA", "PROMISE", "OBJECTIVE", "CHANGED")
    return columns(*with_cells(heads, rows, [each.cell for each in listed], before="PROMISE"))


def _table(found: Iterable[duly.ServiceLevel]) -> Iterable[str]:
    levels = list(found)
    window = levels[0].window.length if levels else None
    has_own = any(each.objective_of for each in levels)
    days = [length for length in (_DAY, window) if length is not None]
    lengths = [_HOUR, *dict.fromkeys(days)]
    rows = [
        (
            _indicator(each),
            _subject(each, has_own=has_own),
            _percent(each.objective),
            *(_share(each, length) for length in lengths),
            _budget(each),
            _burn(each),
            _alert(each),
        )
        for each in levels
    ]
    shares = ["1 H", *(f"{length // _DAY} D" for length in lengths[1:])]
    heads = ("PROMISE", "LAMBDA", "OBJECTIVE", *shares, "BUDGET LEFT", "BURNS", "ALERT")
    yield from columns(*with_cells(heads, rows, [each.cell for each in levels], before="OBJECTIVE"))
    since = min((each.counted_since for each in levels if each.counted_since is not None), default=None)
    prefixes = sorted(
        {each.objective_of for each in levels if each.objective_of not in ("", each.lambda_name)}
    )
    if prefixes:
        yield f"By objectives of prefixes: {', '.join(map(one_line, prefixes))}."
    if since is not None and levels[0].window.length > _DAY:
        yield f"Counted since {moment_text(since)}."


def _indicator(level: duly.ServiceLevel) -> str:
    if level.indicator is duly.ServiceLevelIndicator.STARTS and level.start_within is not None:
        return f"starts within {_length(level.start_within)}"
    return "calls accepted" if level.indicator is duly.ServiceLevelIndicator.CALLS else "?"


def _length(within: timedelta) -> str:
    seconds = within.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:g} ms"
    return f"{seconds:g} s" if seconds <= 60 else f"{seconds / 60:g} min"


def _subject(level: duly.ServiceLevel, *, has_own: bool) -> str:
    if level.indicator is duly.ServiceLevelIndicator.CALLS:
        return ""
    return one_line(level.lambda_name) or ("(all others)" if has_own else "(all)")


def _share(level: duly.ServiceLevel, length: timedelta) -> str:
    share = next((span.share for span in level.spans if span.length == length), None)
    return _NO_DATA if share is None else _percent(share)


def _percent(share: float) -> str:
    """Return a percentage that says 100 only if it is."""
    percent = 100 * share
    if share < 1:
        percent = min(percent, 99.999)
    return f"{percent:.3f}".rstrip("0").rstrip(".") + " %"


def _budget(level: duly.ServiceLevel) -> str:
    return _NO_DATA if level.budget_left is None else f"{100 * level.budget_left:,.0f} %"


def _burn(level: duly.ServiceLevel) -> str:
    burn = next((span.burn_rate for span in level.spans if span.length == _HOUR), None)
    return "" if burn is None else f"{burn:.1f}x"


def _alert(level: duly.ServiceLevel) -> str:
    return "" if level.alert is None else level.alert.name.lower()
