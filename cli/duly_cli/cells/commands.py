"""`duly cells`: the stores of an installation, and which namespace lives in which."""

import typer

from duly_cli.cells import move
from duly_cli.startup.nouns import Noun
from duly_cli.startup.verbs import Verbs

_cells = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `cells` with its verbs."""
    app.add_typer(
        _cells,
        name="cells",
        rich_help_panel="For operators",
        help="Keep namespaces in several stores, and move a store.",
    )


_cells.command("move")(move.move)
