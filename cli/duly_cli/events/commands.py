"""`duly events`: follow what happens to tasks."""

import typer

from duly_cli.events.watch import watch
from duly_cli.startup.nouns import Noun

_events = typer.Typer(add_completion=False, cls=Noun)
_events.command()(watch)


def add_commands(app: typer.Typer) -> None:
    """Add `events` with its verbs."""
    app.add_typer(
        _events,
        name="events",
        rich_help_panel="Tasks",
        help="Follow what happens to tasks and graphs.",
    )
