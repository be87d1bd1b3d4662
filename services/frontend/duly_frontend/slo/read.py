"""Answers GetServiceLevels."""

from collections.abc import Sequence

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.cache import LambdaCache
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.names import check_lambda_name, unknown_lambda
from duly_core.slo.rules import Level, Span
from duly_core.slo.store import read_levels
from duly_core.trends.store import store_now
from duly_frontend.access.reach import scope_of
from duly_wire.enums import ServiceLevelIndicator as Indicator
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import inspection_pb2

MOST_NAMED = 100


async def get_service_levels(
    store: Store, settings: LiveSloSettings, known: LambdaCache, names: Sequence[str]
) -> inspection_pb2.GetServiceLevelsResponse:
    """Return how each promise is kept, of these lambdas or of all that the caller may read.

    Raises:
        InvalidRequestError: there is no such lambda.
        PermissionDeniedError: the caller may not read one of them.
        StoreUnavailableError: the store does not answer.
    """
    for name in names:
        check_lambda_name("lambdas", name)
        scope_of(Action.READ, name)
    registered = await known.payload_limits({*names})
    for name in names:
        if name not in registered:
            raise InvalidRequestError("lambdas", unknown_lambda(name))
    now = await store_now(store)
    levels = await read_levels(store, settings, now, names)
    scope = restriction(Action.READ)
    if names:
        levels = [each for each in levels if each.lambda_name]
    elif scope is not None:
        levels = [each for each in levels if each.lambda_name and scope.covers_all_of(each.lambda_name)]
    return inspection_pb2.GetServiceLevelsResponse(
        at=to_timestamp(now), levels=[_level(each, settings) for each in levels]
    )


def _level(level: Level, settings: LiveSloSettings) -> inspection_pb2.ServiceLevel:
    alert = level.alert()
    said = inspection_pb2.ServiceLevel(
        indicator=int(level.indicator),  # type: ignore[arg-type]
        objective=level.objective,
        spans=[_span(each, level.objective) for each in level.spans],
        budget_left=level.budget_left,
        alert=0 if alert is None else int(alert.severity),  # type: ignore[arg-type]
    )
    setattr(said, "lambda", level.lambda_name)
    if level.indicator is Indicator.STARTS:
        said.start_within.CopyFrom(to_duration(settings.start_within))
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
