"""`duly dead-letters` and `duly redrive`: find the tasks that ended as fatal_failure, and let them run again."""

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.output.json_text import show_all
from duly_cli.output.safe_text import say
from duly_cli.output.task_text import dead_letter_table, listed_as_json
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import invalid
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.bulk import DryRun, Everything, Limit, Yes, check_filter, confirm, refuse_filters
from duly_cli.tasks.commands import (
    DEFAULT_ADDRESS,
    Address,
    AsJson,
    TaskIds,
    add_to_tasks,
    connected,
    say_answers,
    show_tasks,
)
from duly_cli.tasks.filters import Collection, InCell, Kind, Lambda, Since, Until, which_tasks
from duly_core.config.durations import format_duration

if TYPE_CHECKING:  # these load gRPC, which `duly up` does not need
    from duly.tasks.dead_letters import Redrive

_PANEL = "Tasks"
_NONE = "no dead letters match"
_PER = {"s": 1, "m": 60, "h": 3600}


_dead_letters = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add the commands for dead letters."""
    app.add_typer(
        _dead_letters,
        name="dead-letters",
        rich_help_panel=_PANEL,
        help="List tasks that ended as fatal_failure; show one; run them again.",
    )
    add_to_tasks(app, redrive)
    _dead_letters.command()(redrive)


@_dead_letters.command("list")
def dead_letters(
    lambda_name: Lambda = "",
    collection: Collection = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    cell: InCell = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest first.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List tasks that ended as fatal_failure: exhausted, quarantined, expired, or given up."""
    which = which_tasks(lambda_name, collection, kind=kind, since=since, until=until, cell=cell)
    with connected(address) as client:
        found = list(islice(client.dead_letters(page_size=min(limit + 1, 1000), **which), limit + 1))
    show_all(found[:limit], dead_letter_table, listed_as_json, as_json=as_json)
    if len(found) > limit and not as_json:
        say(f"there are more than these {limit}: raise --limit, or filter", err=True)


@_dead_letters.command("get", hidden=True)
@_dead_letters.command("show")
def show_dead_letters(task_ids: TaskIds, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show dead letters as `duly get` shows tasks; exit 1 if one does not exist, or is no dead letter."""
    show_tasks(task_ids, address, as_json=as_json, only=duly.TaskStatus.FATAL_FAILURE)


def redrive(
    task_ids: Annotated[
        list[str] | None, typer.Argument(help="Task ids; or say which by filters.", metavar="TASK_ID")
    ] = None,
    lambda_name: Lambda = "",
    collection: Collection = "",
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    cause: Annotated[
        str,
        typer.Option(
            help="Only those that failed by this cause, as `duly status` has it.",
            metavar="FINGERPRINT",
            show_default=False,
        ),
    ] = "",
    everything: Everything = False,
    rate: Annotated[
        str | None,
        typer.Option(
            help="How fast they become due: 50/s, 600/m or 100/h.",
            show_default="all at once",
        ),
    ] = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Run dead letters again, with failures and crashes at 0: those named, or those that match the filters."""
    which = which_tasks(lambda_name, collection, kind=kind, since=since, until=until)
    if task_ids:
        refuse_filters(
            which or cause or everything or rate or limit or dry_run, "--cause, --rate, --limit, --dry-run"
        )
        with connected(address) as client:
            answers = client.redrive_many(task_ids)
        say_answers(task_ids, answers, lambda status: f"redriven, is {status.name.lower()}")
        return
    if cause:
        which["cause"] = cause
    check_filter(which, everything=everything, instead="task ids, filters such as --lambda or --since")
    a_second = _rate(rate)
    with connected(address) as client:
        if dry_run or not yes:
            would = client.redrive_where(rate=a_second, limit=limit, dry_run=True, **which)
            say(_plan(would, rate, dry_run=dry_run))
            if dry_run or not would.count:
                return
            confirm("redrive", would.count)
        done = client.redrive_where(rate=a_second, limit=limit, **which)
    say(f"redriven: {done.count:,}{_until_last(done)}" if done.count else _NONE)


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
