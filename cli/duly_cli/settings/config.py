"""`duly config`: every setting that a process reads when it starts."""

import os
from typing import Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.exit_codes import exit_code_of


def add_command(app: typer.Typer) -> None:
    """Add `config`."""
    app.command(rich_help_panel="For operators")(config)


def config(
    only: Annotated[
        str,
        typer.Argument(
            metavar="[FILTER]",
            help="Only settings with this text in their name or meaning: executor, timeout, queue.backend.",
            show_default=False,
        ),
    ] = "",
    toml: Annotated[
        bool, typer.Option("--toml", help="Write a duly.toml with every default instead.")
    ] = False,
) -> None:
    """Show every setting on one screen: its value, where it is set, and its meaning."""
    from duly_cli.settings.all_settings_text import example_toml, settings_lines
    from duly_core.config.section_names import misspelt_variables
    from duly_core.errors import DulyError

    if toml:
        typer.echo(example_toml(), nl=False)
        return
    try:
        say("\n".join(settings_lines(only)))
    except DulyError as error:
        say(f"duly config: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
    for variable, meant in misspelt_variables(os.environ).items():
        say(f"duly config: {variable} is not a setting; do you mean {meant}...?", err=True)
