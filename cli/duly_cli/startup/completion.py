"""`duly completion`: what makes a shell complete the commands and options of `duly`."""

import enum
import os
from typing import Annotated, Any

import typer

_VARIABLE = "_DULY_COMPLETE"
"""Set by the shell when it asks what fits; the answer takes the place of the command."""


class Shell(enum.StrEnum):
    """The shells that are supported."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add_command(app: typer.Typer) -> None:
    """Add `completion`."""
    app.command("completion", rich_help_panel="For operators")(completion)


def completion(
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script with which a shell completes commands, options and names with Tab.

    Names come from the Frontend of DULY_ADDRESS, if it answers within 1.5 s.

    bash: `source <(duly completion bash)` in ~/.bashrc. zsh: `source <(duly completion zsh)` in ~/.zshrc, behind compinit.
    fish: `duly completion fish > ~/.config/fish/completions/duly.fish`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # re-exported without a word

    typer.echo(get_completion_script(prog_name="duly", complete_var=_VARIABLE, shell=shell.value))


def prepare(command: Any) -> None:
    """Be ready to answer a shell about a command, if one asks; what does so is loaded only then."""
    if _VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # the same

        from duly_cli.startup.known_names import complete_names

        completion_init()
        complete_names(command)
