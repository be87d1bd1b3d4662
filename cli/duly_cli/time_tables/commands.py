"""`duly tables`: periodic tasks from the shell."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import duly
from duly_cli.limits.commands import parse_need
from duly_cli.output.cell_column import with_cells
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, say, say_changed
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import (
    given,
    parse_attributes,
    parse_duration,
    parse_member,
    parse_moment,
    parse_priority,
    parse_session,
)
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell
from duly_cli.tasks.payloads import Raw, read_payload
from duly_cli.time_tables.text import described, planned_text, rhythm_of, status_of, table_as_json

if TYPE_CHECKING:  # it loads gRPC, which `duly up` does not need
    from duly.time_tables.calls import TimeTable
    from duly.time_tables.new_time_table import TimeTableOptions

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly tables` lists it.")]
_LambdaOption = Annotated[str, typer.Option("--lambda", help="Only those of this lambda.")]
_Cron = Annotated[
    str | None,
    typer.Option(help="Five fields, '30 2 * * 1-5', or @daily, @hourly ...", show_default=False),
]
_Every = Annotated[str | None, typer.Option(help="An interval: 30s, 6h.", show_default=False)]
_Offset = Annotated[
    str | None,
    typer.Option(help="With --every: this long after its multiples since 1970.", show_default=False),
]
_Zone = Annotated[str | None, typer.Option(help="With --cron: Europe/Berlin.", show_default="UTC")]
_CatchUp = Annotated[
    str | None,
    typer.Option(help="Of ticks missed while Duly was down: skip, one or all.", show_default="one"),
]
_Window = Annotated[str | None, typer.Option(help="With --catch-up all: how far back.", show_default="1d")]
_Overlap = Annotated[
    str | None,
    typer.Option(
        help="While the task before has not ended: allow, skip, buffer-one or cancel-running.",
        show_default="allow",
    ),
]
_Jitter = Annotated[
    str | None, typer.Option(help="Fire each tick up to this much later.", show_default="none")
]
_Priority = Annotated[str | None, typer.Option(help="urgent, high, normal or low.", show_default="normal")]
_Collection = Annotated[str | None, typer.Option(help="A label on its tasks.", show_default="none")]
_Resource = Annotated[
    list[str] | None,
    typer.Option(
        help="A resource of which each task takes units: NAME, NAME=WEIGHT, NAME/KEY. Repeatable.",
        show_default=False,
    ),
]
_Session = Annotated[
    str | None,
    typer.Option(help="Key of the session that its tasks belong to.", show_default="none"),
]
_FairKey = Annotated[
    str | None,
    typer.Option(help="Whose work its tasks are: tasks of a lambda take turns by it.", show_default="none"),
]
_Attribute = Annotated[
    list[str] | None,
    typer.Option(help="What its tasks are found by: region=eu. Repeatable.", show_default=False),
]
_NoAttributes = Annotated[
    bool, typer.Option("--no-attributes", help="Its tasks have no attributes.", show_default=False)
]
_NoFairKey = Annotated[bool, typer.Option("--no-fair-key", help="Remove the fair key.", show_default=False)]
_SessionOrder = Annotated[str, typer.Option(help="Order of the session: scheduled, or due (by due time).")]
_SessionOnFailure = Annotated[
    str,
    typer.Option(help="If a task fails for good: skip to the next, block the session, or fail_rest."),
]
_Calendar = Annotated[
    str | None,
    typer.Option(help="Of working days: `duly calendars` lists them.", show_default="none"),
]
_OnClosed = Annotated[
    str | None,
    typer.Option(help="Of ticks on closed days: skip, next or previous (working day).", show_default="skip"),
]
_BusinessHours = Annotated[
    bool | None,
    typer.Option(
        "--business-hours/--no-business-hours",
        help="The business hours of the calendar count, too.",
        show_default=False,
    ),
]
_WorkingDay = Annotated[
    int | None,
    typer.Option(
        min=-31,
        max=31,
        help="Fire only on this working day of a month; -1 is the last; 0 is any.",
        show_default="any",
    ),
]
_NoCalendar = Annotated[
    bool, typer.Option("--no-calendar", help="All days are working days.", show_default=False)
]
_NoOffset = Annotated[bool, typer.Option("--no-offset", help="Remove the offset.", show_default=False)]
_NoZone = Annotated[bool, typer.Option("--no-zone", help="The same as UTC.", show_default=False)]
_NoWindow = Annotated[bool, typer.Option("--no-catch-up-window", help="The same as 1d.", show_default=False)]
_NoJitter = Annotated[bool, typer.Option("--no-jitter", help="Remove the jitter.", show_default=False)]
_NoCollection = Annotated[bool, typer.Option("--no-collection", help="Remove the label.", show_default=False)]
_NoResources = Annotated[
    bool, typer.Option("--no-resources", help="Its tasks need no resource.", show_default=False)
]
_NoSession = Annotated[
    bool, typer.Option("--no-session", help="Its tasks belong to no session.", show_default=False)
]
_Payload = Annotated[
    str | None,
    typer.Argument(metavar="PAYLOAD", help="What each task is given: JSON, or - for standard input."),
]

_tables = Verbs(
    add_completion=False,
    cls=Noun,
    help="List time tables, show one; make, change, pause and delete them.",
)


def add_commands(app: typer.Typer) -> None:
    """Add `tables` with its verbs."""
    app.add_typer(_tables, name="tables", rich_help_panel="Tasks")


@_tables.command("list")
def list_tables(
    lambda_name: _LambdaOption = "",
    cell: InCell = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List time tables: periodic tasks, by a cron expression or an interval."""
    with connected(address) as client:
        found = client.tables(lambda_name=lambda_name, cell=cell)
    if (lambda_name or cell) and not (found or as_json):
        of_lambda = f" of {lambda_name}" if lambda_name else ""
        say(f"no time table{of_lambda}{f' in cell {cell}' if cell else ''}")
        return
    show_all(found, _table, table_as_json, as_json=as_json)


@_tables.command("get", hidden=True)
@_tables.command()
def show(
    name: _Name,
    next_ticks: Annotated[
        int, typer.Option("--next", min=0, max=1000, help="Show this many of its next ticks.")
    ] = 3,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show a time table, with its next ticks."""
    with connected(address) as client:
        table = client.table(name, next_ticks=next_ticks)
        show_all([table], lambda _: described(table), table_as_json, as_json=as_json)


@_tables.command()
def preview(
    name: _Name,
    count: Annotated[int, typer.Option("--next", min=1, max=1000, help="How many ticks.")] = 20,
    start: Annotated[
        str | None,
        typer.Option("--from", help="The first instant: 2026-12-24T00:00:00Z.", show_default="now"),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the ticks of the rhythm itself: which fire, and which the calendar leaves out or moves, and why."""
    begin = parse_moment(start, "--from", needs_zone=True)
    with connected(address) as client:
        table = client.table(name, planned=count, planned_from=begin)
    show_all(table.planned, lambda _: planned_text(table), as_object, as_json=as_json)


@_tables.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the time table to be.")],
    lambda_name: Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")],
    payload: _Payload = "null",
    raw: Raw = False,
    cron: _Cron = None,
    every: _Every = None,
    offset: _Offset = None,
    zone: _Zone = None,
    catch_up: _CatchUp = None,
    catch_up_window: _Window = None,
    overlap: _Overlap = None,
    jitter: _Jitter = None,
    priority: _Priority = None,
    collection: _Collection = None,
    resource: _Resource = None,
    session: _Session = None,
    session_order: _SessionOrder = "scheduled",
    session_on_failure: _SessionOnFailure = "skip",
    fair_key: _FairKey = None,
    attribute: _Attribute = None,
    calendar: _Calendar = None,
    on_closed: _OnClosed = None,
    business_hours: _BusinessHours = None,
    working_day: _WorkingDay = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Create a time table and show it."""
    options: Any = (
        _options(cron, every, offset, zone, catch_up, catch_up_window, overlap, jitter, priority, collection)
        | _shared(resource, session, session_order, session_on_failure, fair_key, attribute)
        | _rule(calendar, on_closed, business_hours, working_day)
    )
    value = read_payload(payload or "null", raw=raw)
    with connected(address) as client, _refused_by_option():
        _say(client, client.create_table(name, lambda_name, value, **options))


@_tables.command("change", hidden=True)
@_tables.command("set")
def set_table(
    name: _Name,
    payload: _Payload = None,
    raw: Raw = False,
    lambda_name: Annotated[
        str | None, typer.Option("--lambda", help="Another lambda.", show_default=False)
    ] = None,
    cron: _Cron = None,
    every: _Every = None,
    offset: _Offset = None,
    zone: _Zone = None,
    catch_up: _CatchUp = None,
    catch_up_window: _Window = None,
    overlap: _Overlap = None,
    jitter: _Jitter = None,
    priority: _Priority = None,
    collection: _Collection = None,
    resource: _Resource = None,
    session: _Session = None,
    session_order: _SessionOrder = "scheduled",
    session_on_failure: _SessionOnFailure = "skip",
    fair_key: _FairKey = None,
    attribute: _Attribute = None,
    calendar: _Calendar = None,
    on_closed: _OnClosed = None,
    business_hours: _BusinessHours = None,
    working_day: _WorkingDay = None,
    no_offset: _NoOffset = False,
    no_zone: _NoZone = False,
    no_catch_up_window: _NoWindow = False,
    no_jitter: _NoJitter = False,
    no_collection: _NoCollection = False,
    no_resources: _NoResources = False,
    no_session: _NoSession = False,
    no_fair_key: _NoFairKey = False,
    no_attributes: _NoAttributes = False,
    no_calendar: _NoCalendar = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Change a time table, only the options that you give, and show it. Declarations no longer change it."""
    options: Any = (
        _options(cron, every, offset, zone, catch_up, catch_up_window, overlap, jitter, priority, collection)
        | _shared(resource, session, session_order, session_on_failure, fair_key, attribute)
        | _rule(calendar, on_closed, business_hours, working_day)
    )
    removed = {
        "offset": no_offset,
        "zone": no_zone,
        "catch_up_window": no_catch_up_window,
        "jitter": no_jitter,
        "collection": no_collection,
        "resources": no_resources,
        "session": no_session,
        "fair_key": no_fair_key,
        "attributes": no_attributes,
        "calendar": no_calendar,
    }
    for option in (each for each, is_removed in removed.items() if is_removed):
        options[option] = given(f"--{option.replace('_', '-')}", options.get(option), removed=True)
    changed: dict[str, Any] = {} if payload is None else {"payload": read_payload(payload, raw=raw)}
    if not (options or changed or lambda_name):
        message = "say what to change: --cron, --every, --overlap ..., or another PAYLOAD"
        raise typer.BadParameter(message)
    with connected(address) as client, _refused_by_option():
        table = client.change_table(name, lambda_name, **changed, **options)
        _say(client, table)
        say_changed(table.changed)


@_tables.command()
def pause(
    name: _Name,
    note: Annotated[str | None, typer.Option(help="Why, for others to read.", show_default=False)] = None,
    no_note: Annotated[bool, typer.Option("--no-note", help="Remove the note.", show_default=False)] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Pause a time table until it is resumed, whatever workers declare. If the table is paused already, its note stays."""
    said = given("--note", note, removed=no_note)
    with connected(address) as client:
        _say(client, client.pause_table(name, note=said))


@_tables.command()
def resume(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Resume a time table with its first tick from now on; `backfill` schedules what fell into the pause."""
    with connected(address) as client:
        _say(client, client.resume_table(name))


@_tables.command()
def delete(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Delete a time table; its tasks stay."""
    with connected(address) as client:
        gone = client.delete_table(name)
    say(f"{name} deleted")
    if gone.declared:
        say(
            "an application declares it: it comes back when a worker attaches, unless the declaration is removed; "
            "`duly tables pause` stops it for good",
            err=True,
        )


@_tables.command()
def backfill(
    name: _Name,
    start: Annotated[
        str, typer.Option("--from", help="The first instant: 2026-11-01T00:00:00Z.", show_default=False)
    ],
    end: Annotated[
        str | None, typer.Option("--to", help="The instant before which it ends.", show_default="now")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many ticks there are.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Schedule the ticks of a past range at once; those that have their task already are left out."""
    begin = parse_moment(start, "--from", needs_zone=True)
    if begin is None:
        message = "--from must be an instant"
        raise typer.BadParameter(message)
    with connected(address) as client:
        done = client.backfill_table(name, begin, parse_moment(end, "--to", needs_zone=True), dry_run=dry_run)
    ticks = counted(done.ticks, "tick")
    say(ticks if dry_run else f"{ticks}, {counted(done.created, 'task')} scheduled")


def _table(tables: "Iterable[TimeTable]") -> Iterator[str]:
    listed = list(tables)
    rows = [
        (
            each.name,
            each.lambda_name,
            rhythm_of(each),
            moment_text(each.next_fire_at),
            moment_text(each.last_tick_at),
            status_of(each),
        )
        for each in listed
    ]
    if not rows:
        return iter(["no time tables: `duly tables create NAME LAMBDA --cron '0 3 * * *'` makes one"])
    heads = ("NAME", "LAMBDA", "FIRES", "NEXT", "LAST TICK", "STATUS")
    return columns(*with_cells(heads, rows, [each.cell for each in listed], before="FIRES"))


def _options(
    cron: str | None,
    every: str | None,
    offset: str | None,
    zone: str | None,
    catch_up: str | None,
    catch_up_window: str | None,
    overlap: str | None,
    jitter: str | None,
    priority: str | None,
    collection: str | None,
) -> "TimeTableOptions":
    """Return what was said; what was not said is left out."""
    said: dict[str, Any] = {
        "cron": cron,
        "every": parse_duration(every, "--every"),
        "offset": parse_duration(offset, "--offset"),
        "zone": zone,
        "catch_up": catch_up and parse_member("--catch-up", catch_up, duly.CatchUp, "a policy"),
        "catch_up_window": parse_duration(catch_up_window, "--catch-up-window"),
        "overlap": overlap and parse_member("--overlap", overlap, duly.Overlap, "a policy", "-"),
        "jitter": parse_duration(jitter, "--jitter"),
        "priority": priority and parse_priority(priority),
        "collection": collection,
    }
    options: Any = {name: value for name, value in said.items() if value is not None}
    return options  # type: ignore[no-any-return]  # keys and values are those of TimeTableOptions


def _shared(
    resources: list[str] | None,
    session: str | None,
    session_order: str,
    session_on_failure: str,
    fair_key: str | None,
    attributes: list[str] | None,
) -> "TimeTableOptions":
    """Return what was said of what its tasks share with others."""
    said: dict[str, Any] = {
        "resources": resources and [parse_need(each) for each in resources],
        "session": parse_session(session, session_order, session_on_failure),
        "fair_key": fair_key,
        "attributes": parse_attributes(attributes, "--attribute") if attributes else None,
    }
    options: Any = {name: value for name, value in said.items() if value is not None}
    return options  # type: ignore[no-any-return]  # as above


def _rule(
    calendar: str | None, on_closed: str | None, business_hours: bool | None, working_day: int | None
) -> "TimeTableOptions":
    said: dict[str, Any] = {
        "calendar": calendar,
        "on_closed": on_closed and parse_member("--on-closed", on_closed, duly.OnClosed, "a policy"),
        "business_hours": business_hours,
        "working_day": working_day,
    }
    options: Any = {name: value for name, value in said.items() if value is not None}
    return options  # type: ignore[no-any-return]  # keys and values are those of TimeTableOptions


_OPTIONS = {
    "on_closed": "--on-closed",
    "business_hours": "--business-hours",
    "working_day": "--working-day",
    "catch_up_window": "--catch-up-window",
    **{name: f"--{name}" for name in ("cron", "every", "offset", "zone", "jitter", "collection", "calendar")},
}
"""By the field of a time table that a server refuses."""
_REMOVABLE = ("--offset", "--zone", "--catch-up-window", "--jitter", "--collection", "--calendar")
_REMOVAL = re.compile(r",? or remove it \(name it in update_mask, unset\)")
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b|\b(?:SKIP|NEXT|PREVIOUS)\b")


@contextmanager
def _refused_by_option() -> Iterator[None]:
    """Say of which option a server refuses the value, and with the words of the command line."""
    try:
        yield
    except duly.InvalidTaskError as error:
        option = _OPTIONS.get(error.field)
        if option is None:
            raise
        removal = f", or remove it with --no-{option[2:]}" if option in _REMOVABLE else ""
        message = _REMOVAL.sub(removal, str(error).removeprefix(f"{error.field}: "))
        message = _WORD.sub(lambda word: _OPTIONS.get(word[0], word[0].lower()), message)
        raise duly.InvalidTaskError(f"{option}: {message}", error.field) from None


def _say(client: "duly.Client", table: "TimeTable") -> None:
    say("\n".join(described(client.table(table.name, next_ticks=3))))
