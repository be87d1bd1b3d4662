"""`duly capacity`: how many of each part a load needs, and what it costs."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duly_cli.output.json_text import as_object, json_text
from duly_cli.output.safe_text import counted, one_line, say
from duly_cli.output.table import columns
from duly_cli.startup.option_values import invalid, parse_duration
from duly_cli.startup.verbs import Verbs

if TYPE_CHECKING:
    from duly_cli.capacity.costs import CostLine, Prices
    from duly_cli.capacity.model import Model
    from duly_cli.capacity.rules import Limits, Load, Plan, Wall

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
    "TB": 10**12,
    "TiB": 2**40,
}
_BYTES = re.compile(rf"(\d{{1,15}})\s*({'|'.join(_UNITS)})?", re.ASCII)
_MOST_PAYLOAD = 2**20
_EXIT_USAGE = 2
_SHARE: dict[str, Any] = {"min": 0.0, "max": 1.0}
_MIB = 2**20
_GB = 1e9


def add_command(app: Verbs) -> None:
    """Add `capacity`."""
    app.command("capacity", rich_help_panel="For operators")(capacity)


def capacity(
    tasks_per_second: Annotated[float, typer.Option(min=0.0, help="Tasks a second at the peak.")],
    average: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Tasks a second over days, for disk and costs by use.", show_default="the peak"
        ),
    ] = None,
    run_time: Annotated[str, typer.Option(help="How long a callback runs, such as 200ms.")] = "200ms",
    callback_cpu: Annotated[str, typer.Option(help="CPU time of a callback, of that.")] = "0s",
    payload: Annotated[str, typer.Option(help="Of a task, such as 1KiB.")] = "1KiB",
    retention: Annotated[str, typer.Option(help="How long ended tasks are kept (store.retention).")] = "7d",
    tasks_per_call: Annotated[
        float, typer.Option(min=1.0, max=1_000.0, help="Tasks that a client schedules with one call.")
    ] = 1.0,
    ahead: Annotated[
        float, typer.Option(**_SHARE, help="Share of tasks that are scheduled for later.")
    ] = 0.0,
    in_sessions: Annotated[float, typer.Option(**_SHARE, help="Share of tasks in sessions.")] = 0.0,
    with_resources: Annotated[
        float, typer.Option(**_SHARE, help="Share of tasks that take units of a resource.")
    ] = 0.0,
    sqs: Annotated[bool, typer.Option("--sqs", help="With queue.backend = sqs.")] = False,
    postgres_cores: Annotated[
        int, typer.Option(min=1, max=1_024, help="The largest Postgres that you run; beyond it: more cells.")
    ] = 16,
    wal: Annotated[
        str, typer.Option(help="What the volume of one Postgres writes of WAL in a second, such as 500MiB.")
    ] = "125MiB",
    commits: Annotated[
        int, typer.Option(min=1, max=10**9, help="Writes a second that it makes durable.")
    ] = 16_000,
    disk: Annotated[
        str, typer.Option(help="The largest volume that one Postgres has, such as 16TiB.")
    ] = "64TiB",
    host_cores: Annotated[int, typer.Option(min=1, max=1_024, help="Cores of a worker host.")] = 4,
    slots: Annotated[int, typer.Option(min=1, max=100_000, help="Tasks that a host runs at a time.")] = 64,
    busy: Annotated[
        float,
        typer.Option(min=0.05, max=1.0, help="Share of a core, a volume or a disk that is used at the peak."),
    ] = 0.6,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="A file of your prices; docs/capacity.md has its form.",
            show_default="list prices of AWS us-east-1",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write an object.")] = False,
) -> None:
    """Estimate what a load needs: Postgres, cells, servers, hosts, disk, and the cost a month. It reads and calls nothing.

    Exit code: 0 estimated, 2 wrong use, or a load that nothing carries.
    """
    from duly_cli.capacity.costs import costs, list_prices
    from duly_cli.capacity.model import Mix, fitted
    from duly_cli.capacity.rules import CapacityError, Limits, Load, plan

    load = Load(
        tasks_per_second,
        tasks_per_second if average is None else average,
        parse_duration(run_time, "--run-time"),
        parse_duration(callback_cpu, "--callback-cpu"),
        parse_duration(retention, "--retention"),
        Mix(tasks_per_call, _payload(payload), ahead, in_sessions, with_resources, float(sqs)),
    )
    limits = Limits(
        postgres_cores=postgres_cores,
        host_cores=host_cores,
        slots=slots,
        busy=busy,
        wal_bytes_per_s=parse_bytes(wal, "--wal"),
        commits_per_s=commits,
        disk_bytes=parse_bytes(disk, "--disk"),
    )
    model = fitted()
    at = _own_prices(prices) if prices else list_prices()
    try:
        found = plan(load, limits, model)
    except CapacityError as error:
        say(f"duly capacity: {error}", err=True)
        raise typer.Exit(_EXIT_USAGE) from error
    lines = costs(load, limits, found, at)
    if as_json:
        cost = {"currency": at.currency, "region": at.region, "lines": [as_object(line) for line in lines]}
        say(json_text({**as_object(found), "cost": cost, "model": dict(model.measured)}))
        return
    say("\n".join(_text(load, limits, found, lines, at, model)))


def parse_bytes(text: str, option: str) -> int:
    """Return a number of bytes of the command line: 100, 100B, 4KiB, 1MB, 2GiB, 16TiB."""
    found = _BYTES.fullmatch(text.strip())
    if not found:
        raise invalid(option, f"{text!r} is no number of bytes: write 100B, 4KiB, 1MiB, 2GiB or 1TiB")
    return int(found[1]) * _UNITS[found[2] or "B"]


def _payload(text: str) -> int:
    number = parse_bytes(text, "--payload")
    if number > _MOST_PAYLOAD:
        raise invalid(
            "--payload",
            f"{text} is more than 1MiB, the largest payload: larger ones are files beside the store",
        )
    return number


def _own_prices(path: Path) -> "Prices":
    """Return the prices of a user's file."""
    from duly_cli.capacity.costs import prices_of
    from duly_cli.capacity.rules import CapacityError

    try:
        return prices_of(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise invalid("--prices", f"{one_line(str(path))} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, and what is wrong with a price
        what = error if isinstance(error, CapacityError) else f"it is no JSON: {error}"
        raise invalid("--prices", one_line(f"{path}: {what}")) from error


def _text(
    load: "Load",
    limits: "Limits",
    found: "Plan",
    lines: "Sequence[CostLine]",
    prices: "Prices",
    model: "Model",
) -> Iterator[str]:
    yield from columns(("part", "needed", "why"), _parts(load, limits, found))
    yield ""
    yield from columns(("of one Postgres", "used", "there is", "share"), map(_wall, found.walls))
    yield ""
    yield from columns(
        ("a month", prices.currency, "quantity"),
        [
            *((line.name, f"{line.a_month:,.0f}", line.quantity) for line in lines),
            ("all", f"{sum(line.a_month for line in lines):,.0f}", one_line(prices.region)),
        ],
    )
    yield ""
    yield "A range ends where no two calls share a statement: Postgres is sized for that."
    measured = model.measured
    worst = measured["largest_error_of_held_out"]["from_load_alone"]
    yield f"An estimate, by a model of {measured['at'][:10]}; docs/capacity.md has its limits."
    yield f"Measured: Postgres {measured['postgres']}, {measured['cores']} cores ({one_line(measured['processor'])})."
    yield f"Its largest error on loads that it had not seen: {worst:.0%} of their CPU."
    if found.is_beyond_measured:
        yield "This Postgres has more cores: that it scales with them is an assumption."


def _parts(load: "Load", limits: "Limits", found: "Plan") -> Iterator[tuple[str, str, str]]:
    rate = load.tasks_per_second
    yield "cells", f"{found.cells:,}", f"each a Postgres of at most {counted(limits.postgres_cores, 'core')}"
    uses = f"each uses {_few(found.postgres_cores)} to {_few(found.postgres_cores_at_most)}"
    at_least = f"{found.cpu_us['postgres']:,.0f} us a task or more"
    yield "Postgres", counted(found.postgres_vcpus, "core"), f"{uses}; {at_least}"
    yield "connections", f"{found.connections:,}", "to each Postgres: its max_connections"
    yield "disk", _size(found.disk_bytes), f"{found.kept_tasks:,.0f} ended tasks, without a standby"
    yield "Frontends", f"{found.frontends:,}", f"{found.cpu_us['frontend']:,.0f} us a task"
    yield "HSCs", f"{found.hscs:,}", f"{found.cpu_us['hsc']:,.0f} us a task"
    yield "Store Consumers", f"{found.store_consumers:,}", f"{found.cpu_us['store consumer']:,.0f} us a task"
    a_host = (
        counted(limits.host_cores, "core"),
        counted(limits.slots, "slot"),
        counted(found.executors_per_host, "Executor"),
    )
    yield "hosts", f"{found.hosts:,}", ", ".join(a_host)
    running = rate * load.run_time.total_seconds()
    yield "slots", f"{found.slots:,}", f"{_few(running)} tasks run at a time"


def _wall(wall: "Wall") -> tuple[str, str, str, str]:
    """Return a row; a wall of which calls that share no statement use more has both numbers."""
    scale, unit = {"WAL": (_MIB, "MiB/s"), "disk": (_GB, "GB")}.get(wall.name, (1.0, wall.unit))
    expected, used, there_is = (_few(number / scale) for number in (wall.expected, wall.used, wall.there_is))
    both = used if expected == used else f"{expected} to {used}"
    return wall.name, f"{both} {unit}", f"{there_is} {unit}", f"{wall.share:.0%}"


def _few(number: float) -> str:
    """Return a number with two digits that count, and a large one whole."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _size(number: float) -> str:
    return f"{number / _GB:,.0f} GB" if number >= 10 * _GB else f"{number / _GB:,.2f} GB"
