"""Answers GetTrends."""

from collections.abc import Sequence
from datetime import timedelta

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import PermissionDeniedError
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import read_instant
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.slo.objectives import Objectives
from duly_core.slo.store import list_objectives
from duly_core.trends import store as trends
from duly_core.trends.rules import ALL, on_time, percentile, step_of
from duly_core.trends.store import Point
from duly_frontend.access.reach import scope_of
from duly_frontend.trends.marks import METHODS, marks_of
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import inspection_pb2

_HOUR = timedelta(hours=1)
_LONGEST = timedelta(days=8)
_MINUTE = timedelta(minutes=1)


async def get_trends(
    store: Store, request: inspection_pb2.GetTrendsRequest, slo: LiveSloSettings
) -> inspection_pb2.GetTrendsResponse:
    """Return the points and marks of a time. What is on time, `slo` says, or the lambda's own objective.

    Raises:
        Problem: the time is none, or too long.
        PermissionDeniedError: the caller may not read the lambda, or not all of them.
        StoreUnavailableError: the store does not answer.
    """
    name = getattr(request, "lambda")
    _check_access(name)
    now = await trends.store_now(store)
    until = read_instant("until", request.until) if request.HasField("until") else now
    since = read_instant("since", request.since) if request.HasField("since") else until - _HOUR
    if since >= until:
        raise Problem("since", "must be before until")
    if until - since > _LONGEST:
        raise Problem("since", "must be at most 8 days before until")
    promised = Objectives(slo, await list_objectives(store)).of(name)
    step = step_of(until - since)
    points = await trends.read_points(store, step // _MINUTE, since, until, name)
    if name != ALL:
        together = await trends.read_points(store, step // _MINUTE, since, until)
        points = with_quiet_times(points, together)
    everywhere = restriction(Action.READ) is None
    marks = await trends.read_marks(store, METHODS if everywhere else (), since, until, name)
    return inspection_pb2.GetTrendsResponse(
        at=to_timestamp(now),
        step=to_duration(step),
        points=[_point(each, promised.start_within) for each in points],
        marks=marks_of(marks, name),
        on_time_within=to_duration(promised.start_within),
        objective=promised.share,
    )


def with_quiet_times(points: Sequence[Point], together: Sequence[Point]) -> list[Point]:
    """Return the points of a lambda, and points of nothing for the times that were measured without it."""
    known = {each.at for each in points}
    quiet = [
        Point(each.at, 0, (), 0, 0, 0, is_measured=True, ready=0, held=0, oldest=None, slots=0)
        for each in together
        if each.is_measured and each.at not in known
    ]
    return sorted([*points, *quiet], key=lambda point: point.at)


def _check_access(name: str) -> None:
    if name == ALL:
        if restriction(Action.READ) is not None:
            raise PermissionDeniedError("you may not read all lambdas: name one of yours")
        return
    check_lambda_name("lambda", name)
    scope_of(Action.READ, name)


def _point(found: Point, within: timedelta) -> inspection_pb2.TrendPoint:
    point = inspection_pb2.TrendPoint(
        at=to_timestamp(found.at),
        scheduled=found.scheduled,
        started=found.started,
        started_on_time=on_time(found.lateness, within),
        ended=found.ended,
        dead=found.dead,
        failed_runs=found.failed_runs,
        measured=found.is_measured,
        ready=found.ready,
        held=found.held,
        slots=found.slots,
    )
    for field, share in (("median_lateness", 0.5), ("p95_lateness", 0.95)):
        if (late := percentile(found.lateness, share)) is not None:
            getattr(point, field).CopyFrom(to_duration(late))
    if found.oldest is not None:
        point.oldest_ready.CopyFrom(to_duration(found.oldest))
    return point
