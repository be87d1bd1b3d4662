"""The options of `--exec`: the application that a program in any language is."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

Program = Annotated[
    str | None,
    typer.Option(
        "--exec",
        metavar="PROGRAM",
        help="Run the lambdas of --lambda with this program, in any language, such as 'node handler.mjs'.",
        show_default=False,
    ),
]
Lambdas = Annotated[
    list[str] | None,
    typer.Option("--lambda", help="A lambda of the program of --exec; may be repeated.", show_default=False),
]


def program_of(
    program: str | None,
    lambdas: Sequence[str],
    *,
    max_runtime: timedelta | None = None,
    **options: object,
) -> str | None:
    """Return the name of the application that runs a program; None: no program is named.

    Raises:
        typer.BadParameter: --exec without --lambda, or what belongs to --exec without it.
    """
    told: dict[str, object] = {name: value for name, value in options.items() if value}
    if max_runtime is not None:
        told["max_runtime"] = max_runtime.total_seconds()
    if program is None:
        if lambdas or told:
            names = ["lambda", *told] if lambdas else [*told]
            belongs = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            raise typer.BadParameter(f"{belongs}: only with --exec; an application has its own")
        return None
    if not lambdas:
        raise typer.BadParameter("name each lambda that the program runs: --lambda NAME")
    return "duly.programs:" + json.dumps({"exec": program, "lambdas": [*lambdas], **told})
