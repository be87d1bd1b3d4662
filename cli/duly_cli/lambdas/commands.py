"""`duly lambdas`: what is registered, and what people decide about it."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

import duly
from duly_cli.output.cell_column import with_cells
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell
from duly_core.config.durations import format_duration

if TYPE_CHECKING:  # it loads gRPC, which `duly up` does not need
    from duly.lambdas.info import FairKey, LambdaDetail, LambdaInfo

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly lambdas` lists it.")]
_Expected = Annotated[
    int | None,
    typer.Option(
        "--expected-revision", help="Only if this is its revision (`duly lambdas NAME`).", show_default=False
    ),
]


class _Lambdas(Noun):
    """`duly lambdas NAME` is short for `duly lambdas show NAME`."""

    named = "show"


LAMBDAS = Verbs(
    add_completion=False,
    cls=_Lambdas,
    help="List the registered lambdas, show one, and change what people decide about it.",
)


def add_commands(app: typer.Typer) -> None:
    """Add `lambdas` with its verbs."""
    app.add_typer(LAMBDAS, name="lambdas", rich_help_panel="Tasks")


@LAMBDAS.command("list")
def list_lambdas(cell: InCell = "", address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the registered lambdas and their policies; `duly lambdas NAME` shows one."""
    with connected(address) as client:
        found = client.lambdas(cell=cell)
    if cell and not (found or as_json):
        say(f"no lambda lives in cell {cell}")
        return
    show_all(found, lambda_table, as_object, as_json=as_json)


@LAMBDAS.command("get", hidden=True)
@LAMBDAS.command()
def show(name: _Name, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a lambda: owner, version, policy, and the versions that workers declared."""
    with connected(address) as client:
        detail = client.get_lambda(name)
    if as_json:
        say(json.dumps(as_object(detail)))
    else:
        say("\n".join(lambda_lines(detail)))


@LAMBDAS.command()
def transfer(
    name: _Name,
    owner: Annotated[str, typer.Option("--to", metavar="OWNER", help="Who owns it from now on.")],
    expected_revision: _Expected = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Give a lambda to another owner; workers that declare any other are refused when they start."""
    with connected(address) as client:
        client.transfer_lambda(name, owner, expected_revision=expected_revision)
    say(f"{name}: owned by {owner!r}")


@LAMBDAS.command()
def rollback(
    name: _Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="As `duly lambdas NAME` lists it.")],
    expected_revision: _Expected = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Put a version in force that workers declared; the versions that were in force since then no longer take effect."""
    with connected(address) as client:
        client.roll_back_lambda(name, version, expected_revision=expected_revision)
    say(f"{name}: version {version!r} is in force")


@LAMBDAS.command()
def ramp(
    name: _Name,
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="Of the workers with pinned='only'.")
    ] = None,
    percent: Annotated[
        str | None,
        typer.Argument(metavar="PERCENT", help="How much of the new tasks it gets: 0 to 100, such as 10%."),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Send no more tasks to the version.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Though no live worker serves the version: its tasks wait.")
    ] = False,
    expected_revision: _Expected = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Send a part of the new tasks to a version; more percent sends more, and those that went there still do.

    Without VERSION and PERCENT: show the ramp.
    """
    if (off and version is not None) or (version is None) != (percent is None):
        raise typer.BadParameter(f"say VERSION and PERCENT, or --off: duly lambdas ramp {name} 2.0 10%")
    with connected(address) as client:
        if version is None or percent is None:
            in_force = client.get_lambda(name).in_force
            found = in_force and in_force.ramp
            if not off:
                say(f"{name}: {found or 'no ramp'}")
                return
            client.end_ramp(name, expected_revision=expected_revision)
            stay = "; the tasks that were sent to a version stay there" if found else ", and there was none"
            say(f"{name}: no ramp{stay}")
            return
        part = _percent(percent)
        client.ramp_lambda(name, version, part, force=force, expected_revision=expected_revision)
    say(f"{name}: {part:g}% of the new tasks without keys go to version {version!r}")


def _percent(given: str) -> float:
    """Return the number of `10%`, `10` or `2.5%`."""
    try:
        return float(given.removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"{given!r}: say 10% or 2.5%", param_hint="PERCENT") from None


@LAMBDAS.command()
def delete(
    name: _Name,
    cancel_tasks: Annotated[
        bool,
        typer.Option(
            "--cancel-tasks", help="Cancel the tasks that have not ended; ask those that run to stop."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it has.")] = False,
    expected_revision: _Expected = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Delete a lambda with its time tables; tasks that ended stay. Only a worker with a newer version registers it again."""
    with connected(address) as client:
        deletion = client.delete_lambda(
            name, cancel_tasks=cancel_tasks, dry_run=dry_run, expected_revision=expected_revision
        )
    had = (
        f"pending: {deletion.pending:,}, running: {deletion.running:,}, time tables: {deletion.time_tables:,}"
    )
    if dry_run:
        say(f"{name}: {had}; nothing was deleted")
    else:
        cancelled = f"; cancelled or asked to stop: {deletion.cancelled:,}" if cancel_tasks else ""
        say(f"{name}: deleted ({had}{cancelled})")


@LAMBDAS.command()
def restore(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Let workers register a deleted lambda again, whatever version they have."""
    with connected(address) as client:
        client.restore_lambda(name)
    say(f"{name}: a worker that declares it registers it when it starts")


@LAMBDAS.command()
def fair(
    name: _Name,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="KEY=N",
            help="So many tasks of the key start in its turn, 1 to 1,000. `=N`: of tasks without a key. Repeatable.",
            show_default=False,
        ),
    ] = None,
    no_weights: Annotated[
        list[str] | None,
        typer.Option(
            "--no-weight",
            metavar="KEY",
            help="The key has the weight 1 again. Repeatable.",
            show_default=False,
        ),
    ] = None,
    max_keys: Annotated[
        int,
        typer.Option("--max-keys", min=1, max=10_000, help="List so many keys with waiting tasks at most."),
    ] = 1_000,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the fair keys of a lambda, those with the most waiting tasks first; or set the weights of some."""
    asked: dict[str, int | None] = dict.fromkeys(no_weights or (), None)
    for given in weights or ():
        key, weight = _weight(given)
        asked[key] = weight
    with connected(address) as client:
        if asked:
            client.set_fair_weights(name, asked)
        found = client.fair_keys(name, max_keys=max_keys)
    if asked and not as_json:
        for key, set_to in asked.items():
            say(f"{name}: key {one_line(key) or '(none)'} has the weight {set_to or 1}")
        return
    found.sort(key=lambda each: (-each.waiting, each.fair_key))
    show_all(found, fair_key_table, as_object, as_json=as_json)


def _weight(given: str) -> tuple[str, int]:
    """Return key and weight of an option; the key may have `=` in it."""
    key, separator, number = given.rpartition("=")
    if not separator or not number.isascii() or not number.isdecimal():
        raise typer.BadParameter(f"{given!r}: say KEY=N, such as ada=3", param_hint="--weight")
    return key, int(number)


def fair_key_table(keys: "Iterable[FairKey]") -> Iterator[str]:
    """Fair keys, a line each."""
    rows = [
        (
            each.fair_key or "(none)",
            str(each.weight),
            f"{each.waiting:,}{'+' if each.has_more else ''}",
            moment_text(each.first_due_at) if each.first_due_at else "",
        )
        for each in keys
    ]
    if not rows:
        return iter(["no task waits with a fair key, and no key has a weight"])
    return columns(("KEY", "WEIGHT", "WAITING", "FIRST DUE"), rows)


def _backoff(backoff: duly.Backoff) -> str:
    initial, longest = (format_duration(each or timedelta()) for each in (backoff.initial, backoff.maximum))
    return f"{initial} x {backoff.factor or 1:g} up to {longest}"


def _batch(batch: duly.Batch | None) -> str:
    if batch is None:
        return ""
    return f"up to {batch.size:,} tasks a call, the first waits {format_duration(batch.wait)}"


def lambda_table(lambdas: "Iterable[LambdaInfo]") -> Iterator[str]:
    """Lambdas, a line each."""
    listed = list(lambdas)
    rows = [
        (
            each.name,
            each.owner,
            f"{each.version}, {each.ramp}" if each.ramp else each.version,
            str(each.max_attempts),
            f"{each.max_crashes} in {format_duration(each.crash_window)}",
            format_duration(each.max_runtime),
            _backoff(each.backoff),
            f"{each.payload_limit:,}",
        )
        for each in listed
    ]
    if not rows:
        return iter(["no lambdas are registered: start a host with `duly worker MODULE:APP`"])
    heads = ("LAMBDA", "OWNER", "VERSION", "ATTEMPTS", "CRASHES", "MAX RUNTIME", "BACKOFF", "PAYLOAD LIMIT")
    return columns(*with_cells(heads, rows, [each.cell for each in listed], before="OWNER"))


def lambda_lines(detail: "LambdaDetail") -> Iterator[str]:
    """All that is known about a lambda, a line for each thing that is worth one."""
    values: dict[str, Any] = {"lambda": detail.name}
    if (found := detail.in_force) is not None:
        values |= {
            "cell": found.cell,
            "owner": found.owner,
            "version": found.version,
            "revision": found.revision,
            "since": moment_text(found.updated_at),
            "registered": moment_text(found.registered_at),
            "registered by": found.registered_by,
            "attempts": found.max_attempts,
            "crashes": f"{found.max_crashes} in {format_duration(found.crash_window)}",
            "max runtime": format_duration(found.max_runtime),
            "backoff": _backoff(found.backoff),
            "payload limit": f"{found.payload_limit:,}",
            "requires": ", ".join(found.requires),
            "batch": _batch(found.batch),
            "resources": ", ".join(map(str, found.resources)),
            "ramp": str(found.ramp or ""),
        }
    if (gone := detail.deleted) is not None:
        values |= {
            "deleted": moment_text(gone.deleted_at),
            "deleted by": gone.deleted_by,
            "owner": gone.owner,
            "version": gone.version,
        }
    for name, value in values.items():
        if value != "":
            yield f"{name:>14}  {one_line(str(value))}"
    for place, queue in enumerate(detail.pinned):
        yield f"{'' if place else 'pinned':>14}  {queue}"
    if not detail.versions:
        return
    yield ""
    in_force = found.version if found else None
    rows = [
        (
            each.version or "(none)",
            "in force"
            if each.version == in_force
            else "was in force"
            if each.was_in_force
            else "never in force",
            moment_text(each.first_declared_at),
            moment_text(each.declared_at),
            each.declared_by,
        )
        for each in detail.versions
    ]
    yield from columns(("VERSION", "STATE", "FIRST DECLARED", "LAST DECLARED", "BY"), rows)
