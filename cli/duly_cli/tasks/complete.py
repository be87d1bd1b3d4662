"""`duly complete`: complete a task that its callback handed over, by its token."""

import sys
from typing import Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import parse_duration
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, add_to_tasks, connected
from duly_cli.tasks.payloads import read_payload

_VARIABLE = "DULY_COMPLETION_TOKEN"
_STDIN = "-"


def add_command(app: typer.Typer) -> None:
    """Add `complete`."""
    add_to_tasks(app, complete)


def complete(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="The result of the task: JSON, or - for standard input.")
    ] = "null",
    token: Annotated[
        str,
        typer.Option(
            envvar=_VARIABLE,
            show_default=False,
            help="The token that the callback gave out, or - for the first line of standard input. Others see a command line: use the variable.",
        ),
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Send RESULT as bytes.")] = False,
    message: Annotated[
        str | None,
        typer.Option(
            "--fail", metavar="MESSAGE", help="Say that the work failed, instead.", show_default=False
        ),
    ] = None,
    retry: Annotated[
        bool,
        typer.Option("--retry/--no-retry", help="With --fail: run the task again, if attempts are left."),
    ] = True,
    retry_after: Annotated[
        str | None,
        typer.Option(help="With --fail: run it again after this time: 90s, 2h.", show_default=False),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Complete a task whose callback ended with CompleteLater, by the token that it gave out."""
    if not token:
        raise typer.BadParameter(f"give the token in the variable {_VARIABLE}, or with --token")
    if token == _STDIN:
        if result == _STDIN:
            raise typer.BadParameter("standard input has the token or the result, not both")
        token = sys.stdin.readline().strip()
    delay = parse_duration(retry_after, "--retry-after")
    if message is None and (delay is not None or not retry):
        raise typer.BadParameter("--no-retry and --retry-after belong to --fail MESSAGE")
    if message is not None and (result != "null" or raw):
        raise typer.BadParameter("give a RESULT or --fail MESSAGE, not both")
    if delay is not None and not retry:
        raise typer.BadParameter("--no-retry and --retry-after contradict each other")
    value = read_payload(result, raw=raw) if message is None else None
    with connected(address) as client:
        status = (
            client.complete(token, value)
            if message is None
            else client.fail(token, message, retry=retry, retry_after=delay)
        )
    say(f"completed, is {status.name.lower()}" if message is None else f"failed, is {status.name.lower()}")
