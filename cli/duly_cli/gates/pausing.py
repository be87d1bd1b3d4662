"""`duly pause` and `duly resume`: the gate that holds a whole lambda, without a name to think of."""

import shlex
from typing import Annotated

import typer

import duly
from duly_cli.access.os_user import user_name
from duly_cli.gates.commands import read_end, warn_of_unknown
from duly_cli.lambdas.commands import LAMBDAS
from duly_cli.output.safe_text import say
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import UnknownNameError
from duly_cli.startup.option_values import given, invalid
from duly_cli.startup.partial_answers import not_shown
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected
from duly_wire.gate_names import BREAKER, usual_name

_PANEL = "For operators"
_Lambda = Annotated[str, typer.Argument(metavar="LAMBDA", help="`duly lambdas` lists them.")]


def add_commands(app: typer.Typer) -> None:
    """Add `pause` and `resume`, which are verbs of `lambdas`, too."""
    for command in (pause, resume):
        app.command(rich_help_panel=_PANEL)(command)
        LAMBDAS.command()(command)


def pause(
    lambda_name: _Lambda,
    until: Annotated[
        str | None,
        typer.Option(
            help="End of the pause: a duration (2h) or an instant (2026-12-24T18:00:00+01:00). Without it, a new pause lasts until `duly resume`; an existing one keeps its end.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="For people: why.", show_default=False)] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Let the tasks of a lambda wait that nobody runs yet; `duly gates set` also pauses parts of it, drops and delays."""
    name = usual_name("pause", lambda_name)
    end = read_end(until, no_until=False)
    with connected(address) as client:
        _check_free(client, name, lambda_name)
        gate = client.put_gate(
            name,
            duly.GateKind.PAUSE,
            lambda_name,
            reason=given("--reason", reason),
            **end,
            owner=user_name(),
        )
        until_text = f"until {moment_text(gate.expires_at)}" if gate.expires_at else "without an end"
        undo = shlex.join(["duly", "resume", lambda_name])  # a shell would take `*` for files
        say(f"{gate.lambda_name}: paused {until_text} by the gate {gate.name}; `{undo}` removes it")
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


def _check_free(client: "duly.Client", name: str, lambda_name: str) -> None:
    """Refuse to turn a gate that does something else into this pause: what it holds would become due.

    Raises:
        typer.BadParameter: there is such a gate.
    """
    with not_shown():  # a gate in a cell that is away is looked up by the call that sets this one
        there = next((each for each in client.gates() if each.name == name), None)
    if there is None or _pauses_all(there, lambda_name):
        return
    is_part = there.collection or there.priority or there.session
    hit = f"a part of {there.lambda_name}" if is_part else there.lambda_name
    message = (
        f"the gate {name} is there already, and does something else ({there.kind.name.lower()} {hit}): `duly gates show {name}`. "
        f"Pause {lambda_name} by a gate of another name: `duly gates set NAME --lambda {lambda_name} --pause`"
    )
    raise invalid("LAMBDA", message)


def _pauses_all(gate: "duly.Gate", lambda_name: str) -> bool:
    is_part = gate.collection or gate.priority or gate.session
    return gate.kind is duly.GateKind.PAUSE and gate.lambda_name == lambda_name and not is_part
