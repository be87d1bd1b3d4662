"""ExternalScaler: tells KEDA how many workers a pool is to have. Each autoscaler serves it, whether it leads or not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import timedelta

from duly_autoscaler.drivers.keda import KEDA
from duly_core.errors import (
    DulyError,
    InvalidRequestError,
    NotFoundError,
    StoreUnavailableError,
    TooMuchError,
)
from duly_core.pools.rules import NO_POOL_NAME, POOL_NAME
from duly_core.pools.store import DesiredWorkers, desired_workers
from duly_core.postgres.pool import Store
from duly_core.process.outcomes import take_outcome
from duly_core.rpc.stubs import Context
from duly_wire.externalscaler import externalscaler_pb2, externalscaler_pb2_grpc

METRIC = "desired-workers"
_POOL = "pool"
"""Of the trigger's metadata."""
_STORE_TIMEOUT = timedelta(seconds=5)
_FRESH = timedelta(seconds=1)
_MOST_STREAMS = 1_000

Plans = Mapping[str, DesiredWorkers | None]


class PlanReader:
    """Reads the plans of all pools at most once a second, however many ask, and once at a time."""

    def __init__(
        self,
        store: Callable[[], Store | None],
        fresh: timedelta = _FRESH,
        timeout: timedelta = _STORE_TIMEOUT,
    ) -> None:
        """Make one; `store` returns the one that has the plans, None: not now."""
        self._store = store
        self._fresh = fresh
        self._timeout = timeout
        self._known: Plans = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[Plans] | None = None

    async def read(self) -> Plans:
        """Return the plans by pool.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._read_at < self._fresh.total_seconds():
            return self._known
        if self._reading is None or self._reading.done():
            self._reading = loop.create_task(self._read())
            self._reading.add_done_callback(take_outcome)
        return await asyncio.shield(self._reading)

    async def _read(self) -> Plans:
        began = asyncio.get_running_loop().time()
        store = self._store()
        if store is None:
            raise StoreUnavailableError("the default cell does not answer: it has the plans")
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                self._known = await desired_workers(store)
        except TimeoutError:
            raise StoreUnavailableError(
                f"no answer of Postgres within {self._timeout.total_seconds():g} s"
            ) from None
        self._read_at = began
        return self._known

    async def close(self) -> None:
        """Give up what is under way."""
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            with suppress(asyncio.CancelledError, DulyError):
                await self._reading


class ExternalScalerServicer(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Answers from the last plan. One that is older than `most_age` is refused, and KEDA keeps to what it has."""

    def __init__(
        self, plans: PlanReader, interval: timedelta, most_age: timedelta, stop: asyncio.Event
    ) -> None:
        self._plans = plans
        self._interval = interval
        self._most_age = most_age
        self._stop = stop
        self._streams = 0

    async def IsActive(  # noqa: N802 (the wire's name)
        self, request: externalscaler_pb2.ScaledObjectRef, _context: Context
    ) -> externalscaler_pb2.IsActiveResponse:
        return externalscaler_pb2.IsActiveResponse(result=await self._desired(request) > 0)

    async def StreamIsActive(  # noqa: N802
        self, request: externalscaler_pb2.ScaledObjectRef, _context: Context
    ) -> AsyncIterator[externalscaler_pb2.IsActiveResponse]:
        self._streams += 1
        said: bool | None = None
        try:
            if self._streams > _MOST_STREAMS:
                raise TooMuchError(f"{_MOST_STREAMS:,} streams are open: ask with the trigger type external")
            while not self._stop.is_set():
                is_active = await self._desired(request) > 0
                if is_active is not said:
                    said = is_active
                    yield externalscaler_pb2.IsActiveResponse(result=is_active)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval.total_seconds()):
                        await self._stop.wait()
        finally:
            self._streams -= 1

    async def GetMetricSpec(  # noqa: N802
        self, request: externalscaler_pb2.ScaledObjectRef, _context: Context
    ) -> externalscaler_pb2.GetMetricSpecResponse:
        await self._plan(request)
        spec = externalscaler_pb2.MetricSpec(metricName=METRIC, targetSize=1)
        return externalscaler_pb2.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(  # noqa: N802
        self, request: externalscaler_pb2.GetMetricsRequest, _context: Context
    ) -> externalscaler_pb2.GetMetricsResponse:
        desired = await self._desired(request.scaledObjectRef)
        value = externalscaler_pb2.MetricValue(metricName=METRIC, metricValue=desired)
        return externalscaler_pb2.GetMetricsResponse(metricValues=[value])

    async def _desired(self, asked: externalscaler_pb2.ScaledObjectRef) -> int:
        name, plan = await self._plan(asked)
        if plan is None:
            raise StoreUnavailableError(
                f"nobody has planned for the pool {name} yet: does an autoscaler lead? (duly autoscaler explain)"
            )
        if plan.age > self._most_age:
            raise StoreUnavailableError(
                f"the plan of the pool {name} is {plan.age.total_seconds():.0f} s old: does an autoscaler lead? "
                "(duly autoscaler explain)"
            )
        return plan.number

    async def _plan(self, asked: externalscaler_pb2.ScaledObjectRef) -> tuple[str, DesiredWorkers | None]:
        name = asked.scalerMetadata.get(_POOL, "")
        if POOL_NAME.fullmatch(name) is None:
            raise InvalidRequestError(f"scalerMetadata.{_POOL}", NO_POOL_NAME)
        plans = await self._plans.read()
        if name not in plans:
            raise NotFoundError(
                f"there is no pool {name}: declare it (duly pools set {name} --driver {KEDA})"
            )
        return name, plans[name]
