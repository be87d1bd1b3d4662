"""Gauges of what is in a store: a process that serves several cells shows one value of all."""

from collections.abc import Callable, Iterable

from prometheus_client import Gauge

from duly_core.process.current_cell import current_cell, on_cell_gone


class GaugeByCell:
    """A gauge that each cell's loops set for their cell."""

    def __init__(self, gauge: Gauge, combine: Callable[[Iterable[float]], float]) -> None:
        """Make one; `combine` makes one value of those of the cells: `sum`, `max` or `min`."""
        self._gauge = gauge
        self._combine = combine
        self._values: dict[tuple[str, ...], dict[str, float]] = {}
        """By the other labels and the cell."""
        on_cell_gone(self._forget)

    def set(self, value: float, *labels: str) -> None:
        """Show the value of the cell that the running task works for, together with those of others."""
        values = self._values.setdefault(labels, {})
        values[current_cell.get()] = value
        self._show(labels, values)

    def _show(self, labels: tuple[str, ...], values: dict[str, float]) -> None:
        (self._gauge.labels(*labels) if labels else self._gauge).set(self._combine(values.values()))

    def _forget(self, cell: str) -> None:
        for labels, values in self._values.items():
            if values.pop(cell, None) is not None and values:
                self._show(labels, values)
