"""`duly init`: a new project, with a lambda, tests, and an image."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from duly_cli.access.os_user import user_name
from duly_cli.output.safe_text import one_line, say
from duly_cli.startup.option_values import invalid


def add_command(app: typer.Typer) -> None:
    """Add `init`."""
    app.command("init", rich_help_panel="On this machine")(init)


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Where; it is made if it is not there.", show_default="this one"
        ),
    ] = Path(),
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The package, and the first word of its lambdas' names.",
            show_default="that of the folder",
        ),
    ] = "",
    owner: Annotated[
        str,
        typer.Option(
            help="Who answers for its lambdas, such as a team's address.", show_default="your user name"
        ),
    ] = "",
) -> None:
    """Make a project: a lambda, tests, an image, and configurations of a debugger. No file that exists is changed.

    Exit code: 0 made, 1 some of its files exist or cannot be written, 2 wrong use. Unless it is 0, nothing is changed.
    """
    from duly_local.new_project.files import (
        NewProjectError,
        check_name,
        package_name,
        project_files,
        write_project,
    )

    package = name or package_name(folder)
    if wrong := check_name(package):
        option, hint = ("--name", "") if name else ("FOLDER", "; --name NAME gives the package another name")
        raise invalid(option, f"{one_line(wrong)}{hint}")
    files = project_files(package, one_line(owner or user_name() or package))
    try:
        write_project(folder, files)
    except NewProjectError as error:
        say(f"duly init: {one_line(str(error))}", err=True)
        raise typer.Exit(1) from error
    enter = [] if folder.resolve() == Path.cwd() else [f"  cd {shlex.quote(str(folder))}"]
    rows = (
        "  pip install -e '.[dev]'",
        "  pytest",
        f"  duly up {package}.app:app --reload",
        f'  duly schedule {package}.greet \'{{"name": "Ada"}}\' --wait    # in another terminal',
    )
    say(f"made {package}: {', '.join(files)}\n\nNext:\n" + "\n".join((*enter, *rows)))
