"""The health of a process that serves several cells: it serves as long as one of them answers, and says which do not."""

from typing import Protocol

from prometheus_client import Gauge

_serving = Gauge(
    "duly_cell_serving",
    "1 while a service of this process serves a cell; 0: the cell is away. Only with several cells.",
    ["service", "cell"],
)


class Server(Protocol):
    """Whose health it is."""

    async def set_serving(self, *, serving: bool) -> None:
        """Answer health checks of the whole so from now on."""
        ...

    async def set_cell_serving(self, cell: str, *, serving: bool) -> None:
        """Answer health checks of one cell so from now on."""
        ...


class CellsHealth:
    """Knows which cells serve, and tells the server."""

    def __init__(self, server: Server, service: str) -> None:
        """Make one; `service` is its name in the metric."""
        self._server = server
        self._service = service
        self._serving: dict[str, bool] = {}
        self._told = False

    def of(self, cell: str) -> "CellHealth":
        """Return what takes the health of one cell."""
        return CellHealth(self, cell)

    async def set(self, cell: str, *, serving: bool) -> None:
        """Take the health of one cell, and tell the server."""
        if self._serving.get(cell) is serving:
            return
        self._serving[cell] = serving
        _serving.labels(self._service, cell).set(serving)
        await self._server.set_cell_serving(cell, serving=serving)
        await self._tell()

    async def forget(self, cell: str) -> None:
        """Leave out a cell that is no longer served here."""
        if self._serving.pop(cell, None) is not None:
            _serving.remove(self._service, cell)
            await self._server.set_cell_serving(cell, serving=False)
            await self._tell()

    async def _tell(self) -> None:
        serving = any(self._serving.values())
        if serving is not self._told:
            self._told = serving
            await self._server.set_serving(serving=serving)


class CellHealth:
    """Takes the health of one cell, where a sole store's unit tells its server."""

    def __init__(self, health: CellsHealth, cell: str) -> None:
        self._health = health
        self._cell = cell

    async def set_serving(self, *, serving: bool) -> None:
        """Take it."""
        await self._health.set(self._cell, serving=serving)
