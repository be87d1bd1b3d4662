"""Starts a service without typer and rich, which would stay in its memory for as long as it runs."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Service:
    """What runs a service, and what it may be told. `duly_cli.startup.run_services` declares the same for people."""

    module: str
    function: str = "main"
    options: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    """Each option with the type of its value."""
    argument: str | None = None
    """The name of what must be given without an option."""
    left_to_people: frozenset[str] = frozenset()
    """Options that only the command line for people understands."""


def http_lambdas(path: str) -> str:
    """Return the name of the application that runs the HTTP lambdas of a file."""
    return "duly.http_lambdas:" + json.dumps({"file": str(Path(path).absolute())})


def command_lambdas(path: str) -> str:
    """Return the name of the application that runs the command lambdas of a file."""
    return "duly.command_lambdas:" + json.dumps({"file": str(Path(path).absolute())})


SERVICES = {
    "server": Service("duly_server.__main__", options={"--roles": str}),
    "frontend": Service("duly_frontend.__main__", options={"--listen": str}),
    "store-consumer": Service(
        "duly_store_consumer.__main__", options={"--listen": str, "--poll-interval": str}
    ),
    "hsc": Service("duly_hsc.__main__", options={"--listen": str}),
    "autoscaler": Service("duly_autoscaler.__main__", options={"--listen": str}),
    "console": Service("duly_console.__main__", options={"--listen": str, "--frontend-address": str}),
    "worker": Service(
        "duly_controller.__main__",
        "run_worker",
        {
            "--executors": int,
            "--processes": int,
            "--slots": int,
            "--domain": str,
            "--label": str,
            "--pool": str,
            "--exit-when-idle": str,
            "--http": http_lambdas,
            "--commands": command_lambdas,
        },
        "application",
        frozenset(
            {
                "--exec",
                "--lambda",
                "--owner",
                "--code-version",
                "--messages",
                "--max-runtime",
                "--max-attempts",
                "--debug-port",
            }
        ),
    ),
    "controller": Service("duly_controller.__main__", options={"--listen": str}),
}

_PARAMETERS = {
    "--domain": "domains",
    "--label": "labels",
    "--http": "application",
    "--commands": "application",
}
"""What the function calls an option whose name it does not have; one that is given twice is for the command line for people."""


def run(command_line: Sequence[str]) -> None:
    """Run the service that a command line names, and exit.

    Returns if it names none, or if anything in it is unusual: then the command line for people says what is wrong.
    """
    service = SERVICES.get(command_line[0]) if command_line else None
    if service is None:
        return
    told = _read(service, command_line[1:])
    if told is not None:
        # structlog would load it for tracebacks that no service asks for
        sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None: not to be imported
        getattr(importlib.import_module(service.module), service.function)(**told)


def _read(service: Service, arguments: Sequence[str]) -> dict[str, object] | None:
    """Return the values by the names of the function's parameters; None: not for us to judge."""
    told: dict[str, object] = {}
    if service.function == "run_worker":
        told |= {"processes": None, "slots": None}
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, separator, value = word.partition("=")
        if name in service.options and (separator or left):
            parameter = _PARAMETERS.get(name, name.removeprefix("--").replace("-", "_"))
            if told.get(parameter) is not None:
                return None
            try:
                told[parameter] = service.options[name](value if separator else left.pop(0))
            except ValueError:
                return None
        elif service.argument and service.argument not in told and not word.startswith("-"):
            told[service.argument] = word
        else:
            return None
    return None if service.argument and service.argument not in told else told
