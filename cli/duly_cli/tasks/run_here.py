"""`duly run`: one attempt of a lambda in this process, to look at it, or to step through it."""

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly_cli.output.json_text import json_text
from duly_cli.output.safe_text import one_line, say
from duly_cli.tasks.payloads import Payload, Raw, read_payload

if TYPE_CHECKING:
    from duly.testing import TestRun

_EXIT_CODES = {
    duly.Outcome.SUCCESS: 0,
    duly.Outcome.SNOOZED: os.EX_TEMPFAIL,
    duly.Outcome.COMPLETE_LATER: os.EX_TEMPFAIL,
    duly.Outcome.WAIT_FOR_EVENT: os.EX_TEMPFAIL,
}
_EXIT_FAILED = 1


def add_command(app: typer.Typer) -> None:
    """Add `run`."""
    app.command(rich_help_panel="On this machine")(run)


def run(
    application: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The application, such as examples.hello:app.")
    ],
    lambda_name: Annotated[str, typer.Argument(metavar="LAMBDA", help="One of its lambdas.")],
    payload: Payload = "null",
    raw: Raw = False,
    attempt: Annotated[int, typer.Option(min=1, help="What ctx.attempt and ctx.fence say.")] = 1,
    event: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="An event that is there when the callback waits for KEY, as JSON; repeat it.",
        ),
    ] = None,
) -> None:
    """Run a lambda once in this process and print its result; needs no server, and breakpoint() works.

    Exit code: 0 success, 1 failed, 75 snoozed, to be completed later or waiting for an event, 2 wrong use, 78 the application cannot be imported.
    """
    from duly import testing
    from duly.callbacks.loading import load_app

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("duly.callback").setLevel(logging.ERROR)  # what it says is shown below
    try:
        app = load_app(application)
    except duly.AppImportError as error:
        say(f"duly run: {error}", err=True)
        raise typer.Exit(os.EX_CONFIG) from error
    value, events = read_payload(payload, raw=raw), _read_events(event or ())
    try:
        done = testing.run(
            app,
            lambda_name,
            value,
            attempt=attempt,
            events=events,
            run_async=asyncio.run,
            report=_show_progress,
        )
    except (duly.UnknownLambdaError, duly.EncodingError, duly.PayloadTooLargeError) as error:
        raise typer.BadParameter(str(error)) from error
    _show(done)
    raise typer.Exit(_EXIT_CODES.get(done.outcome, _EXIT_FAILED))


def _read_events(given: Iterable[str]) -> dict[str, list[object]]:
    """Return the values of events by key, in their order."""
    events: dict[str, list[object]] = {}
    for each in given:
        key, sign, value = each.partition("=")
        if not key or not sign:
            raise typer.BadParameter(f"--event must be KEY=VALUE, such as order-7=true, not {each!r}")
        try:
            events.setdefault(key, []).append(json.loads(value))
        except (ValueError, RecursionError) as error:
            problem = (
                f"--event: the value of {key} is not JSON: {error}; a text needs quotes: '{key}=\"text\"'"
            )
            raise typer.BadParameter(problem) from None
    return events


def _show_wait(done: "TestRun") -> None:
    for key, reason in done.refused_events.items():
        say(f"duly run: put the event {one_line(key)} aside: {one_line(reason)}", err=True)
    what = "the event" if len(done.waits_for) == 1 else "events:"
    say(
        f"duly run: waits for {what} {one_line(', '.join(done.waits_for))}, for {done.wait_timeout}", err=True
    )
    answer = one_line(shlex.quote(f"{done.waits_for[0]}=VALUE"))
    say(f"to answer it, with JSON as the value: --event {answer}", err=True)


def _show_progress(fraction: float, note: str) -> None:
    say(f"progress: {fraction:.0%} {one_line(note)}".rstrip(), err=True)


def _show(done: "TestRun") -> None:
    """Print the result to stdout, anything else to stderr."""
    for made in done.event_addresses:
        say(
            f"duly run: made an address for the event {one_line(made.key)}, which leads nowhere: answer with --event",
            err=True,
        )
    if done.outcome is duly.Outcome.SUCCESS:
        value = done.result
        if isinstance(value, bytes):
            typer.echo(value)  # as they are: for a file or another program
        else:
            say(json_text(value))
        return
    if done.outcome is duly.Outcome.WAIT_FOR_EVENT:
        _show_wait(done)
        return
    if done.traceback:
        say(done.traceback, err=True)
    told = done.outcome.name.lower()
    if done.failure_kind:
        told += f", {done.failure_kind.name.lower()}: {done.failure_message}"
    if done.retry_after is not None:
        told += f"; again after {done.retry_after}"
    if done.complete_within is not None:
        told += f"; within {done.complete_within}, by the token that it gave out"
    say(f"duly run: {told}", err=True)
