"""`duly gates`: what operators pause, drop or delay of the tasks that nobody runs yet."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

import duly
from duly.keep import KEEP, Keep
from duly_cli.access.os_user import user_name
from duly_cli.gates import breakers
from duly_cli.output.cell_column import with_cells
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, one_line, say, say_changed
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.output.watching import age_text
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.option_values import (
    given,
    invalid,
    parse_duration,
    parse_moment_or_distance,
    parse_priority,
)
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell
from duly_wire.gate_names import usual_name

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly gates list` lists it.")]

_gates = Verbs(add_completion=False, cls=Noun)
_gates.command("breaker", hidden=True)(breakers.change_breaker)
_gates.command("breakers", hidden=True)(breakers.list_breakers)


def add_commands(app: typer.Typer) -> None:
    """Add `gates` with its verbs."""
    app.add_typer(
        _gates,
        name="gates",
        rich_help_panel="For operators",
        help="Pause, drop or delay tasks that nobody runs yet.",
    )


@_gates.command("list")
def list_gates(
    lambda_name: Annotated[
        str,
        typer.Option(
            "--lambda",
            help="Only gates that hit this lambda, version (NAME@VERSION) or prefix, such as one on '*'.",
            show_default=False,
        ),
    ] = "",
    cell: InCell = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the gates in force, with the tasks that are parked on them."""
    with connected(address) as client:
        found = client.gates(lambda_name=lambda_name, cell=cell)
        if lambda_name:
            warn_of_unknown(client, lambda_name, "it has no tasks")
    if (lambda_name or cell) and not (found or as_json):
        hit = f" hits {lambda_name}" if lambda_name else ""
        say(f"no gate{hit}{f' in cell {cell}' if cell else ''}")
        return
    show_all(found, _table, lambda gate: as_object(gate, ["changed"]), as_json=as_json)


@_gates.command("get", hidden=True)
@_gates.command("show")
def show_gate(name: _Name, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a gate: what it does to which tasks, since when and until when, and how many are parked on it."""
    with connected(address) as client:
        unknown = f"there is no gate {name!r}: `duly gates list` has their names"
        gate = one_of(client.gates(), lambda each: each.name == name, unknown)
    show_all([gate], _facts, lambda gate: as_object(gate, ["changed"]), as_json=as_json)


@_gates.command("set")
def set_gate(
    gate_name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The gate's name. The name of an existing gate changes that gate.",
            show_default="made from kind and scope",
        ),
    ] = "",
    lambda_name: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            help="A lambda, a version (NAME@VERSION), a prefix such as 'mail.*', or '*'.",
            show_default=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(help="Instead of --lambda: all lambdas of a namespace.", show_default=False),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Only tasks of this collection.", show_default="all")
    ] = None,
    no_collection: Annotated[
        bool, typer.Option("--no-collection", help="Tasks of all collections.", show_default=False)
    ] = False,
    priority: Annotated[
        str | None, typer.Option(help="Only urgent, high, normal or low tasks.", show_default="all")
    ] = None,
    no_priority: Annotated[
        bool, typer.Option("--no-priority", help="Tasks of all priorities.", show_default=False)
    ] = False,
    session: Annotated[
        str | None, typer.Option(help="Only tasks of this session.", show_default="all")
    ] = None,
    no_session: Annotated[
        bool, typer.Option("--no-session", help="Tasks of all sessions, and of none.", show_default=False)
    ] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Pause: the tasks wait.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop: due tasks end as dropped.")] = False,
    delay: Annotated[
        str | None,
        typer.Option(help="Delay: due tasks become due this much later, such as 10m.", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="End of the gate: a duration (2h) or an instant (2026-12-24T18:00:00+01:00). Without it, the gate stays until it is removed.",
            show_default=False,
        ),
    ] = None,
    no_until: Annotated[
        bool, typer.Option("--no-until", help="In force until it is removed.", show_default=False)
    ] = False,
    reason: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    no_reason: Annotated[
        bool, typer.Option("--no-reason", help="Remove the reason.", show_default=False)
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            help="The same as NAME.",
            show_default=False,
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it would hit.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set a gate, or change an existing one: only the options that you give. A new gate needs --lambda or --namespace, and --pause, --drop or --delay."""
    if gate_name and name:
        raise invalid("--name", "is the same as NAME: say one of them")
    name = name or gate_name
    pattern = _pattern(lambda_name, namespace)
    scope: Any = {
        "collection": given("--collection", collection, removed=no_collection),
        "priority": given(
            "--priority", None if priority is None else parse_priority(priority), removed=no_priority
        ),
        "session": given("--session", session, removed=no_session),
    }
    if pattern is KEEP and not name:
        raise invalid(
            "--lambda", "say --lambda or --namespace ('*' is every lambda), or the NAME of a gate to change"
        )
    with connected(address) as client:
        if dry_run:
            warn_of_unknown(client, pattern)
            hits = client.gate_hits(pattern, name=name, **scope)
            show_all([hits], _hits, _hits_as_json, as_json=as_json)
            return
        kind, moved_by = _kind(pause, drop, delay, needed=not name)
        end = read_end(until, no_until=no_until)
        gate = client.put_gate(
            name or _name(kind, pattern, collection or "", priority or "", session or ""),
            kind,
            pattern,
            **scope,
            delay=moved_by,
            reason=given("--reason", reason, removed=no_reason),
            **end,
            owner=user_name(),
        )
        show_all([gate], _table, as_object, as_json=as_json)
        if not as_json:
            say_changed(gate.changed)
        warn_of_unknown(client, pattern)


def read_end(until: str | None, *, no_until: bool) -> dict[str, Any]:
    """Return until when a gate is in force, as parameters of `put_gate`; without any it stays as it is."""
    if given("--until", until, removed=no_until) is KEEP:
        return {}
    if until is None:
        return {"expires_at": None}
    try:
        return {"duration": parse_duration(until, "--until")}
    except typer.BadParameter:
        return {"expires_at": parse_moment_or_distance(until, "--until", 1, needs_zone=True)}


@_gates.command("remove", hidden=True)
@_gates.command("delete")
def delete_gate(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Delete a gate; the tasks that it held become due at once."""
    with connected(address) as client:
        client.delete_gate(name)
    say(f"{name}: removed")


def warn_of_unknown(
    client: "duly.Client", pattern: str | Keep, meaning: str = "the gate holds nothing"
) -> None:
    """Say so if no lambda has this name, and what that means: in an incident a misspelt pause helps nobody."""
    if isinstance(pattern, Keep) or pattern.endswith("*"):
        return
    try:
        client.get_lambda(pattern.partition("@")[0])
    except duly.UnknownLambdaError:
        say(f"no lambda is called {pattern!r}, so {meaning}: `duly lambdas` lists them", err=True)
    except duly.DulyError:
        return  # the gate is set, and whether the lambda is known is not known


def _pattern(lambda_name: str | None, namespace: str | None) -> str | Keep:
    if lambda_name is not None and namespace is not None:
        raise invalid("--lambda", "say either --lambda or --namespace; '*' is every lambda")
    if namespace is not None:
        return f"{namespace}/*"
    return KEEP if lambda_name is None else lambda_name


def _kind(
    pause: bool, drop: bool, delay: str | None, *, needed: bool
) -> tuple[duly.GateKind | Keep, timedelta | Keep | None]:
    said = pause + drop + (delay is not None)
    if said > 1 or (needed and not said):
        raise invalid("--pause", "say one of --pause, --drop and --delay")
    if not said:
        return KEEP, KEEP
    if delay is not None:
        return duly.GateKind.DELAY, parse_duration(delay, "--delay")
    return (duly.GateKind.PAUSE if pause else duly.GateKind.DROP), None


def _name(
    kind: duly.GateKind | Keep, pattern: str | Keep, collection: str, priority: str, session: str
) -> str:
    return usual_name(kind.name.lower(), str(pattern), collection, priority, session)


def _scope(gate: "duly.Gate") -> str:
    parts = [
        gate.lambda_name,
        gate.priority.name.lower() if gate.priority else "",
        f"collection {gate.collection}" if gate.collection else "",
        f"session {gate.session}" if gate.session else "",
    ]
    return ", ".join(filter(None, parts))


def _table(gates: "Iterable[duly.Gate]") -> Iterator[str]:
    from duly_core.config.settings import format_duration

    listed = list(gates)
    rows = [
        (
            gate.name,
            gate.kind.name.lower() + (f" {format_duration(gate.delay)}" if gate.delay else ""),
            _scope(gate),
            str(gate.parked),
            age_text(datetime.now(UTC) - gate.created_at),
            moment_text(gate.expires_at) if gate.expires_at else "-",
            gate.owner,
            gate.reason,
        )
        for gate in listed
    ]
    if not rows:
        return iter(["no gates: `duly gates set --lambda NAME --pause` sets one"])
    heads = ("GATE", "KIND", "TASKS", "PARKED", "AGE", "UNTIL", "OWNER", "REASON")
    cells = [", ".join(gate.cells) for gate in listed]
    return columns(
        *with_cells(heads, rows, cells, before="PARKED"),
        left_out_first=("OWNER", "PARKED", "AGE"),
    )


def _facts(gates: "Iterable[duly.Gate]") -> Iterator[str]:
    """All that is known of gates, a line for each thing that is worth one."""
    from duly_core.config.settings import format_duration

    for gate in gates:
        facts = {
            "gate": gate.name,
            "kind": gate.kind.name.lower(),
            "delay": format_duration(gate.delay) if gate.delay else "",
            "lambda": gate.lambda_name,
            "collection": gate.collection or "",
            "priority": gate.priority.name.lower() if gate.priority else "",
            "session": gate.session or "",
            "cell": ", ".join(gate.cells),
            "parked": str(gate.parked),
            "set": moment_text(gate.created_at),
            "set by": gate.owner,
            "until": moment_text(gate.expires_at) if gate.expires_at else "it is removed",
            "reason": gate.reason,
        }
        yield from (f"{name:>10}  {one_line(value)}" for name, value in facts.items() if value)


def _hits(found: "Iterable[duly.GateHits]") -> Iterator[str]:
    for hits in found:
        more = " at least" if hits.truncated else ""
        yield f"it would hit{more} {counted(hits.total, 'task')}"
        yield from (f"  {status.name.lower()}: {count}" for status, count in sorted(hits.counts.items()))


def _hits_as_json(hits: "duly.GateHits") -> dict[str, object]:
    counts = {status.name.lower(): count for status, count in sorted(hits.counts.items())}
    return {"hits": counts, "total": hits.total, "truncated": hits.truncated}
