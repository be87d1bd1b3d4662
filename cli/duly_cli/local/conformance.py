"""`duly conformance`: judges a worker by its duties."""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duly_cli.output.json_text import json_text
from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import parse_duration

if TYPE_CHECKING:
    from duly_local.conformance.runner import Judged

_EXIT_BROKEN = 1


def add_command(app: typer.Typer) -> None:
    """Add `conformance`."""
    app.command(rich_help_panel="On this machine")(conformance)


def conformance(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="Starts the worker, behind `--`: duly conformance -- node worker.mjs. Without it, start the worker yourself.",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT where Duly seems to be; port 0 is any.")
    ] = "127.0.0.1:0",
    duty: Annotated[
        list[str] | None,
        typer.Option(help="Judge only this duty; may be repeated.", show_default=False),
    ] = None,
    heartbeat_timeout: Annotated[
        str, typer.Option(help="How long a lease is. A longer one is kinder to a slow machine.")
    ] = "10s",
    patience: Annotated[
        str, typer.Option(help="How long the worker may take for what is to be done at once.")
    ] = "15s",
    log: Annotated[
        Path | None, typer.Option(help="Where the worker's output goes.", show_default="nowhere")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a duty a line.")] = False,
) -> None:
    """Run a worker of any language against a Duly that loses answers, and say which duties of docs/workers.md it keeps.

    The worker offers six lambdas (docs/workers.md) and connects to $DULY_CONFORMANCE_ADDRESS.
    Exit code: 0 all duties are kept, 1 one is broken, 2 wrong use.
    """
    from duly_local.conformance.duties import DUTIES
    from duly_local.conformance.runner import judge

    known = [each.name for each in DUTIES]
    for name in duty or ():
        if name not in known:
            raise typer.BadParameter(f"there is no duty {name!r}: {', '.join(known)}")

    def started(address: str, environment: Mapping[str, str]) -> None:
        if not command:
            told = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
            say(f"start the worker with: env {told} COMMAND", err=True)
        else:
            say(f"Duly seems to be at {address}", err=True)

    found = asyncio.run(
        judge(
            tuple(command or ()),
            listen=listen,
            lease=parse_duration(heartbeat_timeout, "--heartbeat-timeout"),
            patience=parse_duration(patience, "--patience"),
            only=duty or (),
            log=log,
            told=_tell_as_json if as_json else _tell,
            on_start=started,
        )
    )
    broken = sum(each.verdict == "fail" for each in found)
    untested = sum(each.verdict == "not tested" for each in found)
    if not as_json:
        say(f"{len(found) - broken - untested} kept, {broken} broken, {untested} not tested")
    if broken:
        raise typer.Exit(_EXIT_BROKEN)


def _tell_as_json(each: "Judged") -> None:
    told = {"duty": each.duty.name, "verdict": each.verdict, "text": each.duty.text, "reason": each.reason}
    say(json_text(told))


def _tell(each: "Judged") -> None:
    say(f"{each.verdict:10}  {each.duty.name:22}  {each.reason or each.duty.text}")
