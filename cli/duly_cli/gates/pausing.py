"""`duly pause` and `duly resume`: the gate that holds a whole lambda, without a name to think of."""

from typing import Annotated

import typer

import duly
from duly_cli.access.os_user import user_name
from duly_cli.gates.commands import read_end, warn_of_unknown
from duly_cli.output.safe_text import say
from duly_cli.startup.nouns import UnknownNameError
from duly_cli.startup.option_values import given
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected
from duly_wire.gate_names import BREAKER, usual_name

_PANEL = "For operators"
_Lambda = Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")]


def add_commands(app: typer.Typer) -> None:
    """Add `pause` and `resume`."""
    app.command("pause", rich_help_panel=_PANEL)(pause)
    app.command("resume", rich_help_panel=_PANEL)(resume)


def pause(
    lambda_name: _Lambda,
    until: Annotated[
        str | None,
        typer.Option(
            help="For so long, 2h, or until an instant, 2026-12-24T18:00:00+01:00. Without: until `duly resume`.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Let the tasks of a lambda wait that nobody runs yet; `duly gates set` also pauses parts of it, drops and delays."""
    name = usual_name("pause", lambda_name)
    with connected(address) as client:
        client.put_gate(
            name,
            duly.GateKind.PAUSE,
            lambda_name,
            reason=given("--reason", reason),
            **read_end(until, no_until=False),
            owner=user_name(),
        )
        say(f"{lambda_name}: paused by the gate {name}; `duly resume {lambda_name}` removes it")
        warn_of_unknown(client, lambda_name)


def resume(lambda_name: _Lambda, address: Address = DEFAULT_ADDRESS) -> None:
    """Remove the gates that pause all of a lambda; what they held is due at once. Exit 1 if there is none."""
    with connected(address) as client:
        gates = [each for each in client.gates() if not each.name.startswith(BREAKER)]
        whole = [each for each in gates if _pauses_all(each, lambda_name)]
        if not whole:
            message = f"no gate pauses all of {lambda_name!r}: `duly gates` lists what is in force"
            raise UnknownNameError(message)
        for gate in whole:
            client.delete_gate(gate.name)
            say(f"{lambda_name}: resumed, the gate {gate.name} is removed")


def _pauses_all(gate: duly.Gate, lambda_name: str) -> bool:
    is_part = gate.collection or gate.priority or gate.session
    return gate.kind is duly.GateKind.PAUSE and gate.lambda_name == lambda_name and not is_part
