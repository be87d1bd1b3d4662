"""`duly register`: declares an application's lambdas without running them."""

import os
from typing import Annotated

import typer

import duly
from duly_cli.output.safe_text import counted, say
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected


def add_command(app: typer.Typer) -> None:
    """Add `register`."""
    app.command(rich_help_panel="For operators")(register)


def register(
    application: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The application, such as examples.hello:app.")
    ],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Declare the lambdas of an application, their time tables and its resources; workers do so, too, if they are owners."""
    from duly.callbacks.loading import load_app

    try:
        app = load_app(application)
    except duly.AppImportError as error:
        say(f"duly register: {error}", err=True)
        raise typer.Exit(os.EX_CONFIG) from error
    with connected(address) as client:
        warnings = client.register(app)
        for warning in warnings:
            say(f"duly: {warning}", err=True)
        declared = app.lambdas()
        resources = sum(len(each.declared_resources) for each in declared)
        brought = f", with {counted(resources, 'resource')}" if resources else ""
        say(f"{counted(len(declared), 'lambda')} registered{brought}")
