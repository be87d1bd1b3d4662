"""`duly dead-letters` and `duly redrive`: find the tasks that ended as fatal_failure, and let them run again."""

import sys
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.formatting import dead_letter_table, listed_as_json
from duly_cli.json_text import show_all
from duly_cli.option_values import invalid, parse_moment_or_distance
from duly_cli.tasks import DEFAULT_ADDRESS, Address, AsJson, connected, say_answers
from duly_cli.text import say
from duly_core.durations import format_duration

if TYPE_CHECKING:  # these load gRPC, which `duly up` does not need
    from duly.dead_letters import Redrive
    from duly.filters import DeadLetterFilter

_PANEL = "Tasks"
_NONE = "no dead letters match"
_PER = {"s": 1, "m": 60, "h": 3600}

Lambda = Annotated[str, typer.Option("--lambda", help="Of this lambda only.")]
Collection = Annotated[str, typer.Option(help="Of this collection only.")]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        help="Only those that ended by this kind of failure, the first word under WHY: attempts_exhausted, quarantined, "
        "expired, exception (not to be retried), ...; may be repeated.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        help="Only those that ended at this time or later: ISO 8601, or 2h for 2 hours ago.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(help="Only those that ended before this time, written as for --since.", show_default=False),
]


def add_commands(app: typer.Typer) -> None:
    """Add the commands for dead letters."""
    app.command("dead-letters", rich_help_panel=_PANEL)(dead_letters)
    app.command("redrive", rich_help_panel=_PANEL)(redrive)


def dead_letters(
    lambda_name: Lambda = "",
    collection: Collection = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest first.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List tasks that ended as fatal_failure: exhausted, quarantined, expired, or given up."""
    which = _filter(lambda_name, collection, kind, since, until)
    with connected(address) as client:
        found = list(islice(client.dead_letters(page_size=min(limit + 1, 1000), **which), limit + 1))
    show_all(found[:limit], dead_letter_table, listed_as_json, as_json=as_json)
    if len(found) > limit and not as_json:
        say(f"there are more than these {limit}: raise --limit, or filter", err=True)


def redrive(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Task ids; or say which by filters.", metavar="TASK_ID")
    ] = None,
    lambda_name: Lambda = "",
    collection: Collection = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters, of all lambdas.")] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            help="How fast they become due: 50/s, 600/m or 100/h.",
            show_default="all at once",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many at most, the oldest first.", show_default="all")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: only count those that match.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Run dead letters again, with failures and crashes at 0: those named, or those that match the filters."""
    which = _filter(lambda_name, collection, kind, since, until)
    if task_ids:
        if which or everything or rate or limit or dry_run:
            message = "give either task ids or filters: --rate, --limit, --dry-run and --all go with filters"
            raise typer.BadParameter(message)
        with connected(address) as client:
            answers = client.redrive_many(task_ids)
        say_answers(task_ids, answers, lambda status: f"redriven, is {status.name.lower()}")
        return
    if bool(which) is everything:
        message = (
            "--all cannot be combined with filters"
            if everything
            else "say which: task ids, filters such as --lambda or --since, or --all; `duly dead-letters` lists them"
        )
        raise typer.BadParameter(message)
    a_second = _rate(rate)
    with connected(address) as client:
        if dry_run or not yes:
            would = client.redrive_where(rate=a_second, limit=limit, dry_run=True, **which)
            say(_plan(would, rate, dry_run=dry_run))
            if dry_run or not would.count:
                return
            _confirm(would)
        done = client.redrive_where(rate=a_second, limit=limit, **which)
    say(f"redriven: {done.count:,}{_until_last(done)}" if done.count else _NONE)


def _confirm(would: "Redrive") -> None:
    if not _is_terminal():
        say("duly: stdin is not a terminal, so nothing can be confirmed: add --yes to redrive them", err=True)
        raise typer.Exit(2)
    typer.confirm(f"redrive {would.count:,}?", abort=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _plan(would: "Redrive", rate: str | None, *, dry_run: bool) -> str:
    at_rate = f" at {rate}{_until_last(would)}" if rate and would.count else ""
    if not would.count:
        return _NONE
    number = "1 dead letter" if would.count == 1 else f"{would.count:,} dead letters"
    return f"{number} would run again{at_rate}" if dry_run else f"{number} to redrive{at_rate}"


def _until_last(done: "Redrive") -> str:
    if not done.spread:
        return ""
    return f", the last due in {format_duration(timedelta(seconds=round(done.spread.total_seconds())))}"


def _filter(
    lambda_name: str, collection: str, kinds: list[str] | None, since: str | None, until: str | None
) -> "DeadLetterFilter":
    which: DeadLetterFilter = {}
    if lambda_name:
        which["lambda_name"] = lambda_name
    if collection:
        which["collection"] = collection
    if kinds:
        which["failure_kinds"] = [_kind(name) for name in kinds]
    if since is not None:
        which["finished_after"] = parse_moment_or_distance(since, "--since", -1)
    if until is not None:
        which["finished_before"] = parse_moment_or_distance(until, "--until", -1)
    return which


def _kind(name: str) -> duly.FailureKind:
    try:
        return duly.FailureKind[name.upper().replace("-", "_")]
    except KeyError as error:
        known = ", ".join(each.name.lower() for each in duly.FailureKind)
        raise invalid("--kind", f"{name!r} is not a kind of failure: {known}") from error


def _rate(text: str | None) -> float | None:
    """Tasks a second: from 50/s, 600/m, 100/h, or 50."""
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        rate = float(number) / _PER[unit or "s"]
    except (KeyError, ValueError) as error:
        raise invalid("--rate", f"{text!r} is not a rate: write 50/s, 600/m or 100/h") from error
    if not 0 < rate < float("inf"):
        raise invalid("--rate", f"{text!r} is not a rate: it must be more than 0")
    return rate
