"""`duly calendars`: working days, which time tables name."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duly.keep import KEEP
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, one_line, say, say_changed
from duly_cli.output.table import columns
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import given, invalid
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

if TYPE_CHECKING:  # it loads gRPC
    from duly.time_tables.calendars import Calendar

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The calendar's name, such as office or shop/office.")
]
_calendars = Verbs(
    add_completion=False,
    cls=Noun,
    help="List calendars of working days, show one; check a date; set and delete them.",
)


def add_commands(app: typer.Typer) -> None:
    """Add `calendars` with its verbs."""
    app.add_typer(_calendars, name="calendars", rich_help_panel="Tasks")


@_calendars.command("list")
def list_calendars(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the calendars."""
    with connected(address) as client:
        found = client.calendars()
    show_all(found, _table, _as_json, as_json=as_json)


@_calendars.command("get", hidden=True)
@_calendars.command()
def show(name: _Name, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a calendar, and the time tables that name it."""
    with connected(address) as client:
        found = client.calendar(name)
    show_all([found], lambda _: _described(found), _as_json, as_json=as_json)


@_calendars.command()
def check(
    name: _Name,
    dates: Annotated[list[str], typer.Argument(metavar="DATE...", help="Such as 2026-12-24.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say whether dates are working days, why not, and which working day is next."""
    asked = [_parsed("DATE", text) for text in dates]
    with connected(address) as client:
        days = client.calendar(name, dates=asked).days
    rows = [
        (
            f"{each.day:%a %Y-%m-%d}",
            "open" if each.open else "closed",
            ", ".join(each.hours) if each.open else each.reason,
            str(each.previous_open or "-"),
            str(each.next_open or "-"),
        )
        for each in days
    ]
    header = ("DATE", "IS", "HOURS OR REASON", "WORKING DAY BEFORE", "NEXT WORKING DAY")
    show_all(days, lambda _: columns(header, rows), as_object, as_json=as_json)


@_calendars.command("set")
def set_calendar(
    name: _Name,
    holidays: Annotated[
        list[str] | None,
        typer.Option(
            "--holidays",
            help="Close the holidays of a place: DE, DE-BY, US-NY, XNYS. May be repeated.",
            show_default=False,
        ),
    ] = None,
    no_holidays: Annotated[
        bool, typer.Option("--no-holidays", help="Close no holidays.", show_default=False)
    ] = False,
    weekend: Annotated[str | None, typer.Option(help="Weekdays, or none.", show_default="sat,sun")] = None,
    no_weekend: Annotated[
        bool, typer.Option("--no-weekend", help="The same as --weekend none.", show_default=False)
    ] = False,
    closed: Annotated[
        list[str] | None,
        typer.Option(
            "--closed", help="All own closed dates: 2026-12-24. May be repeated.", show_default=False
        ),
    ] = None,
    no_closed: Annotated[
        bool, typer.Option("--no-closed", help="No own closed dates.", show_default=False)
    ] = False,
    open_: Annotated[
        list[str] | None,
        typer.Option("--open", help="All own working days: 2026-12-19. May be repeated.", show_default=False),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="No own working days.", show_default=False)
    ] = False,
    hours: Annotated[
        list[str] | None,
        typer.Option(
            "--hours", help="Business hours: 'MON-FRI 09:00-17:00'. May be repeated.", show_default=False
        ),
    ] = None,
    no_hours: Annotated[
        bool, typer.Option("--no-hours", help="Working days are open all day.", show_default=False)
    ] = False,
    note: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    no_note: Annotated[bool, typer.Option("--no-note", help="Remove the note.", show_default=False)] = False,
    if_revision: Annotated[
        int | None,
        typer.Option(
            min=0, help="Only if this is still its revision; 0: only if it is new.", show_default=False
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Create a calendar, or change only the options that you give. Its time tables follow at once."""
    days = None if weekend is None else [] if weekend.lower() == "none" else weekend.upper().split(",")
    if no_weekend and days is not None:
        raise invalid("--no-weekend", "say either --weekend or --no-weekend")
    changes: dict[str, Any] = {
        "holidays": given("--holidays", holidays or None, removed=no_holidays),
        "weekend": [] if no_weekend else given("--weekend", days),
        "closed": given(
            "--closed", closed and [_parsed("--closed", each) for each in closed], removed=no_closed
        ),
        "open": given("--open", open_ and [_parsed("--open", each) for each in open_], removed=no_open),
        "hours": given("--hours", hours and [each.upper() for each in hours], removed=no_hours),
        "note": given("--note", note, removed=no_note),
    }
    if all(each is KEEP for each in changes.values()) and if_revision != 0:
        raise invalid(
            "--holidays",
            "say what to set: --holidays, --weekend, --closed, --open, --hours, --note, or their --no-...",
        )
    with connected(address) as client:
        done = client.put_calendar(name, if_revision=if_revision, **changes)
    say("\n".join(_described(done)))
    say_changed(done.changed)
    if done.moved_tables:
        say(f"{counted(done.moved_tables, 'time table')} with another next tick", err=True)


@_calendars.command()
def delete(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Delete a calendar that no time table names."""
    with connected(address) as client:
        client.delete_calendar(name)
    say(f"{name} deleted")


def _parsed(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise invalid(option, f"{text!r} is no date: write it as 2026-12-24") from None


def _described(calendar: "Calendar") -> Iterator[str]:
    facts = {
        "name": calendar.name,
        "holidays": ", ".join(calendar.holidays) or "none",
        "weekend": ", ".join(calendar.weekend) or "none",
        "closed": ", ".join(map(str, calendar.closed)),
        "open": ", ".join(map(str, calendar.open)),
        "hours": ", ".join(calendar.hours) or "all day",
        "note": calendar.note,
        "revision": str(calendar.revision),
        "time tables": ", ".join(calendar.time_tables),
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        if value:
            yield f"{name:<{width}}  {one_line(value)}"


def _table(calendars: "Iterable[Calendar]") -> Iterator[str]:
    rows = [
        (
            each.name,
            ", ".join(each.holidays) or "-",
            ", ".join(each.weekend) or "none",
            str(len(each.closed)),
            str(len(each.open)),
            "; ".join(each.hours) or "all day",
            one_line(each.note),
        )
        for each in calendars
    ]
    if not rows:
        return iter(["no calendars: `duly calendars set NAME --holidays DE` makes one"])
    return columns(("CALENDAR", "HOLIDAYS", "WEEKEND", "CLOSED", "OPEN", "HOURS", "NOTE"), rows)


def _as_json(calendar: "Calendar") -> dict[str, Any]:
    return as_object(calendar, left_out=["changed", "moved_tables", "days"])
