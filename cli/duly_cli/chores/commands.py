"""`duly chores`: submits a folder with a command and its files, and fetches what came of it."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

import duly
from duly_cli.attachments.progress_bar import ProgressBar
from duly_cli.output.safe_text import one_line, say
from duly_cli.startup.nouns import Noun
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, connected, show
from duly_cli.tasks.schedule import schedule_new
from duly_cli.tasks.wait_reasons import wait_told

_PATIENCE = timedelta(seconds=10)

_chores = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `chores` with its verbs."""
    app.add_typer(
        _chores,
        name="chores",
        rich_help_panel="Tasks",
        help="Run the command of a folder on a worker, and fetch what came of it.",
    )


@_chores.command("submit")
def submit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with chore.json and the files that it needs.")
    ],
    lambda_name: Annotated[
        str,
        typer.Option("--lambda", help="Instead of chores/RUNNER, or chores/run.", show_default=False),
    ] = "",
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Take the files that links in the folder lead to.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for its end and show it; exit 1 if it did not succeed. After 3 s, say what it waits for.",
        ),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Schedule the command of a folder, with its files, and print the task's id. The same chore_id makes no second task."""
    from duly.chores import new_task

    with connected(address) as client:
        with ProgressBar() as bar:
            try:
                new = new_task(folder, lambda_name=lambda_name, follow_links=follow_links, progress=bar.told)
            except OSError as error:
                raise typer.BadParameter(f"{one_line(str(folder))}: {error.strerror}") from error
            (scheduled,) = schedule_new(client, [new], _PATIENCE)
        say(scheduled.task_id)
        ended = wait_told(client, [scheduled]) if wait else []
    show(ended, as_json=False)
    if any(task.status is not duly.TaskStatus.SUCCESS for task in ended):
        raise typer.Exit(1)


@_chores.command("fetch")
def fetch(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The task.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where to write the files; it is made if need be. Default: one of the task's id.",
            show_default=False,
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Write the output, the errors and the files of a chore that ended into a folder. Files of the same names are replaced."""
    from duly.chores import fetch as fetch_chore

    folder = folder or Path(task_id)  # never the current one: the worker chose the names, such as .bashrc
    with connected(address) as client:
        with ProgressBar() as bar:
            try:
                saved = fetch_chore(client, task_id, folder, progress=bar.told)
            except OSError as error:
                raise typer.BadParameter(
                    f"{one_line(str(error.filename or folder))}: {error.strerror}"
                ) from error
        for path in saved:
            say(one_line(str(path)))
