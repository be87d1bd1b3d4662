"""A Frontend that serves, and an HSC and a Store Consumer that work when they are told to: on a store with a stepped clock."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self, cast

from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.events.wait_nodes import is_wait_lambda
from duly_core.gates.cache import GateCache
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context, attachment_stub, event_address_stub
from duly_frontend.live_settings.follower import LiveConfig as FrontendLiveConfig
from duly_frontend.servicers import Servicers
from duly_frontend.settings import FrontendSettings
from duly_frontend.stores import FrontendStores
from duly_frontend.stores import open_stores as open_frontend_stores
from duly_hsc.breaker_counts import BreakerCounts
from duly_hsc.live_config import LiveConfig
from duly_hsc.servicer import HscServicer
from duly_hsc.settings import HscSettings
from duly_hsc.stores import HscStores
from duly_hsc.stores import open_stores as open_hsc_stores
from duly_hsc.wait_nodes import WaitNodes
from duly_hsc.work.matcher import WorkMatcher
from duly_server.stepped.clock import Look, SteppedClock
from duly_server.stepped.rounds import Rounds
from duly_wire.v1 import hsc_pb2

_PREFIX_BYTES = 14


class _InProcess:
    """What an RPC's servicer asks of a call: this one has no deadline, and nobody is asked who they are."""

    def time_remaining(self) -> float | None:
        return None


_PUBLIC_URL = "https://duly.test"
"""With which addresses of events begin: a name that leads nowhere."""
_IN_PROCESS = cast("Context", _InProcess())


@dataclass(frozen=True, slots=True)
class Pools:
    """Connections, which serve one stepped server after another: their statements stay planned."""

    frontend: FrontendStores
    hsc: HscStores
    consumer: Store


@asynccontextmanager
async def open_pools(dsn: str) -> AsyncIterator[Pools]:
    """Open connections to one database."""
    settings = StoreSettings(dsn=dsn)
    async with AsyncExitStack() as stack:
        yield Pools(
            frontend=await stack.enter_async_context(open_frontend_stores(settings, FrontendSettings())),
            hsc=await stack.enter_async_context(open_hsc_stores(settings, HscSettings(), Timing())),
            consumer=await stack.enter_async_context(Store(settings.model_copy(update={"connections": 2}))),
        )


class _Alone:
    """Takes all notifications: there is nobody else in this store who would have to hear of them by a statement."""

    def __init__(self, work: WorkMatcher) -> None:
        self._work = work

    def serves(self, _lambdas: Collection[str]) -> bool:
        return True

    def note_due(self, ahead: timedelta, lambdas: Collection[str]) -> None:
        self._work.note_due(ahead, lambdas)


class SteppedServer:
    """For an `async with`. All of it runs in one event loop, and nothing happens in it by itself."""

    def __init__(self, pools: Pools, clock: SteppedClock, attachments: Path) -> None:
        """Make one; attachments are in the folder `attachments`."""
        self.clock = clock
        self._pools = pools
        self._attachments = AttachmentSettings(store="folder", folder=str(attachments))
        self._closing = AsyncExitStack()
        self.address = ""
        """Of the Frontend."""

    async def __aenter__(self) -> Self:
        pools, notifications, rpc = self._pools, LocalNotifications(), RpcSettings(shutdown_grace=timedelta())
        blob_store = open_blobs(self._attachments)
        blobs = None if blob_store is None else BlobThreads(blob_store)
        if blobs is not None:
            self._closing.callback(blobs.close)
        self._frontend_live = FrontendLiveConfig(
            pools.frontend.reads, FrontendSettings(), TriggerSettings(), timing=Timing()
        )
        self._frontend = Servicers(
            pools.frontend,
            FrontendSettings(public_url=_PUBLIC_URL),
            attachments=self._attachments,
            blobs=blobs,
            timing=Timing(),
            rpc=rpc,
            notifications=notifications,
            live=self._frontend_live.now,
            heartbeat_timeout=self._frontend_live.heartbeat_timeout,
            host_settings=self._frontend_live.of_hosts,
            first_watch_begins_after=timedelta(),
        )
        gates = GateCache(pools.hsc.results)
        counts = BreakerCounts(pools.hsc.results, lambda: gates.breaker_lambdas)
        notifier = Notifier(pools.hsc.results, notifications)
        self._live = LiveConfig(
            pools.hsc.results, TriggerSettings(batching_gap=timedelta()), timing=Timing(), hsc=HscSettings()
        )
        self._hsc = HscServicer(
            pools.hsc,
            HscSettings(),
            self._live.lease_timeouts,
            notifier,
            self._live.now,
            rpc,
            self.clock.seconds,
            gates,
            counts,
            self._live.hsc,
            lambda: (
                False
            ),  # who begins to watch is told of what happens next, at the same instant of the clock
        )
        self._wait_nodes = WaitNodes(pools.hsc.results, self._hsc, asyncio.Event())
        notifications.subscribe(_Alone(self._hsc.work))
        gates.on_change(self._hsc.work.gates_changed)
        self._rounds = Rounds(pools.consumer, self.clock, gates, counts, notifier)
        server = RpcServer("127.0.0.1:0", self._frontend.all, rpc, load=pools.frontend.load.calls)
        self.address = await server.start()
        self._closing.push_async_callback(server.stop)
        await server.set_serving(serving=True)
        channel = open_channel(self.address, rpc)
        self._closing.push_async_callback(channel.close)
        self.attachments = attachment_stub(channel)
        """What answers calls for attachments."""
        self.event_addresses = event_address_stub(channel)
        """What answers calls for addresses of events."""
        return self

    async def __aexit__(self, *_: object) -> None:
        self._frontend.close()
        self._hsc.work.close()
        self._hsc.streams.close()
        await self._closing.aclose()
        await self._hsc.work.finish()

    @property
    def queues(self) -> list[str]:
        """The names of all queues that clients and workers have made; `refresh` reads them."""
        return self._rounds.queues

    async def refresh(self) -> None:
        """Let what was changed since hold now: lambdas, settings, gates."""
        await self._rounds.read()
        await self._live.run_once()
        await self._frontend_live.run_once()

    async def step(self, instant: datetime | None = None, until: datetime | None = None) -> Look:
        """Move the clock to an instant (None: not at all), and do what a Store Consumer has to do then: timeouts, ticks, gates.

        Go on to the next instants `until` a later one, as long as no task is due.

        Returns:
            What is left to do: tasks to claim; and when there is more.
        """
        look = await self.clock.look(instant)
        while True:
            if await self._rounds.settle(look) or (look.tasks and await self._serve_wait_nodes()):
                look = await self.clock.look()
            elif look.tasks or until is None or look.next is None or look.next > until:
                return look
            else:
                look = await self.clock.look(look.next)

    async def _serve_wait_nodes(self) -> bool:
        """Serve the nodes that wait for events; return whether any was due."""
        lambdas = frozenset(name for name in self.queues if is_wait_lambda(name))
        if not lambdas:
            return False
        self._hsc.work.note_due(timedelta(), lambdas)
        return await self._wait_nodes.serve(lambdas, timedelta())

    async def claim(self, holder: str, lambdas: Sequence[str], most: int) -> list[hsc_pb2.ClaimedTask]:
        """Claim up to so many tasks that are due now and may start."""
        self._hsc.work.note_due(timedelta(), lambdas)
        request = hsc_pb2.ClaimWorkRequest(
            holder=holder, lambdas=lambdas, max_tasks=most, token_prefix=os.urandom(_PREFIX_BYTES)
        )
        request.timeout.FromTimedelta(timedelta())
        response = await self._hsc.ClaimWork(request, _IN_PROCESS)
        return [*response.tasks]

    async def report(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        """Write how runs ended."""
        await self._hsc.SetResults(hsc_pb2.SetResultsRequest(results=results), _IN_PROCESS)

    async def beat(self, holder: str, item: hsc_pb2.HeartbeatItem) -> hsc_pb2.HeartbeatVerdict.ValueType:
        """Renew a claim, with what its callback reported."""
        request = hsc_pb2.HeartbeatRequest(items=[item], holder=holder)
        response = await self._hsc.Heartbeat(request, _IN_PROCESS)
        verdict: hsc_pb2.HeartbeatVerdict.ValueType = response.verdicts[0]
        return verdict
