"""`duly resources`: what tasks share, and how much of it they may take at a time."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

import duly
from duly.keep import KEEP
from duly_cli.output.cell_column import with_cells
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.option_values import given, invalid, parse_duration, parse_moment
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The resource's name, such as database.")]

_resources = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `resources` with its verbs."""
    app.add_typer(
        _resources,
        name="resources",
        rich_help_panel="For operators",
        help="Limit how many tasks use a resource at a time; show what is used.",
    )


@_resources.command("list")
def list_resources(
    max_keys: Annotated[
        int, typer.Option(min=0, max=100, help="Show at most this many used keys of each resource.")
    ] = 0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the resources: capacity, units in use, parked tasks, which wait for units, and who set or declared each."""
    with connected(address) as client:
        found = client.resources(max_keys=max_keys)
    show_all(found, _table, _as_json, as_json=as_json)


@_resources.command("get", hidden=True)
@_resources.command("show")
def show_resource(
    name: _Name,
    max_keys: Annotated[int, typer.Option(min=0, max=100, help="Show at most this many used keys.")] = 100,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show a resource with its keys in use: capacity, units in use, and parked tasks."""
    with connected(address) as client:
        unknown = f"no resource {name!r} is declared: `duly resources list` has their names"
        found = one_of(client.resources(max_keys=max_keys), lambda each: each.name == name, unknown)
    show_all([found], _table, _as_json, as_json=as_json)


@_resources.command("set")
def set_resource(
    name: _Name,
    capacity: Annotated[
        int | None,
        typer.Argument(
            min=0,
            max=1_000_000,
            help="Units that tasks may take at a time; 0 holds them all back. A new resource needs it, or a rate.",
            show_default=False,
        ),
    ] = None,
    no_capacity: Annotated[
        bool, typer.Option("--no-capacity", help="Let only the rate limit them.", show_default=False)
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            help="Units that tasks may start to use in a period: 10/s, 100/m, 5/10s.", show_default=False
        ),
    ] = None,
    no_rate: Annotated[
        bool, typer.Option("--no-rate", help="Remove the rate and its burst.", show_default=False)
    ] = False,
    burst: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="The burst: how many units may start at once (new: 1).",
            show_default=False,
        ),
    ] = None,
    no_burst: Annotated[
        bool, typer.Option("--no-burst", help="Set the burst to 1.", show_default=False)
    ] = False,
    per_key: Annotated[
        bool | None,
        typer.Option(
            "--per-key/--no-per-key",
            help="Apply the capacity and rate to each key separately.",
            show_default=False,
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    no_note: Annotated[bool, typer.Option("--no-note", help="Remove the note.", show_default=False)] = False,
    expected_changed_at: Annotated[
        str | None,
        typer.Option(
            help="Only if it was changed last at this time: `changed_at` of `duly resources list --json`.",
            show_default=False,
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Declare a resource, or change an existing one: only the options that you give. More capacity starts parked tasks. Less capacity does not stop running tasks."""
    expected = parse_moment(expected_changed_at, "--expected-changed-at", needs_zone=True)
    if capacity is not None and no_capacity:
        raise invalid("--no-capacity", "say either CAPACITY or --no-capacity")
    if no_rate and burst is not None:
        raise invalid("--burst", "say either --burst or --no-rate, which removes the burst")
    changes = {
        "capacity": given("CAPACITY", capacity, removed=no_capacity),
        "rate": given("--rate", parse_rate(rate), removed=no_rate),
        "burst": given("--burst", burst, removed=no_burst and not no_rate),
        "per_key": given("--per-key", per_key),
        "note": given("--note", note, removed=no_note),
    }
    if all(each is KEEP for each in changes.values()):
        raise invalid(
            "CAPACITY", "say what to change: CAPACITY, --rate, --burst, --per-key, --note, or their --no-..."
        )
    asked: Any = changes  # each is what its parameter takes
    with connected(address) as client:
        say(_changed(client.put_resource(name, **asked, expected_changed_at=expected)))


def _changed(done: duly.DeclaredResource) -> str:
    """Return the resource on a line: first what the call changed, then what stays."""
    rate = done.rate
    said = {
        "capacity": "no capacity" if done.capacity is None else f"{done.capacity} units",
        "rate.units": f"rate {duly.Rate(rate.units, rate.period)}" if rate else "no rate",
        "rate.burst": f"burst {rate.burst}" if rate else "no burst",
        "per_key": "for each key" if done.per_key else "for all keys together",
        "note": f"note {one_line(done.note)!r}" if done.note else "no note",
    }
    empty = {
        "capacity": done.capacity is None,
        "rate.units": rate is None,
        "rate.burst": rate is None,
        "per_key": not done.per_key,
        "note": not done.note,
    }
    changed = {each.replace(".period", ".units") for each in done.changed}
    new = ", ".join(text for field, text in said.items() if field in changed and text)
    kept = ", ".join(
        text for field, text in said.items() if field not in changed and text and not empty.get(field)
    )
    several = f" (in {_cells(done.cells)})" if len(done.cells) > 1 else ""
    return f"{done.name}: " + "; ".join(filter(None, [new, kept and f"unchanged: {kept}"])) + several


def _cells(cells: Sequence[str]) -> str:
    """Return where a limit holds: in a cell, or in each of several by itself."""
    return f"each of {len(cells)} cells" if len(cells) > 1 else "".join(cells)


@_resources.command("delete")
def delete_resource(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Remove a resource that no task uses; tasks that still name it run without its limit."""
    with connected(address) as client:
        client.delete_resource(name)
    say(f"{name}: removed")


def parse_rate(text: str | None) -> duly.Rate | None:
    """Return what `--rate` asks for: UNITS/PERIOD, such as 10/s or 5/10s."""
    if text is None:
        return None
    units, slash, period = text.partition("/")
    if not slash or not units.isascii() or not units.isdigit():
        raise invalid(
            "--rate", f"{text!r} is not a rate: write units and a period, such as 10/s, 100/m, 5/10s"
        )
    length = parse_duration(period if period[:1].isdigit() else f"1{period}", "--rate")
    return duly.Rate(int(units), length or timedelta())


def parse_need(text: str) -> duly.ResourceNeed:
    """Return what `--resource` asks for: NAME, NAME=WEIGHT, NAME/KEY, NAME/KEY=WEIGHT."""
    place, equals, weight = text.rpartition("=")
    if not equals:
        place, weight = text, "1"
    if not weight.isascii() or not weight.isdigit():
        message = f"--resource: {text!r}: write NAME, NAME=WEIGHT, NAME/KEY or NAME/KEY=WEIGHT"
        raise typer.BadParameter(message)
    name, _, key = place.partition("/")
    return duly.ResourceNeed(name, key, int(weight))


def origin(resource: duly.Resource) -> str:
    """Return who says what a resource is: an operator, or an application that nobody overruled."""
    if resource.declared_by is None:
        return f"set by {one_line(resource.set_by)}" if resource.set_by else "set by an operator"
    if not resource.declared_by:
        return "declared by an app"
    return f"declared by {one_line(resource.declared_by)}"


def _as_json(resource: duly.Resource) -> dict[str, Any]:
    # to the microsecond, for --expected-changed-at
    return as_object(
        resource, rate=resource.rate and str(resource.rate), changed_at=resource.changed_at.isoformat()
    )


def _table(resources: Iterable[duly.Resource]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    cells: list[str] = []
    for resource in resources:
        units = "-" if resource.capacity is None else str(resource.capacity)
        rate = str(resource.rate or "-")
        per_key = " a key" if resource.per_key else ""
        rows.append(
            (
                resource.name,
                units + per_key,
                rate,
                str(resource.used),
                str(resource.parked),
                origin(resource),
                one_line(resource.note),
            )
        )
        rows += [
            (f"  {one_line(each.key)}", units, rate, str(each.used), str(each.parked), "", "")
            for each in resource.keys
        ]
        cells += [_cells(resource.cells), *[""] * len(resource.keys)]
    if not rows:
        return iter(["no resources: `duly resources set NAME CAPACITY` declares one"])
    heads = ("RESOURCE", "CAPACITY", "RATE", "USED", "PARKED", "ORIGIN", "NOTE")
    return columns(*with_cells(heads, rows, cells, before="USED"))
