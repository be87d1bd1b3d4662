"""`duly pools`: how many workers of a kind may run, how many do, and what the autoscaler plans."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

import duly
from duly.keep import KEEP
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, one_line, say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.option_values import given, invalid, parse_duration, parse_moment
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The pool's name, such as mail.")]

_pools = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `pools` with its verbs."""
    app.add_typer(
        _pools,
        name="pools",
        rich_help_panel="For operators",
        help="Say how many workers of a pool may run; show how many do, and what the autoscaler plans.",
    )


@_pools.command("list")
def list_pools(watch: Watch = None, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the pools: how many workers each has and is to have, within which limits, and why."""
    with connected(address) as client:
        repeatedly(
            lambda: show_all(client.pools(), _table, as_object, as_json=as_json), watch, as_json=as_json
        )


@_pools.command("get", hidden=True)
@_pools.command("show")
def show_pool(name: _Name, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a pool: its limits, its workers, and the last plan with all reasons."""
    with connected(address) as client:
        unknown = f"no pool {name!r} is declared: `duly pools list` has their names"
        found = one_of(client.pools([name]), lambda each: each.name == name, unknown)
    if as_json:
        show_all([found], _table, as_object, as_json=True)
    else:
        say("\n".join(pool_lines(found)))


@_pools.command("set")
def set_pool(
    name: _Name,
    lambdas: Annotated[
        list[str] | None,
        typer.Option(
            "--lambda",
            help="What its workers run: a name, or a prefix such as 'mail.*'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="The most workers.", show_default=False)
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option("--min", min=0, help="Workers that run in any case (new: 0).", show_default=False),
    ] = None,
    driver: Annotated[
        str | None,
        typer.Option(
            help="The driver that starts and ends its workers: a name in autoscaler.drivers.",
            show_default=False,
        ),
    ] = None,
    driver_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--driver-setting",
            metavar="NAME=VALUE",
            help="What the driver is told of this pool, such as deployment=mail; may be repeated. Replaces those of before.",
            show_default=False,
        ),
    ] = None,
    no_driver_settings: Annotated[
        bool, typer.Option("--no-driver-settings", help="Remove them all.", show_default=False)
    ] = False,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Callbacks at a time that the plan assumes of a worker; while one runs, its own number counts (new: 1).",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", help="What its workers have, such as gpu; may be repeated.", show_default=False
        ),
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Its workers have none.", show_default=False)
    ] = False,
    target_age: Annotated[
        str | None,
        typer.Option(
            help="How long a due task may wait for a worker, such as 10s (new: 30s).", show_default=False
        ),
    ] = None,
    idle_time: Annotated[
        str | None,
        typer.Option(
            help="How long fewer workers must be enough before some are ended (new: 1m).", show_default=False
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Worker time in a day of UTC, such as 48h (new: no limit).", show_default=False),
    ] = None,
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Remove the budget.", show_default=False)
    ] = False,
    note: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    no_note: Annotated[bool, typer.Option("--no-note", help="Remove the note.", show_default=False)] = False,
    expected_changed_at: Annotated[
        str | None,
        typer.Option(
            help="Only if it was changed last at this time: `changed_at` of `duly pools list --json`.",
            show_default=False,
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Declare a pool, or change an existing one: only the options that you give. A new pool needs --lambda, --max and --driver."""
    expected = parse_moment(expected_changed_at, "--expected-changed-at", needs_zone=True)
    changes = {
        "lambdas": given("--lambda", lambdas or None),
        "maximum": given("--max", maximum),
        "minimum": given("--min", minimum),
        "driver": given("--driver", driver),
        "driver_settings": given("--driver-settings", _settings(driver_settings), removed=no_driver_settings),
        "slots": given("--slots", slots),
        "labels": given("--labels", labels or None, removed=no_labels),
        "target_age": given("--target-age", parse_duration(target_age, "--target-age")),
        "idle_time": given("--idle-time", parse_duration(idle_time, "--idle-time")),
        "budget": given("--budget", parse_duration(budget, "--budget"), removed=no_budget),
        "note": given("--note", note, removed=no_note),
    }
    if all(each is KEEP for each in changes.values()):
        message = "say what to change: --lambda, --max, --min, --driver, --slots, --target-age ..."
        raise typer.BadParameter(message)
    asked: Any = changes  # each is what its parameter takes
    with connected(address) as client:
        done = client.put_pool(name, **asked, expected_changed_at=expected)
    new = (
        "declared" if done.created else ", ".join(done.changed) + " changed" if done.changed else "as it was"
    )
    say(f"{name}: {new}; {_limits(done.pool)}, driver {one_line(done.pool.driver)}")
    for each in done.notes:
        say(f"note: {one_line(each)}")


def _settings(words: Sequence[str] | None) -> dict[str, str] | None:
    if not words:
        return None
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise invalid("--driver-setting", f"{word!r}: write NAME=VALUE, such as deployment=mail")
        settings[name] = value
    return settings


@_pools.command("remove", hidden=True)
@_pools.command("delete")
def delete_pool(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Delete a pool: the autoscaler starts and ends no worker of it any more. Its workers go on."""
    with connected(address) as client:
        alive = sum(each.alive for each in client.pools([name]))
        client.delete_pool(name)
    left = f"{counted(alive, 'worker')} {'goes' if alive == 1 else 'go'} on until somebody ends {'it' if alive == 1 else 'them'}"
    say(f"{name}: removed{f'; {left}' if alive else ''}")


def _limits(pool: "duly.WorkerPool") -> str:
    return f"{pool.minimum} to {pool.maximum} workers for {', '.join(map(one_line, pool.lambdas))}"


def _table(found: "Iterable[duly.WorkerPool]") -> Iterator[str]:
    rows = []
    for pool in found:
        plan = pool.plan
        rows.append(
            (
                pool.name,
                "-" if plan is None else str(plan.desired),
                str(pool.alive),
                str(pool.starting),
                str(pool.draining),
                f"{pool.minimum}..{pool.maximum}",
                f"{pool.busy_slots}/{pool.slots}",
                one_line(pool.driver),
                one_line(_why(pool)),
            )
        )
    if not rows:
        return iter(["no pools: `duly pools set NAME --lambda ... --max ... --driver ...` declares one"])
    heads = ("POOL", "DESIRED", "ALIVE", "STARTING", "DRAINING", "LIMITS", "BUSY", "DRIVER", "WHY")
    return columns(heads, rows, left_out_first=("DRIVER", "LIMITS"))


def _why(pool: "duly.WorkerPool") -> str:
    if pool.plan is None:
        return "no autoscaler planned for it yet"
    if pool.plan.failure:
        return f"driver failed: {pool.plan.failure}"
    return pool.plan.reasons[0] if pool.plan.reasons else ""


def pool_lines(pool: "duly.WorkerPool") -> Iterator[str]:
    """A pool, with its plan."""
    values = {
        "pool": pool.name,
        "lambdas": ", ".join(pool.lambdas),
        "labels": ", ".join(pool.labels),
        "limits": f"{pool.minimum} to {pool.maximum} workers",
        "target age": age_text(pool.target_age),
        "idle time": age_text(pool.idle_time),
        "budget": "" if pool.budget is None else f"{_hours(pool.budget)} worker hours a day",
        "driver": " ".join(
            [pool.driver, *(f"{name}={value}" for name, value in pool.driver_settings.items())]
        ),
        "note": pool.note,
        "changed": moment_text(pool.changed_at),
    }
    for name, value in values.items():
        if value != "":
            yield f"{name:>12}  {one_line(value)}"
    yield ""
    yield from plan_lines(pool)


def plan_lines(pool: "duly.WorkerPool") -> Iterator[str]:
    """How many workers a pool has and is to have, and why."""
    now = datetime.now().astimezone()
    plan = pool.plan
    workers = f"{pool.alive} alive, {pool.starting} starting, {pool.draining} draining; {pool.busy_slots} of {pool.slots} slots busy"
    if plan is None:
        yield f"{one_line(pool.name)}: no autoscaler planned for it yet; is `duly autoscaler` running?"
        yield f"  workers: {workers}"
        return
    since = age_text(max(timedelta(), now - plan.desired_since))
    yield f"{one_line(pool.name)}: {counted(plan.desired, 'worker')} desired, for {since}"
    if plan.failure:
        failed = plan.failed_since
        ago = f", since {moment_text(failed)}" if failed else ""
        yield f"  driver failed: {one_line(plan.failure)}{ago}"
    for reason in plan.reasons:
        yield f"  - {one_line(reason)}"
    if plan.announced is not None:
        start = plan.announced.start_at.astimezone()
        yield f"  at {start:%H:%M:%S} {counted(plan.announced.workers, 'worker')}: {one_line(plan.announced.reason)}"
    yield f"  workers: {workers}"
    assumed = " (assumed: none came yet)" if plan.spin_up_assumed else ""
    yield f"  a worker starts within {plan.spin_up.total_seconds():.1f} s{assumed}; {_hours(plan.used)} worker hours used today"
    age = max(timedelta(), now - plan.planned_at)
    if age > _STALE:
        yield f"  this plan is {age_text(age)} old: is `duly autoscaler` running?"


_STALE = timedelta(seconds=30)


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.2f}"
