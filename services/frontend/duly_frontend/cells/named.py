"""What callers are told of cells: which one rows are of, and which ones there are. No I/O."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import cache, wraps
from typing import Any

from google.protobuf.descriptor import Descriptor

from duly_core.cells.directory import Directory
from duly_core.errors import DulyError, NotFoundError
from duly_core.limits.store import namespace_of_resource
from duly_frontend.cells.services import SERVICES, descriptor_of
from duly_wire.v1 import limits_pb2

_CELL, _CELLS, _NAMES = "cell", "cells", "cell_names"


class UnknownCellError(NotFoundError):
    """A call names a cell that is not in the directory."""

    resource_type = "cell"

    def __init__(self, cell: str, cells: Collection[str]) -> None:
        super().__init__(f"there is no cell {cell!r}: this installation has {', '.join(sorted(cells))}")


class NoCellsError(DulyError):
    """A call names a cell, and the installation is a sole store."""

    def __init__(self) -> None:
        super().__init__(
            "cell: this installation has no cells; leave it out, or see `duly cells init` to have some"
        )


def may_name_a_cell(request: Descriptor) -> bool:
    """Return whether a request has a field for the cell that it is of."""
    return _CELL in request.fields_by_name


def note_cell(answer: Any, cell: str) -> None:
    """Write the name of a cell into all that an answer of it has; empty: take it out."""
    for path, field in _places(answer.DESCRIPTOR):
        for message in _reached(answer, path):
            if field == _CELL:
                message.cell = cell
            else:
                message.cells[:] = [cell] if cell else []


def note_names(answer: Any, cells: Collection[str]) -> None:
    """Write which cells there are into an answer that has a field for it."""
    if _NAMES in answer.DESCRIPTOR.fields_by_name:
        answer.cell_names[:] = sorted(cells)


def note_limits(answer: Any, directory: Directory) -> None:
    """Write into an answer about resources the cells of each: those whose tasks may take units, not those that have a copy."""
    named: list[tuple[str, Any]] = []
    if isinstance(answer, limits_pb2.ListResourcesResponse):
        named = [(each.limit.name, each) for each in answer.resources]
    elif isinstance(answer, limits_pb2.PutResourceResponse):
        named = [(each.limit.name, each) for each in answer.results]
    for name, message in named:
        namespace = namespace_of_resource(name)
        cells = sorted(directory.cells) if namespace is None else [directory.cell_of(namespace)]
        message.cells[:] = cells if name else []


@cache
def _places(answer: Descriptor) -> Sequence[tuple[tuple[str, ...], str]]:
    """Return the paths to messages with a cell, each with the name of the field that has it."""
    found: list[tuple[tuple[str, ...], str]] = []

    def look(message: Descriptor, path: tuple[str, ...], above: frozenset[str]) -> None:
        for field in message.fields:
            if field.message_type is None:
                if field.name == _CELL or (field.name == _CELLS and field.is_repeated):
                    found.append((path, field.name))
            elif field.message_type.full_name not in above:
                look(field.message_type, (*path, field.name), above | {field.message_type.full_name})

    look(answer, (), frozenset({answer.full_name}))
    return tuple(found)


def _reached(message: Any, path: Sequence[str]) -> list[Any]:
    """Return the messages at the end of a path; one that is not set is not made."""
    reached = [message]
    for name in path:
        below: list[Any] = []
        for each in reached:
            if each.DESCRIPTOR.fields_by_name[name].is_repeated:
                below.extend(getattr(each, name))
            elif each.HasField(name):
                below.append(getattr(each, name))
        reached = below
    return reached


def refuse_cells(servicers: Sequence[object]) -> None:
    """Let servicers refuse calls that name a cell: theirs is a sole store, or the router took the name out."""
    for base in SERVICES:
        servicer = next(each for each in servicers if isinstance(each, base))
        for method in descriptor_of(base).methods:
            if may_name_a_cell(method.input_type):
                setattr(servicer, method.name, _without_cell(getattr(servicer, method.name)))


def _without_cell(serve: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    @wraps(serve)
    async def checked(request: Any, context: Any) -> Any:
        if request.cell:
            raise NoCellsError
        return await serve(request, context)

    return checked
