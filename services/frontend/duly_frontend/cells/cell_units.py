"""What the router knows of a cell: whether it answers, and how its servicers are called in this process."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from duly_core.access.audit_log import set_concerned
from duly_core.errors import CellFencedError, StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_frontend.cells.named import note_cell
from duly_frontend.cells.services import SERVICES, descriptor_of
from duly_wire import missing_cells

Handler = Callable[[Any, Any], Awaitable[Any]]


def handlers_of(servicers: Sequence[object]) -> Mapping[str, Handler]:
    """Return the methods of servicers, by the path of each on the wire."""
    found: dict[str, Handler] = {}
    for base in SERVICES:
        servicer = next(each for each in servicers if isinstance(each, base))
        service = descriptor_of(base)
        found |= {
            f"/{service.full_name}/{method.name}": getattr(servicer, method.name)
            for method in service.methods
        }
    return found


class CellUnit:
    """One cell, as the router sees it."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[str, Handler],
        reads: Store,
        fenced: Callable[[], object] = lambda: None,
    ) -> None:
        """Make one.

        Args:
            name: of the cell.
            handlers: serve the methods, by path.
            reads: connections for reads by id.
            fenced: called when the cell refuses a write because it moves: the directory will say where it is.
        """
        self.name = name
        self.reads = reads
        self.is_serving = False
        """Whether its store answers, as far as this process knows."""
        self.has_served = False
        """Whether its store has answered since the unit began."""
        self._handlers = handlers
        self._fenced = fenced

    async def set_serving(self, *, serving: bool) -> None:
        """Note whether the store answers."""
        self.is_serving = serving
        self.has_served |= serving

    async def call(self, path: str, request: Any, context: Any) -> Any:
        """Call a method of the cell's servicers. Its answer names the cell.

        Raises:
            StoreUnavailableError: the cell does not answer; names it.
            DulyError: as the method says.
        """
        set_concerned(self.name)
        try:
            answer = await self._handlers[path](request, context)
        except StoreUnavailableError as error:
            if isinstance(error, CellFencedError):
                self._fenced()
            raise CellUnavailableError(self.name, error) from error
        note_cell(answer, self.name)
        return answer


class CellUnavailableError(StoreUnavailableError):
    """A cell does not answer. Calls for namespaces of other cells are served."""

    def __init__(self, cell: str, reason: object) -> None:
        super().__init__(f"cell {cell}: {reason}")
        self.cell = cell
        self.reason = str(reason)


def note_missing(context: Any, cells: Collection[str]) -> None:
    """Tell the caller which cells an answer lacks."""
    context.set_trailing_metadata(((missing_cells.METADATA, ",".join(sorted(cells))),))


def note_late(context: Any, cells: Collection[str]) -> None:
    """Tell the caller which cells get a change when they are back."""
    context.set_trailing_metadata(((missing_cells.LATER, ",".join(sorted(cells))),))
