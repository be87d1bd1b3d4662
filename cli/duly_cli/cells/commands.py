"""`duly cells`: the stores of an installation, and which namespace lives in which."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duly_cli.cells import move
from duly_cli.output.json_text import show_all
from duly_cli.output.safe_text import say
from duly_cli.output.table import columns
from duly_cli.output.watching import Watch, repeatedly
from duly_cli.startup.exit_codes import exit_code_of
from duly_cli.startup.nouns import Noun
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import AsJson

if TYPE_CHECKING:
    from duly_core.cells.administration import Administration, Cells, CellState
    from duly_core.cells.directory import Directory

_EXIT_FAILED = 1
_Name = Annotated[str, typer.Argument(metavar="CELL", help="The name of a cell, such as a.")]
_Dsn = Annotated[
    str | None, typer.Option(help="The address of any cell.", show_default="the setting store.dsn")
]

_cells = Verbs(add_completion=False, cls=Noun)
_cells.command("move")(move.move)


def add_commands(app: typer.Typer) -> None:
    """Add `cells` with its verbs."""
    app.add_typer(
        _cells,
        name="cells",
        rich_help_panel="For operators",
        help="Keep namespaces in several stores, and move a store.",
    )


@_cells.command("list")
def list_cells(dsn: _Dsn = None, watch: Watch = None, as_json: AsJson = False) -> None:
    """List the cells: where each is, its namespaces, and whether it answers. They are read in Postgres, without a Frontend."""
    with _administration(dsn) as administration:

        def show() -> None:
            found = administration.look()
            show_all(found.states, _table(found), _to_object(found), as_json=as_json)

        repeatedly(show, watch, as_json=as_json)


def _table(found: "Cells") -> Callable[[Sequence["CellState"]], Iterable[str]]:
    from duly_core.postgres.dsn import describe

    def lines(states: Sequence["CellState"]) -> Iterator[str]:
        yield from columns(
            ("CELL", "STATE", "VERSION", "PLACE", "SCHEMA", "NAMESPACES"),
            [
                (
                    state.cell.name,
                    _state(state),
                    str(state.copy.directory.version) if state.copy else "-",
                    describe(state.cell.address),
                    state.cell.schema,
                    ", ".join(_namespaces(found.directory, state.cell.name)) or "-",
                )
                for state in states
            ],
        )

    return lines


def _state(state: "CellState") -> str:
    if state.away:
        return "away"
    if state.copy is None:
        return "no cell"
    return "fenced" if state.copy.fenced else "active"


def _namespaces(directory: "Directory", cell: str) -> list[str]:
    named = sorted(namespace for namespace, owner in directory.namespaces.items() if owner == cell)
    return ["(all others)", *named] if cell == directory.default_cell else named


def _to_object(found: "Cells") -> Callable[["CellState"], Mapping[str, Any]]:
    def to_object(state: "CellState") -> Mapping[str, Any]:
        return {
            "name": state.cell.name,
            "state": _state(state),
            "version": state.copy.directory.version if state.copy else None,
            "address": state.cell.address,
            "schema": state.cell.schema,
            "schema_version": state.schema_version or None,
            "is_default": state.cell.name == found.directory.default_cell,
            "namespaces": sorted(
                namespace
                for namespace, owner in found.directory.namespaces.items()
                if owner == state.cell.name
            ),
            "away": state.away or None,
        }

    return to_object


@_cells.command("init")
def init(
    name: _Name,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="ADDRESS",
            help="Where all services find it: postgresql://HOST/DATABASE.",
            show_default="the setting store.dsn",
        ),
    ] = None,
    dsn: _Dsn = None,
) -> None:
    """Make the store of this installation its first cell. Restart the services afterwards: they read the directory when they start."""
    from duly_core.cells.administration import check_no_password
    from duly_core.postgres.settings import StoreSettings

    with _administration(dsn) as administration:
        if at:
            check_no_password(at)
        administration.init(name, at or StoreSettings.load(dsn=dsn).dsn)
        say(f"the store is cell {name} now, and all namespaces live in it")
        say("restart the services, one after the other: they read the directory when they start")


@_cells.command("add")
def add(
    name: _Name,
    at: Annotated[
        str,
        typer.Option("--at", metavar="ADDRESS", help="The Postgres of the cell: postgresql://HOST/DATABASE."),
    ],
    schema: Annotated[
        str, typer.Option(metavar="SCHEMA", help="Its schema there, which is made if it is missing.")
    ] = "public",
    dsn: _Dsn = None,
) -> None:
    """Add a cell in an empty schema, with what operators own. Namespaces are given to it with `duly cells assign`."""
    with _administration(dsn) as administration:
        directory = administration.add(name, at, schema)
        _copy(administration, directory, name)
        say(
            f"cell {name} is there, as of version {directory.version} of the directory; no namespace lives in it yet"
        )
        say(f"next: duly cells assign NAMESPACE {name}")


@_cells.command("assign")
def assign(
    namespace: Annotated[
        str, typer.Argument(metavar="NAMESPACE", help="The part of lambdas' names before the slash.")
    ],
    cell: _Name,
    dsn: _Dsn = None,
) -> None:
    """Have a namespace live in a cell, before it is used: namespaces with tasks or lambdas do not move."""
    with _administration(dsn) as administration:
        directory = administration.assign(namespace, cell)
        say(f"namespace {namespace} lives in cell {cell}, as of version {directory.version} of the directory")


@_cells.command("set")
def set_address(
    names: Annotated[
        list[str], typer.Argument(metavar="CELL...", help="All cells of the server that is elsewhere now.")
    ],
    at: Annotated[
        str,
        typer.Option("--at", metavar="ADDRESS", help="Where they are now: postgresql://HOST/DATABASE."),
    ],
    dsn: _Dsn = None,
) -> None:
    """Say where cells are now, after a failover or a restore at another address. Their former place must never come back."""
    with _administration(dsn) as administration:
        directory = administration.set_address(names, at)
        told = f"cell {names[0]} is" if len(names) == 1 else f"cells {', '.join(names)} are"
        say(f"{told} at the new address, as of version {directory.version} of the directory")


@_cells.command("remove")
@_cells.command("delete", hidden=True)
def remove(
    name: _Name,
    dsn: _Dsn = None,
    *,
    is_gone: Annotated[
        bool, typer.Option("--is-gone", help="Its Postgres does not answer, and never will again.")
    ] = False,
) -> None:
    """Take a cell without namespaces out of the directory; its schema stays until you drop it."""
    with _administration(dsn) as administration:
        directory = administration.remove(name, is_gone=is_gone)
        say(
            f"cell {name} is no part of the installation any more, as of version {directory.version} of the directory"
        )


@_cells.command("check")
def check(dsn: _Dsn = None) -> None:
    """Say what is wrong with the cells, each with what helps; exit 1 if anything is."""
    with _administration(dsn) as administration:
        problems = administration.look().problems()
        for problem in problems:
            say(problem)
        if problems:
            raise typer.Exit(_EXIT_FAILED)
        say("all cells answer, and have the same directory")


@_cells.command("sync")
def sync(
    dsn: _Dsn = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CELL",
            help="Whose grants, tokens and settings the others get; after a restore of the default cell another one.",
            show_default="the default cell",
        ),
    ] = None,
) -> None:
    """Write the newest directory, the guards and what operators own to all cells that answer; exit 1 if anything is left."""
    with _administration(dsn) as administration:
        name = administration.source_of_copies(source or "")
        found = administration.sync()
        is_all_copied = True
        for state in found.states:
            if state.copy is not None and not state.away and state.cell.name != name:
                is_all_copied &= _copy(administration, found.directory, state.cell.name, name)
        problems = found.problems()
        for problem in problems:
            say(problem)
        if problems or not is_all_copied:
            raise typer.Exit(_EXIT_FAILED)
        say(f"all cells have version {found.directory.version} of the directory")


def _copy(administration: "Administration", directory: "Directory", name: str, source: str = "") -> bool:
    """Copy, say what was copied, and tell whether that was all."""
    copied = asyncio.run(administration.copy_what_operators_own(directory, name, source))
    if copied.changed:
        told = ", ".join(f"{number} {kind}" for kind, number in copied.changed.items())
        say(f"copied to cell {name}: {told}")
    for refusal in copied.refused:
        say(f"not copied to cell {name}: {refusal}", err=True)
    return not copied.refused


@contextmanager
def _administration(dsn: str | None) -> Iterator["Administration"]:
    from duly_core.cells.administration import Administration
    from duly_core.errors import DulyError, StoreUnavailableError
    from duly_core.postgres.settings import DEFAULT_DSN, StoreSettings, direct

    settings = None
    try:
        settings = direct(StoreSettings.load(dsn=dsn))
        yield Administration(settings)
    except DulyError as error:
        say(f"duly cells: {error}", err=True)
        if isinstance(error, StoreUnavailableError) and settings and settings.dsn == DEFAULT_DSN:
            say("duly cells: this address is the default; give yours with --dsn or DULY_STORE_DSN", err=True)
        raise typer.Exit(exit_code_of(error)) from error
