"""Between levels and the wire; makes one answer of those of several cells. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duly_core.slo.rules import Level, Span
from duly_wire.enums import ServiceLevelIndicator as Indicator
from duly_wire.time_conversion import to_datetime, to_duration, to_timedelta, to_timestamp
from duly_wire.v1 import inspection_pb2


def level_to_wire(level: Level) -> inspection_pb2.ServiceLevel:
    """Return a level as people get it."""
    alert = level.alert()
    said = inspection_pb2.ServiceLevel(
        indicator=int(level.indicator),  # type: ignore[arg-type]
        objective=level.objective,
        spans=[_span(each, level.objective) for each in level.spans],
        budget_left=level.budget_left,
        alert=0 if alert is None else int(alert.severity),  # type: ignore[arg-type]
    )
    setattr(said, "lambda", level.lambda_name)
    said.objective_of = level.pattern
    if level.start_within is not None:
        said.start_within.CopyFrom(to_duration(level.start_within))
    if level.first_at is not None:
        said.counted_since.CopyFrom(to_timestamp(level.first_at))
    return said


def _span(span: Span, objective: float) -> inspection_pb2.ServiceLevelSpan:
    return inspection_pb2.ServiceLevelSpan(
        length=to_duration(span.length),
        good=span.good,
        total=span.total,
        burn_rate=span.burn_rate(objective),
    )


def merged(answers: Mapping[str, Any]) -> inspection_pb2.GetServiceLevelsResponse:
    """Return the sums of all cells: what is promised holds for them together."""
    found: dict[tuple[bool, str], list[Any]] = {}
    for answer in answers.values():
        for each in answer.levels:
            is_starts = each.indicator == int(Indicator.STARTS)
            found.setdefault((is_starts, getattr(each, "lambda")), []).append(each)
    total = inspection_pb2.GetServiceLevelsResponse(levels=[_sum(found[key]) for key in sorted(found)])
    total.at.CopyFrom(min((answer.at for answer in answers.values()), key=to_datetime))
    return total


def _sum(levels: Sequence[Any]) -> inspection_pb2.ServiceLevel:
    first = levels[0]
    since = [to_datetime(each.counted_since) for each in levels if each.HasField("counted_since")]
    said = level_to_wire(
        Level(
            Indicator(first.indicator),
            getattr(first, "lambda"),
            first.objective,
            [
                Span(
                    to_timedelta(span.length),
                    _sum_of(levels, span, "good"),
                    _sum_of(levels, span, "total"),
                )
                for span in first.spans
            ],
            min(since, default=None),
            to_timedelta(first.start_within) if first.HasField("start_within") else None,
            first.objective_of,
        )
    )
    if len(levels) == 1 and getattr(first, "lambda"):
        said.cell = first.cell
    return said


def _sum_of(levels: Iterable[Any], span: Any, field: str) -> int:
    return sum(getattr(each, field) for level in levels for each in level.spans if each.length == span.length)
