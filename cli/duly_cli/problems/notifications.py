"""`duly notifications`: who is told of problems, whether messages arrive, and a test."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

import duly
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.startup.nouns import Noun, one_of
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_Name = Annotated[str, typer.Argument(metavar="TARGET", help="Its name in the settings, such as ops.")]
_NONE = "no targets: [notifications.targets.NAME] in the settings of Frontends names them"

_notifications = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `notifications` with its verbs."""
    app.add_typer(
        _notifications,
        name="notifications",
        rich_help_panel="For operators",
        help="Show who is told of problems, and whether messages arrive; send a test.",
    )


@_notifications.command("list")
def list_targets(watch: Watch = None, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the targets: what each is told, and how the last deliveries went. Addresses and secrets are not shown."""
    with connected(address) as client:
        repeatedly(
            lambda: show_all(client.notification_targets(), _table, as_object, as_json=as_json),
            watch,
            as_json=as_json,
        )


@_notifications.command("get", hidden=True)
@_notifications.command("show")
def show_target(
    name: _Name, watch: Watch = None, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False
) -> None:
    """Show one target: what it is told, and how the last deliveries went."""
    with connected(address) as client:

        def show() -> None:
            unknown = f"no target {name!r} of notifications: `duly notifications list` has their names"
            found = one_of(client.notification_targets(), lambda each: each.name == name, unknown)
            show_all([found], _facts, as_object, as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


@_notifications.command("test")
def send_test(name: _Name, address: Address = DEFAULT_ADDRESS) -> None:
    """Send a test message to a target, and say what came of it. Exit 1: it did not arrive."""
    with connected(address) as client:
        done = client.test_notification_target(name)
    seconds = f"{done.took.total_seconds():.1f} s"
    if done.failure:
        say(f"{name}: did not arrive ({seconds}): {one_line(done.failure)}")
        raise typer.Exit(1)
    say(f"{name}: arrived ({seconds}), id {done.message_id}")


def _table(found: "Iterable[duly.NotificationTarget]") -> Iterator[str]:
    targets = list(found)
    if not targets:
        yield _NONE
        return
    now = datetime.now().astimezone()
    rows = [
        (
            each.name,
            each.kind,
            each.severity.name.lower(),
            _ago(each.last_success_at, now),
            _ago(each.last_failure_at, now),
            _state(each, now),
        )
        for each in targets
    ]
    yield from columns(("TARGET", "KIND", "FROM", "ARRIVED", "FAILED", "STATE"), rows)


def _facts(found: "Iterable[duly.NotificationTarget]") -> Iterator[str]:
    now = datetime.now().astimezone()
    for each in found:
        yield f"{each.name}: {each.kind}, {_state(each, now)}"
        yield f"told:      {_what(each)}"
        yield f"arrived:   {_ago(each.last_success_at, now)}"
        yield f"failed:    {_ago(each.last_failure_at, now)}{': ' if each.failure else ''}{one_line(each.failure)}"
        if each.next_attempt_at is not None:
            yield f"next try:  {_coming(each.next_attempt_at - now)}"


def _coming(left: timedelta) -> str:
    return f"in {age_text(left)}" if left > timedelta() else "now"


def _what(target: "duly.NotificationTarget") -> str:
    kinds = _listed([each.name.lower() for each in target.kinds])
    lambdas = _listed(target.lambdas)
    words = [f"problems from {target.severity.name.lower()} on"]
    words += [f"of the kinds {kinds}"] if kinds else []
    words += [f"of {lambdas}"] if lambdas else []
    words += [f"that stand for {age_text(target.delay)}"] if target.delay > timedelta() else []
    text = " ".join(words)
    repeats = f"; again after {age_text(target.repeat)}" if target.repeat else ""
    return one_line(f"{text}{repeats}{'; their ends' if target.resolved else ''}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _ago(instant: datetime | None, now: datetime) -> str:
    return "-" if instant is None else f"{age_text(max(timedelta(), now - instant))} ago"


def _state(target: "duly.NotificationTarget", now: datetime) -> str:
    if target.failing_since is not None:
        return (
            f"fails for {age_text(max(timedelta(), now - target.failing_since))}: {one_line(target.failure)}"
        )
    if target.is_message_under_way:
        return "a message waits"
    failed_at, arrived_at = target.last_failure_at, target.last_success_at
    if failed_at is not None and (arrived_at is None or arrived_at < failed_at):
        return f"the last one failed: {one_line(target.failure)}"
    return "ok" if target.last_success_at else "unused"
