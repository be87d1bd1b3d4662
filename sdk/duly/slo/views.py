"""How what is promised is kept, as clients see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.transport.message_fields import view
from duly_wire.enums import ProblemSeverity, ServiceLevelIndicator

if TYPE_CHECKING:
    from duly_wire.v1 import inspection_pb2, objectives_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevelSpan:
    """What a time had until now."""

    # Those of more than a day may begin up to an hour earlier, those of more than a week up to a day.
    length: timedelta
    # Runs that began on time, or calls that were accepted; and all of them.
    good: int
    total: int
    # How many times as fast as the objective allows the error budget is spent; None: there was nothing.
    burn_rate: float | None

    @property
    def share(self) -> float | None:
        """The share that was good; None: there was nothing."""
        return self.good / self.total if self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """How one promise is kept."""

    indicator: ServiceLevelIndicator | None
    # Empty: all lambdas together without those that have an objective of their own, or calls.
    lambda_name: str
    # The share that is promised, such as 0.95.
    objective: float
    # Of starts: a run that begins at most so long after it could is on time.
    start_within: timedelta | None
    # 5 and 30 minutes, 1 and 6 hours, 1 and 3 days, without that of the window; then the window.
    spans: tuple[ServiceLevelSpan, ...]
    # The share of the window's error budget that is left; negative: more is spent. None: nothing was counted.
    budget_left: float | None
    # The budget burns so fast that somebody is told; None: it does not.
    alert: ProblemSeverity | None
    # Of the window: the first time of which something was counted; None: nothing was.
    counted_since: datetime | None
    # Of starts: the lambda or prefix whose objective holds; empty: the settings say what is promised.
    objective_of: str = ""
    # Of one lambda: the cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @property
    def window(self) -> ServiceLevelSpan:
        """The time for which the objective holds."""
        return self.spans[-1]

    @classmethod
    def from_proto(cls, level: inspection_pb2.ServiceLevel) -> ServiceLevel:
        """Return the view of what came over the wire."""
        spans = tuple(view(ServiceLevelSpan, each) for each in level.spans)
        return view(cls, level, spans=spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is promised of the starts of a lambda, or of all lambdas with a prefix."""

    # A lambda, or a prefix that ends with *.
    lambda_name: str
    # The share of the runs, such as 0.999.
    share: float
    # A run that begins at most so long after it could is on time.
    start_within: timedelta
    changed_at: datetime
    # After `put_objective`: for how many registered lambdas it holds. None otherwise.
    lambdas: int | None = None
    # After `put_objective` of one that was there: the fields that the call changed. None otherwise.
    changed: tuple[str, ...] | None = None
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @classmethod
    def from_proto(
        cls,
        objective: objectives_pb2.Objective,
        lambdas: int | None = None,
        changed: tuple[str, ...] | None = None,
    ) -> Objective:
        """Return the view of an objective as it came over the wire."""
        return view(cls, objective, lambdas=lambdas, changed=changed)
