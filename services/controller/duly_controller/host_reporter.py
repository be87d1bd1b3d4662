"""Reports this host to the Frontend again and again: its Executors, their slots and lambdas."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc

from duly_controller.events import log
from duly_controller.executor_registry import AttachedExecutor, ExecutorRegistry
from duly_core.process.identity import host_name
from duly_core.process.loop import wait_for, worth_logging
from duly_core.process.version import duly_version
from duly_core.process.wall_clock import Asked, WallClock
from duly_core.rpc.retry import describe_status
from duly_wire.time_conversion import to_datetime, to_duration, to_timestamp
from duly_wire.v1 import fleet_pb2

if TYPE_CHECKING:
    from duly_wire.v1.fleet_pb2_grpc import FleetServiceAsyncStub

_MOST_EXECUTORS = 256
_MOST_LAMBDAS = 10_000
_LAST_WORD = timedelta(seconds=1)
_WITH_LABELS = timedelta(seconds=2)
"""Between two reports of a host with labels: the first task that requires some of them waits for the answer."""
_EARLIEST = 0.8
"""Of the interval, the rest is random: hosts that started together must not report together."""

_Lambdas = tuple[tuple[str, str], ...]


class HostReporter:
    """People look at what it reports, and nothing waits for it. A Frontend that is away is tried at the next time."""

    def __init__(
        self,
        host_id: str,
        fleet: "FleetServiceAsyncStub",
        executors: ExecutorRegistry,
        queue_backend: str,
        interval: timedelta,
        call_timeout: timedelta,
        take_settings: Callable[[fleet_pb2.HostSettings, float], bool] = lambda *_: False,
        settings_age: Callable[[], timedelta | None] = lambda: None,
        clock: WallClock | None = None,
        take_label_queues: Callable[[Sequence[str]], bool] = lambda _: False,
        pool: str = "",
        drain: Callable[[], None] = lambda: None,
    ) -> None:
        """Make one.

        Args:
            host_id: of this host.
            fleet: the Frontend.
            executors: what is reported.
            queue_backend: of this host.
            interval: between two reports.
            call_timeout: of a report.
            take_settings: given the live settings of hosts with each answer that has them, and when they were asked for; returns
                whether they changed.
            settings_age: tells how old the host's copy of them is; None: there is none.
            clock: of this machine.
            take_label_queues: given the queues of tasks that require labels with each answer, if an Executor has labels; returns
                whether the Executors serve others now.
            pool: whose worker this host is; empty: of none.
            drain: called when the Frontend answers that this host is to end.
        """
        self._pool = pool
        self._drain = drain
        self._zone = ""
        self._take_label_queues = take_label_queues
        self._clock = clock or WallClock()
        self._take_settings = take_settings
        self._settings_age = settings_age
        self._host_id = host_id
        self._fleet = fleet
        self._executors = executors
        self._queue_backend = queue_backend
        self._interval = interval
        self._call_timeout = min(call_timeout, interval).total_seconds()
        self._started_at = datetime.now(UTC)
        self._known_digest = b""
        """Of the lambdas that the Frontend has taken."""
        self._failures = 0
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def begin(self, stop: asyncio.Event, zone: str = "") -> Callable[[], Awaitable[None]]:
        """Report from now on; once `stop` is set, that the host drains. Return what ends this.

        `zone` is where this host is; empty: it has none.
        """
        self._zone = zone
        self._running = asyncio.get_running_loop().create_task(self._run(stop))
        return self._finish

    def executor_attached(self) -> None:
        """Report at once."""
        self._changed.set()

    async def _finish(self) -> None:
        """Report that this host has stopped, once, and no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            try:
                async with asyncio.timeout(_LAST_WORD.total_seconds()):
                    await self._report(draining=True, stopped=True)
            except TimeoutError:
                log.info("stop of this host not reported", reason="no answer in time")

    async def _run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._changed.clear()
            await self._report(draining=False)
            await self._pause(stop)
        while True:
            await self._report(draining=True)
            await asyncio.sleep(self._next())

    async def _pause(self, stop: asyncio.Event) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        changed.add_done_callback(lambda _: woken.set())
        woken = asyncio.Event()
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: woken.set())
        try:
            await wait_for(woken, timedelta(seconds=self._next()))
        finally:
            changed.cancel()
            stopping.cancel()

    def _next(self) -> float:
        has_labels = any(executor.labels for executor in self._executors.all())
        interval = min(self._interval, _WITH_LABELS) if has_labels else self._interval
        return interval.total_seconds() * random.uniform(_EARLIEST, 1)  # noqa: S311 (spreads load)

    async def _report(self, *, draining: bool, stopped: bool = False) -> None:
        try:
            request, sets = self._request(draining=draining, stopped=stopped)
            with_lambdas = request.lambdas_digest != self._known_digest
            if with_lambdas:
                request.lambda_sets.extend(_to_wire(sets))
            asked = self._clock.ask()
            response = await self._fleet.ReportHost(request, timeout=self._call_timeout)
            self._compare(asked, response)
            if response.HasField("settings") and self._take_settings(response.settings, asked.since_boot):
                self._changed.set()  # operators wait to see that this host has them
            if any(each.labels for each in request.executors) and self._take_label_queues(
                response.label_queues
            ):
                self._changed.set()  # the next report tells that this host serves them
            if response.drain and not draining:
                log.info("this host is to end: the autoscaler has no more use for it", pool=self._pool)
                self._drain()
            if response.lambdas_wanted and not with_lambdas:
                request.lambda_sets.extend(_to_wire(sets))
                await self._fleet.ReportHost(request, timeout=self._call_timeout)
        except grpc.aio.AioRpcError as error:
            if self._failed_and_logs():
                log.warning("host report failed", failures=self._failures, reason=describe_status(error))
        except Exception:  # noqa: BLE001 (a reporter that ends would leave a host that works on record as silent)
            if self._failed_and_logs():
                log.exception("host report failed unexpectedly", failures=self._failures)
        else:
            self._failures = 0
            self._known_digest = request.lambdas_digest

    def _compare(self, asked: Asked, response: fleet_pb2.ReportHostResponse) -> None:
        if response.HasField("store_at"):
            was_skewed = self._clock.is_skewed
            self._clock.compare(asked, to_datetime(response.store_at))
            if self._clock.is_skewed and not was_skewed:
                self._changed.set()  # people see it at once

    def _failed_and_logs(self) -> bool:
        """Count a failure; return whether to log it."""
        self._failures += 1
        self._known_digest = b""
        return worth_logging(self._failures)

    def _request(
        self, *, draining: bool, stopped: bool
    ) -> tuple[fleet_pb2.ReportHostRequest, list[_Lambdas]]:
        executors = self._executors.all()[:_MOST_EXECUTORS]
        sets: dict[_Lambdas, int] = {}
        reported = []
        for executor in executors:
            place = sets.setdefault(executor.declared, len(sets))
            reported.append(_executor(executor, place, self._zone))
        bounded = _bounded([*sets])
        request = fleet_pb2.ReportHostRequest(
            host_id=self._host_id,
            name=host_name(),
            version=duly_version(),
            queue_backend=self._queue_backend,
            started_at=to_timestamp(self._started_at),
            interval=to_duration(self._interval),
            draining=draining,
            stopped=stopped,
            executors=() if stopped else reported,
            lambdas_digest=_digest(bounded),
            pool=self._pool,
        )
        if (age := self._settings_age()) is not None:
            request.settings_age.CopyFrom(to_duration(age))
        if self._clock.ahead is not None:
            request.clock_ahead.FromTimedelta(self._clock.ahead)
        return request, bounded


def _executor(executor: AttachedExecutor, lambda_set: int, zone: str) -> fleet_pb2.Executor:
    message = fleet_pb2.Executor(
        executor_id=executor.executor_id,
        pid=executor.pid,
        version=executor.version,
        processes=executor.processes,
        slots=executor.slots,
        busy_slots=executor.busy_slots(),
        lambda_set=lambda_set,
        labels=executor.labels,
        zone=zone,
    )
    if executor.started_at is not None:
        message.started_at.CopyFrom(executor.started_at)
    return message


def _bounded(sets: Sequence[_Lambdas]) -> list[_Lambdas]:
    """Return the sets without what is beyond the bound of a report."""
    left = _MOST_LAMBDAS
    bounded = []
    for each in sets:
        bounded.append(each[:left])
        left -= len(bounded[-1])
    return bounded


def _digest(sets: Sequence[_Lambdas]) -> bytes:
    text = repr([*sets]).encode()
    return hashlib.sha256(text).digest()[:16]


def _to_wire(sets: Sequence[_Lambdas]) -> list[fleet_pb2.LambdaSet]:
    return [
        fleet_pb2.LambdaSet(
            lambdas=[fleet_pb2.HostLambda(name=name, version=version) for name, version in each]
        )
        for each in sets
    ] or [fleet_pb2.LambdaSet()]
