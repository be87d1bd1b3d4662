"""`duly gates`: what operators pause, drop or delay of the tasks that nobody runs yet."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

import duly
from duly_cli import breakers
from duly_cli.formatting import moment_text
from duly_cli.json_text import as_object, show_all
from duly_cli.option_values import invalid, parse_duration, parse_moment_or_distance, parse_priority
from duly_cli.table import columns
from duly_cli.tasks import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.text import say
from duly_cli.user import user_name
from duly_cli.watching import age_text

_Name = Annotated[str, typer.Argument(metavar="NAME", help="As `duly gates list` lists it.")]
_Reason = Annotated[str, typer.Option(help="For people: why.")]

_gates = typer.Typer(add_completion=False, no_args_is_help=True)
_gates.command("breaker")(breakers.set_breaker)
_gates.command("breakers")(breakers.list_breakers)


def add_commands(app: typer.Typer) -> None:
    """Add `gates` with its verbs."""
    app.add_typer(
        _gates,
        name="gates",
        rich_help_panel="For operators",
        help="Pause, drop or delay tasks that nobody runs yet.",
    )


@_gates.command("list")
def list_gates(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the gates in force, with the tasks that are parked on them."""
    with connected(address) as client:
        found = client.gates()
    show_all(found, _table, as_object, as_json=as_json)


@_gates.command("set")
def set_gate(
    lambda_name: Annotated[
        str,
        typer.Option(
            "--lambda", help="A lambda, a version (NAME@VERSION), a prefix such as 'mail.*', or '*'."
        ),
    ] = "",
    namespace: Annotated[str, typer.Option(help="Instead of --lambda: all lambdas of a namespace.")] = "",
    collection: Annotated[str, typer.Option(help="Only tasks of this collection.")] = "",
    priority: Annotated[
        str | None, typer.Option(help="Only urgent, high, normal or low tasks.", show_default="all")
    ] = None,
    session: Annotated[str, typer.Option(help="Only tasks of this session.")] = "",
    pause: Annotated[bool, typer.Option("--pause", help="They wait.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="They end as dropped when they are due.")] = False,
    delay: Annotated[
        str | None, typer.Option(help="They are due so much later: 10m.", show_default=False)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="In force so long, 2h, or until an instant, 2026-12-24T18:00:00+01:00. Without: until it is removed.",
            show_default=False,
        ),
    ] = None,
    reason: _Reason = "",
    name: Annotated[
        str, typer.Option(help="Of the gate.", show_default="made of what it does and where")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it would hit.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Set a gate, or replace the one of its name."""
    pattern = _pattern(lambda_name, namespace)
    wanted_priority = None if priority is None else parse_priority(priority)
    with connected(address) as client:
        if dry_run:
            _warn_of_unknown(client, pattern)
            hits = client.gate_hits(pattern, collection=collection, priority=wanted_priority, session=session)
            show_all([hits], _hits, _hits_as_json, as_json=as_json)
            return
        kind, moved_by = _kind(pause, drop, delay)
        duration, expires_at = None, None
        if until is not None:
            try:
                duration = parse_duration(until, "--until")
            except typer.BadParameter:
                expires_at = parse_moment_or_distance(until, "--until", 1, needs_zone=True)
        gate = client.put_gate(
            name or _name(kind, pattern, collection, priority, session),
            kind,
            pattern,
            collection=collection,
            priority=wanted_priority,
            session=session,
            delay=moved_by,
            reason=reason,
            expires_at=expires_at,
            duration=duration,
            owner=user_name(),
        )
        show_all([gate], _table, as_object, as_json=as_json)
        _warn_of_unknown(client, pattern)


@_gates.command("remove")
def remove_gate(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Remove a gate; what it held is due at once."""
    with connected(address) as client:
        client.delete_gate(name)
    say(f"{name}: removed")


def _warn_of_unknown(client: duly.Client, pattern: str) -> None:
    """Say so if a gate holds nothing because no lambda has this name: in an incident a misspelt pause helps nobody."""
    if pattern.endswith("*"):
        return
    try:
        client.get_lambda(pattern.partition("@")[0])
    except duly.UnknownLambdaError:
        say(
            f"no lambda is called {pattern!r}, so the gate holds nothing: `duly lambdas` lists them", err=True
        )
    except duly.DulyError:
        return  # the gate is set, and whether the lambda is known is not known


def _pattern(lambda_name: str, namespace: str) -> str:
    if bool(lambda_name) == bool(namespace):
        raise invalid("--lambda", "say either --lambda or --namespace; '*' is every lambda")
    return lambda_name or f"{namespace}/*"


def _kind(pause: bool, drop: bool, delay: str | None) -> tuple[duly.GateKind, timedelta | None]:
    if pause + drop + (delay is not None) != 1:
        raise invalid("--pause", "say one of --pause, --drop and --delay")
    if delay is not None:
        return duly.GateKind.DELAY, parse_duration(delay, "--delay")
    return (duly.GateKind.PAUSE if pause else duly.GateKind.DROP), None


def _name(kind: duly.GateKind, pattern: str, collection: str, priority: str | None, session: str) -> str:
    """Return a name that is the same whenever the same is asked for."""
    parts = [kind.name.lower(), pattern.replace("*", "all"), collection, priority or "", session]
    joined = "-".join(filter(None, parts)).lower()
    return "".join(each if each.isalnum() or each in "_.-" else "-" for each in joined)[:128]


def _scope(gate: duly.Gate) -> str:
    parts = [
        gate.lambda_name,
        gate.priority.name.lower() if gate.priority else "",
        f"collection {gate.collection}" if gate.collection else "",
        f"session {gate.session}" if gate.session else "",
    ]
    return ", ".join(filter(None, parts))


def _table(gates: Iterable[duly.Gate]) -> Iterator[str]:
    from duly_core.settings import format_duration

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
        for gate in gates
    ]
    if not rows:
        return iter(["no gates: `duly gates set --lambda NAME --pause` sets one"])
    return columns(
        ("GATE", "KIND", "TASKS", "PARKED", "AGE", "UNTIL", "OWNER", "REASON"),
        rows,
        left_out_first=("OWNER", "PARKED", "AGE"),
    )


def _hits(found: Iterable[duly.GateHits]) -> Iterator[str]:
    for hits in found:
        more = " at least" if hits.truncated else ""
        yield f"it would hit{more} {hits.total} tasks"
        yield from (f"  {status.name.lower()}: {count}" for status, count in sorted(hits.counts.items()))


def _hits_as_json(hits: duly.GateHits) -> dict[str, object]:
    counts = {status.name.lower(): count for status, count in sorted(hits.counts.items())}
    return {"hits": counts, "total": hits.total, "truncated": hits.truncated}
