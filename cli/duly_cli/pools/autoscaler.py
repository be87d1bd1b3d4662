"""`duly autoscaler`: the service that starts and ends the workers of pools; `duly autoscaler explain`: why so many."""

from datetime import datetime
from typing import Annotated

import typer

from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import one_line, say
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, age_text, repeatedly
from duly_cli.pools.commands import plan_lines
from duly_cli.startup.nouns import UnknownNameError
from duly_cli.startup.run_services import PANEL
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected

_autoscaler = Verbs(add_completion=False, invoke_without_command=True)


def add_commands(app: typer.Typer) -> None:
    """Add `autoscaler` with `explain`."""
    app.add_typer(_autoscaler, name="autoscaler", rich_help_panel=PANEL)


@_autoscaler.callback()
def autoscaler(
    context: typer.Context,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for health checks.", show_default=False)
    ] = None,
) -> None:
    """Starts and ends the workers of pools: plans how many each needs, and has drivers do it. Two or more may run: one leads."""
    if context.invoked_subcommand is not None:
        return
    from duly_autoscaler.__main__ import main

    main(listen=listen)


@_autoscaler.command()
def explain(
    pools: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POOL]...", help="Pools, as `duly pools` lists them.", show_default="all"),
    ] = None,
    watch: Watch = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say how many workers each pool is to have and why, what is announced, and which autoscaler leads."""
    with connected(address) as client:

        def show() -> None:
            found = client.pools(pools or ())
            missing = {*(pools or ())} - {each.name for each in found}
            if missing:
                message = f"no pool {' or '.join(map(repr, sorted(missing)))} is declared: `duly pools list` has their names"
                raise UnknownNameError(message)
            if as_json:
                show_all(found, lambda _: columns((), []), as_object, as_json=True)
                return
            leader = client.autoscaler_leader()
            if leader is None:
                say("no autoscaler ever led: `duly autoscaler` starts one")
            elif not leader.leads:
                ago = age_text(datetime.now().astimezone() - leader.until_at)
                say(f"no autoscaler leads: the lease of {one_line(leader.holder)} ended {ago} ago")
            else:
                say(f"{one_line(leader.holder)} leads (fence {leader.fence})")
            if not found:
                say("no pools: `duly pools set NAME --lambda ... --max ... --driver ...` declares one")
            for each in found:
                say("\n".join(["", *plan_lines(each)]))

        repeatedly(show, watch, as_json=as_json)
