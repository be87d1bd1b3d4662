"""Bounds the series of metrics with the label `lambda`: the lambdas used most have series of their own, the others share one.

Names come from the registry, which has no bound. Prometheus keeps each series in memory, so their number needs one.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from duly_core.process.current_cell import current_cell, on_cell_gone

OTHER = "other"
"""The label of all lambdas without series of their own. A lambda of this name shares it."""

DEFAULT_MOST = 200
_LOOK_EVERY = 50
"""Uses of other lambdas, for each name of its own, between two comparisons: they sort all names."""
_CLEARLY = 2
"""A lambda gets the place of another if it was used this many times as often: places must not move back and forth."""
_FEW = 10

Labelled = TypeVar("Labelled", Counter, Gauge, Histogram)


class NamedLambdas:
    """Decides which lambdas are named. A lambda keeps its name until another is used much more."""

    def __init__(self, most: int = DEFAULT_MOST) -> None:
        self._uses: dict[str, int] = {}
        self._named: set[str] = set()
        self._unnamed_uses = 0
        self._forget: list[Callable[[str], None]] = []
        self.most = most

    def limit(self, most: int) -> None:
        """Name at most so many from now on; for the start of a process."""
        self.most = most

    def on_forget(self, forget: Callable[[str], None]) -> None:
        """Call `forget` with each lambda that loses its name."""
        self._forget.append(forget)

    def label(self, name: str, uses: int = 1) -> str:
        """Count so many uses; return the value of the label."""
        self._uses[name] = self._uses.get(name, 0) + uses
        if name in self._named:
            return name
        if len(self._named) < self.most:
            self._named.add(name)
            return name
        self._unnamed_uses += uses
        if self._unnamed_uses >= _LOOK_EVERY * self.most:
            self._unnamed_uses = 0
            self._compare()
        return name if name in self._named else OTHER

    def _compare(self) -> None:
        """Name the lambdas that were used clearly more than some of the named ones."""
        uses = self._uses
        rising = sorted(uses.keys() - self._named, key=uses.__getitem__, reverse=True)
        falling = sorted(self._named, key=uses.__getitem__)
        for new, old in zip(rising, falling, strict=False):
            if uses[new] <= _CLEARLY * uses[old] + _FEW:
                break
            self._named.remove(old)
            self._named.add(new)
            for forget in self._forget:
                forget(old)
        # what was used long ago counts less and less
        self._uses = {name: count // 2 for name, count in uses.items() if count > 1 or name in self._named}


named_lambdas = NamedLambdas()
"""Those of this process."""


class ByLambda(Generic[Labelled]):
    """A metric whose first label is `lambda`."""

    def __init__(self, metric: Labelled, named: NamedLambdas = named_lambdas) -> None:
        self._metric: Labelled = metric
        self._named = named
        self._children: dict[str, dict[tuple[str, ...], Labelled]] = {}
        named.on_forget(self._remove)

    def labels(self, name: str, *others: str, uses: int = 1) -> Labelled:
        """Return the series of a lambda, or the one that it shares; it is for so many uses."""
        label = self._named.label(name, uses)
        children = self._children.setdefault(label, {})
        found = children.get(others)
        if found is None:
            found = children[others] = self._metric.labels(label, *others)
        return found

    def _remove(self, label: str) -> None:
        for others in self._children.pop(label, {}):
            self._metric.remove(label, *others)


class GaugeByLambda:
    """A gauge that is measured for all lambdas of a store at once. Its first label is `lambda`."""

    def __init__(
        self,
        gauge: Gauge,
        combine: Callable[[Iterable[float]], float] | None,
        named: NamedLambdas = named_lambdas,
    ) -> None:
        """Make one.

        Args:
            gauge: its first label is `lambda`.
            combine: makes one value of those of the lambdas that share a series: `sum` or `max`. None: the series is not shown.
            named: says how many lambdas have series of their own.
        """
        self._gauge = gauge
        self._combine = combine
        self._named = named
        self._shown: set[tuple[str, ...]] = set()
        self._by_cell: dict[str, Mapping[tuple[str, ...], float]] = {}
        on_cell_gone(self._forget)

    def set(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Show these values, by lambda and the other labels, and no others of this cell; the largest keep their names."""
        self._by_cell[current_cell.get()] = values
        self._show()

    def _forget(self, cell: str) -> None:
        if self._by_cell.pop(cell, None):
            self._show()

    def _show(self) -> None:
        values: Mapping[tuple[str, ...], float] = ChainMap(*map(dict, self._by_cell.values()))
        largest: dict[str, float] = {}
        for (name, *_), value in values.items():
            largest[name] = max(value, largest.get(name, value))
        ranked = sorted(largest, key=lambda name: (-largest[name], name))
        own = set(ranked[: self._named.most])
        shown: dict[tuple[str, ...], list[float]] = {}
        for (name, *others), value in values.items():
            shown.setdefault((name if name in own else OTHER, *others), []).append(value)
        if self._combine is None:
            shown = {labels: each for labels, each in shown.items() if labels[0] != OTHER}
        for labels, combined in shown.items():
            self._gauge.labels(*labels).set(combined[0] if self._combine is None else self._combine(combined))
        for labels in self._shown - shown.keys():
            self._gauge.remove(*labels)
        self._shown = set(shown)
