"""`duly cells move`: moves a cell to another Postgres, by logical replication."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.exit_codes import exit_code_of
from duly_cli.startup.option_values import invalid, parse_duration

if TYPE_CHECKING:
    from duly_core.cells.moving.mover import Mover
    from duly_core.postgres.settings import StoreSettings


def move(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The cell to move.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="ADDRESS", help="The Postgres to move it to: postgresql://HOST/DATABASE."
        ),
    ],
    dsn: Annotated[
        str | None,
        typer.Option(help="The address of any cell.", show_default="the setting store.dsn"),
    ] = None,
    source_for_target: Annotated[
        str,
        typer.Option(
            "--source-for-target",
            metavar="ADDRESS",
            help="The address of the present place for the target's server, where that is another one.",
        ),
    ] = "",
    longest_fence: Annotated[
        str, typer.Option(metavar="DURATION", help="How long writes of the cell may be refused.")
    ] = "30s",
    *,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Compare the rows of both sides before the switch.")
    ] = True,
    abort: Annotated[
        bool,
        typer.Option("--abort", help="Give up a move that has not switched: the cell stays where it is."),
    ] = False,
    target_is_gone: Annotated[
        bool,
        typer.Option(
            "--target-is-gone", help="With --abort: the target does not answer, and never will again."
        ),
    ] = False,
) -> None:
    """Move a cell to another Postgres. After a failure or a kill, run it again: it goes on where it was."""
    from duly_core.errors import DulyError

    fence = parse_duration(longest_fence, "--longest-fence")
    if fence.total_seconds() <= 0:
        raise invalid("--longest-fence", "must be longer than 0s")
    if target_is_gone and not abort:
        raise invalid("--target-is-gone", "is for --abort")
    try:
        from duly_core.postgres.settings import StoreSettings

        settings = StoreSettings.load(dsn=dsn)
        mover = _mover(settings, cell, to, source_for_target, fence, compares=compare)
        if mover is None:
            say(f"cell {cell} is there already, and no move is left to complete")
        elif abort:
            with mover:
                mover.give_up(target_is_gone=target_is_gone)
            say(f"the move of cell {cell} is given up: it stays where it is")
            say(f"the target keeps what was copied: drop schema {mover.target.schema} cascade removes it")
        else:
            _run(mover, cell)
    except DulyError as error:
        say(f"duly cells move: {error}", err=True)
        raise typer.Exit(exit_code_of(error)) from error


def _mover(
    settings: "StoreSettings",
    cell: str,
    to: str,
    source_for_target: str,
    fence: "timedelta",
    *,
    compares: bool,
) -> "Mover | None":
    from duly_core.cells.administration import Administration, check_no_password
    from duly_core.cells.directory import Cell
    from duly_core.cells.moving.move import find_mover
    from duly_core.postgres.password import full_address
    from duly_core.postgres.settings import direct

    check_no_password(to)
    administration = Administration(direct(settings))

    def add_password(address: str) -> str:
        return full_address(administration.settings_of(Cell(cell, address, "")))

    return find_mover(
        administration.look().directory,
        cell,
        add_password(to),
        add_password,
        source_seen_from_target=source_for_target,
        longest_fence=fence,
        compares=compares,
    )


def _run(mover: "Mover", cell: str) -> None:
    from duly_core.cells.moving.move import run

    run(mover, say)
    if mover.fenced_for is not None:
        say(f"writes of cell {cell} were refused for {mover.fenced_for.total_seconds():.1f} s")
    say(f"cell {cell} is at {mover.target.where}")
    if mover.not_told:
        say(
            f"not told, for they do not answer: {', '.join(mover.not_told)}; run `duly cells sync` when they do"
        )
    say(f"its former place refuses writes and may go: drop schema {mover.source.schema} cascade")
