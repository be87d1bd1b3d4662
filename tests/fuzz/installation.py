"""What is fuzzed: Frontend, HSC, Controller and what KEDA asks behind real servers, in this process, on a real store."""

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from unittest.mock import AsyncMock, patch

import grpc
import psycopg
from psycopg.rows import TupleRow

from duly_autoscaler.keda import ExternalScalerServicer, PlanReader
from duly_controller.__main__ import build
from duly_core.access.authorizer import Authorizer, Credentials
from duly_core.access.grants import Access, Grant
from duly_core.access.principal import Principal
from duly_core.attachments.settings import AttachmentSettings
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.pools.lease import NO_FENCE, PlanToWrite, take_lease, write_plans
from duly_core.pools.planner import Memory, Plan
from duly_core.pools.rules import Pool
from duly_core.pools.store import put_pool
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.queues.message import ForeignBodyError, unpack
from duly_core.queues.none import NoQueue
from duly_core.queues.port import Received
from duly_core.queues.settings import QueueSettings
from duly_core.rpc.channel import open_channel
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_core.tasks import polling
from duly_wire.enums import Priority
from tests.fixtures.services import serve_frontend, serve_hsc
from tests.fuzz.generator import Known

LAMBDAS = ["fuzz.one", "fuzz.two"]
POOL = "fuzz-pool"
EXECUTOR = "fuzz-executor"
_MINUTE = timedelta(minutes=1)
_QUEUE = QueueKey(LAMBDAS[0], Priority.NORMAL)
_MOST_WAITING = 1_000
_LOOK_EVERY = timedelta(milliseconds=100)

_OF_FRONTEND = [
    "AttachmentService",
    "FrontendService",
    "InspectionService",
    "LimitService",
    "ObjectiveService",
    "PoolService",
    "ProblemService",
    "OutputService",
    "EventService",
    "WatchService",
    "EventAddressService",
    "RegistryService",
    "SessionService",
    "ExplainService",
    "FleetService",
    "GraphService",
    "SettingsService",
    "TimeTableService",
]

# One half of a task is never there without the other, and dead letters are exactly those that are listed.
_BROKEN = """
select count(*) from task left join task_assoc as assoc using (task_id)
where (task.status is null) <> (assoc.task_id is not null)
union all select count(*) from task_assoc where not exists (select from task where task.task_id = task_assoc.task_id)
union all select count(*) from task left join dead_letter using (task_id)
    where (task.status is not distinct from 'fatal_failure') <> (dead_letter.task_id is not null)
"""


@dataclass
class Installation:
    """The channels by service, and the hands on what is behind them."""

    stores: Mapping[str, Store]
    """By cell; of a sole store one, whose name is empty."""
    channels: dict[str, grpc.aio.Channel]
    known: Known
    controller: asyncio.Task[None]
    messages: "Messages"

    @property
    def is_sole(self) -> bool:
        """Whether there are no cells."""
        return len(self.stores) == 1

    async def crank(self) -> None:
        """What a Store Consumer would do: due tasks become claimable, silent ones are taken up."""
        room = {QueueKey(name, priority): 50 for name in self.known.lambdas for priority in Priority}
        for store in self.stores.values():
            await polling.enqueue(store, room, _MINUTE)
            # with a queue, then without one: what was enqueued is due again
            for queues in (room, None):
                await polling.handle_timeouts(store, queues, _MINUTE, 100)

    def send_body(self, body: str) -> bool:
        """Have the Controller receive a message; False: nothing of it would reach the Controller."""
        try:
            ids = tuple(unpack(body))
        except ForeignBodyError:
            return False
        self.messages.waiting.append(Received(_QUEUE, ids, str(len(ids))))
        return True

    async def check(self) -> None:
        """The invariants of each store hold, and the Controller still serves.

        Raises:
            AssertionError: they do not, or it does not.
        """
        assert not self.controller.done(), "the Controller has ended"
        for cell, store in self.stores.items():
            rows = await ask(store, _BROKEN)
            assert rows == [(0,), (0,), (0,)], f"the store's rows contradict each other: {rows} {cell}"


async def ask(store: Store, query: str) -> list[TupleRow]:
    """Return what a query finds."""
    async with await psycopg.AsyncConnection.connect(store.settings.dsn) as connection:
        return await (await connection.execute(query.encode())).fetchall()


class FixedAuthorizer(Authorizer):
    """Takes every caller for one principal."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        access = Access(grants[0].principal, grants)
        source = AsyncMock(access_of=AsyncMock(return_value=access))
        super().__init__(source)
        self._principal = Principal(access.principal)

    async def identify(self, _credentials: Credentials, _path: str = "") -> Principal:
        """Return the one principal."""
        return self._principal


class Messages(NoQueue):
    """The Controller's end of a queue: what was put here is received, in a hurry and once."""

    def __init__(self) -> None:
        self.waiting: deque[Received] = deque(maxlen=_MOST_WAITING)

    async def receive(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        """Whatever waits, if it is the one queue; [] soon, for others look meanwhile."""
        if queue == _QUEUE and self.waiting:
            return [self.waiting.popleft() for _ in range(min(max_messages, len(self.waiting)))]
        return await super().receive(queue, max_messages, min(wait, _LOOK_EVERY))


@asynccontextmanager
async def _serve_keda(store: Store) -> AsyncIterator[grpc.aio.Channel]:
    """Serve what KEDA asks; one pool has a plan."""
    pool = Pool(name=POOL, lambdas=("fuzz.*",), maximum=9, driver="keda")
    await put_pool(store, POOL, lambda _: pool)
    fence = await take_lease(store, "fuzz", NO_FENCE, _MINUTE)
    plan = Plan(3, ("fuzz",), Memory(desired=3), 3)
    assert fence
    assert await write_plans(store, "fuzz", fence, datetime.now(UTC), [PlanToWrite(POOL, plan)], [])
    stop = asyncio.Event()
    plans = PlanReader(lambda: store)
    day = timedelta(days=1)
    server = RpcServer(
        "127.0.0.1:0", [ExternalScalerServicer(plans, _LOOK_EVERY, day, stop)], RpcSettings.load()
    )
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        yield channel
    stop.set()
    await server.stop()
    await plans.close()


class Service(Protocol):
    """Where a service is."""

    channel: grpc.aio.Channel
    address: str


@asynccontextmanager
async def install(dsn: str, grants: Sequence[Grant] = ()) -> AsyncIterator[Installation]:
    """Start everything on a migrated, empty database; with grants, every caller has these and no others."""
    authorizer = FixedAuthorizer(grants) if grants else None
    with environment() as folder:
        attachments = AttachmentSettings(store="folder", folder=f"{folder}/attachments")
        async with (
            Store(StoreSettings(dsn=dsn)) as store,
            serve_frontend(store, authorizer=authorizer, attachments=attachments) as frontend,
            serve_hsc(store, authorizer=authorizer) as hsc,
        ):
            await register(store, LAMBDAS)
            async with installed({"": store}, frontend, hsc, known(LAMBDAS), folder) as installation:
                yield installation


async def register(store: Store, names: Sequence[str]) -> None:
    """Register lambdas."""
    await lambdas.register(store, [LambdaPolicy(name, max_attempts=3) for name in names])


def known(names: Sequence[str]) -> Known:
    """What the fuzzer is told at first."""
    return Known(
        lambdas=list(names),
        texts=[EXECUTOR],
        likely={
            "externalscaler.ScaledObjectRef.ScalerMetadataEntry.key": [
                "pool",
                "pool",
                "pool",
                "scalerAddress",
            ],
            "externalscaler.ScaledObjectRef.ScalerMetadataEntry.value": [POOL, POOL, "moon", "A;B", "a" * 64],
        },
        # a wild pid or descriptor would be another process's: what is attached must be ours
        never={
            "duly.v1.AttachExecutorRequest.pid": [os.getpid(), os.getpid(), 0, -1, 2**22 + 1, 2**31 - 1],
            "duly.v1.AttachExecutorRequest.board_fd": [0, -1, 2**31 - 1],
            "duly.v1.AttachExecutorRequest.journal_fd": [0, -1, 2**31 - 1],
        },
    )


@contextmanager
def environment() -> Iterator[Path]:
    """Give a folder; services that begin in the block have the settings of an installation with a queue."""
    with (
        tempfile.TemporaryDirectory(prefix="duly-fuzz-") as folder,
        patch.dict(os.environ, {"DULY_QUEUE_BACKEND": "sqs", "DULY_RPC_SHUTDOWN_GRACE": "100ms"}),
    ):
        assert QueueSettings.load().backend == "sqs"
        yield Path(folder)


@asynccontextmanager
async def installed(
    stores: Mapping[str, Store], frontend: Service, hsc: Service, known: Known, folder: Path
) -> AsyncIterator[Installation]:
    """Start the Controller and what KEDA asks, beside a Frontend and an HSC."""
    messages = Messages()

    async def open_messages(_settings: QueueSettings) -> Messages:
        return messages

    async with _serve_keda(next(iter(stores.values()))) as keda:
        with patch("duly_controller.__main__._open_receiver", open_messages):
            listen = f"unix:{folder}/controller.sock"
            serve = build([], listen=listen, hsc_address=hsc.address, frontend_address=frontend.address)
            stop = asyncio.Event()
            controller = asyncio.create_task(serve(stop))
            channel = open_channel(listen, RpcSettings().for_local_socket())
            channels = {
                **dict.fromkeys(_OF_FRONTEND, frontend.channel),
                "HscService": hsc.channel,
                "ControllerService": channel,
                "ExternalScaler": keda,
            }
            try:
                await asyncio.wait_for(channel.channel_ready(), 10)
                yield Installation(stores, channels, known, controller, messages)
            finally:
                await channel.close()
                stop.set()
                await asyncio.wait_for(controller, 20)
