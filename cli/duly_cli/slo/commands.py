"""`duly slo`: what is promised, how much of it is kept, and what is left of the error budget."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line
from duly_cli.output.table import columns
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_NO_DATA = "no data"
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


def add_command(app: typer.Typer) -> None:
    """Add `slo`."""
    app.command("slo", rich_help_panel="For operators")(slo)


def slo(
    lambda_name: Annotated[
        str, typer.Argument(metavar="[LAMBDA]", help="Only this one.", show_default=False)
    ] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what is promised, how much of it is kept, and how fast the error budget burns.

    `duly settings set slo.starts_objective 99` changes what is promised.
    """
    with connected(address) as client:
        found = client.service_levels(lambda_name=lambda_name)
    show_all(found, _table, as_object, as_json=as_json)


def _table(found: Iterable[duly.ServiceLevel]) -> Iterable[str]:
    levels = list(found)
    window = levels[0].window.length if levels else None
    days = [length for length in (_DAY, window) if length is not None]
    lengths = [_HOUR, *dict.fromkeys(days)]
    rows = [
        (
            _indicator(each),
            _subject(each),
            _percent(each.objective),
            *(_share(each, length) for length in lengths),
            _budget(each),
            _burn(each),
            _alert(each),
        )
        for each in levels
    ]
    shares = ["1 H", *(f"{length // _DAY} D" for length in lengths[1:])]
    yield from columns(("PROMISE", "LAMBDA", "OBJECTIVE", *shares, "BUDGET LEFT", "BURNS", "ALERT"), rows)
    since = min((each.counted_since for each in levels if each.counted_since is not None), default=None)
    if since is not None and levels[0].window.length > _DAY:
        yield f"Counted since {since.astimezone():%Y-%m-%d %H:%M}."


def _indicator(level: duly.ServiceLevel) -> str:
    if level.indicator is duly.ServiceLevelIndicator.STARTS and level.start_within is not None:
        return f"starts within {_length(level.start_within)}"
    return "calls accepted" if level.indicator is duly.ServiceLevelIndicator.CALLS else "?"


def _length(within: timedelta) -> str:
    seconds = within.total_seconds()
    return f"{seconds:g} s" if seconds <= 60 else f"{seconds / 60:g} min"


def _subject(level: duly.ServiceLevel) -> str:
    if level.indicator is duly.ServiceLevelIndicator.CALLS:
        return ""
    return one_line(level.lambda_name) or "(all)"


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
