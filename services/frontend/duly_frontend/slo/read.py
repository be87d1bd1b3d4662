"""Answers GetServiceLevels."""

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.cache import LambdaCache
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.names import check_lambda_name, unknown_lambda
from duly_core.slo.store import read_levels
from duly_core.trends.store import store_now
from duly_frontend.access.reach import scope_of
from duly_frontend.slo.wire import level_to_wire
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import inspection_pb2


async def get_service_levels(
    store: Store, settings: LiveSloSettings, known: LambdaCache, name: str
) -> inspection_pb2.GetServiceLevelsResponse:
    """Return how each promise is kept, of this lambda or of all that the caller may read.

    Raises:
        InvalidRequestError: there is no such lambda.
        PermissionDeniedError: the caller may not read it.
        StoreUnavailableError: the store does not answer.
    """
    if name:
        check_lambda_name("lambda", name)
        scope_of(Action.READ, name)
        if name not in await known.payload_limits({name}):
            raise InvalidRequestError("lambda", unknown_lambda(name))
    now = await store_now(store)
    levels = await read_levels(store, settings, now, [name] if name else [])
    scope = restriction(Action.READ)
    if name:
        levels = [each for each in levels if each.lambda_name]
    elif scope is not None:
        levels = [each for each in levels if each.lambda_name and scope.covers_all_of(each.lambda_name)]
    return inspection_pb2.GetServiceLevelsResponse(
        at=to_timestamp(now), levels=[level_to_wire(each) for each in levels]
    )
