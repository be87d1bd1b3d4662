"""Simulated hosts: each has a connection of its own to an HSC, claims tasks as a host does, and ends them at once."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import cycle
from types import TracebackType
from typing import Any, Self

from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import Received
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs.receiver import SqsReceiver
from duly_core.rpc.channel import open_channel
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_core.tasks.claim_tokens import new_prefix
from duly_wire.enums import Priority
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2

SLOTS = 8
_POLL = timedelta(seconds=20)
"""As Executors' `poll_timeout`."""
_CALL = 40.0
_MESSAGES = 10
_RECEIVE = timedelta(seconds=1)
"""Short: moto carries a poll on whose caller is gone, and what that receives stays hidden from the next one."""


class Host:
    """One connection to an HSC."""

    def __init__(self, hsc_address: str, number: int, lambda_name: str, hosts: "Hosts") -> None:
        self._channel = open_channel(hsc_address, RpcSettings())
        self._hsc = hsc_stub(self._channel)
        self._calls = HscCallStream(self._hsc)
        self._name = f"host-{number}"
        self._lambda = lambda_name
        self._hosts = hosts

    async def connect(self) -> None:
        """Wait for the connection."""
        await self._channel.channel_ready()

    async def poll(self) -> None:
        """Keep one ClaimWork open, as an Executor with free slots does (`queue.backend = store`)."""
        timeout = timedelta()  # the first answer comes at once, as an Executor's does
        while True:
            request = hsc_pb2.ClaimWorkRequest(
                holder=self._name,
                lambdas=[self._lambda],
                max_tasks=SLOTS,
                timeout=to_duration(timeout),
                token_prefix=new_prefix(),
            )
            answer = await self._calls.ClaimWork(request, timeout=_CALL)
            timeout = _POLL
            if answer.tasks:
                self._hosts.start(self._end([task.claim for task in answer.tasks]))

    async def take(self, message: Received) -> None:
        """Claim the references of a message, as a Controller does (`queue.backend = sqs`)."""
        prefix = new_prefix()
        request = hsc_pb2.ClaimTaskRequest(holder=self._name)
        for number, task_id in enumerate(message.task_ids):
            claim = hsc_pb2.Claim(task_id=task_id, token=prefix + number.to_bytes(2, "big"))
            request.proposals.append(hsc_pb2.ClaimProposal(claim=claim, **{"lambda": self._lambda}))
        response = await self._hsc.ClaimTask(request, timeout=_CALL)
        claimed = [answer.task.claim for answer in response.answers if answer.HasField("task")]
        if claimed:
            await self._end(claimed)

    async def _end(self, claims: Sequence[hsc_pb2.Claim]) -> None:
        """Report success."""
        results = [hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS) for claim in claims]
        request = hsc_pb2.SetResultsRequest(results=results)
        response = await self._calls.SetResults(request, timeout=_CALL)
        self._hosts.ended += sum(verdict == hsc_pb2.RESULT_VERDICT_APPLIED for verdict in response.verdicts)

    async def close(self) -> None:
        """Hang up."""
        await self._calls.close()
        await self._channel.close()


class Hosts:
    """All hosts of one measurement; host number n serves the n-th lambda, and connects to the n-th HSC, in turns."""

    def __init__(self, hscs: Sequence[str], lambdas: Sequence[str], number: int, sqs_endpoint: str) -> None:
        self.ended = 0
        """Tasks whose success was written."""
        self._lambdas = lambdas
        self._sqs_endpoint = sqs_endpoint
        names, addresses = cycle(lambdas), cycle(hscs)
        self._hosts = [Host(next(addresses), n, next(names), self) for n in range(number)]
        self._running: set[asyncio.Task[None]] = set()
        self._receiver: SqsReceiver | None = None
        self._receiving: list[asyncio.Task[None]] = []
        self._is_ending = False
        self._resources = AsyncExitStack()

    @property
    def received(self) -> dict[str, int]:
        """Calls of SQS so far on the hosts' side, by operation."""
        return dict(self._receiver.client.calls) if self._receiver else {}

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this beside the rest; a failure is kept until `check`."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(lambda done: self._running.discard(done) if _is_well(done) else None)

    def check(self) -> None:
        """Raise what failed."""
        for task in (*self._running, *self._receiving):
            if task.done():
                task.result()

    async def __aenter__(self) -> Self:
        for host in self._hosts:  # one by one: hundreds at once time out
            self._resources.push_async_callback(host.close)
            await host.connect()
        if not self._sqs_endpoint:
            for host in self._hosts:
                self.start(host.poll())
            return self
        settings = QueueSettings(backend="sqs", endpoint_url=self._sqs_endpoint)
        self._receiver = await SqsReceiver.open(settings)
        self._resources.push_async_callback(self._receiver.close)
        for number, name in enumerate(self._lambdas):
            hosts = self._hosts[number :: len(self._lambdas)]
            receiving = self._receive(self._receiver, QueueKey(name, Priority.NORMAL), cycle(hosts))
            self._receiving.append(asyncio.ensure_future(receiving))
        return self

    async def _receive(self, receiver: SqsReceiver, queue: QueueKey, hosts: Iterable[Host]) -> None:
        """Share a queue's messages out one by one: moto could not answer a long poll of each host."""
        turns = iter(hosts)
        while not self._is_ending:
            messages = await receiver.receive(queue, _MESSAGES, _RECEIVE)
            if messages:
                self.start(self._take(receiver, [(next(turns), message) for message in messages]))

    async def _take(self, receiver: SqsReceiver, shares: Sequence[tuple[Host, Received]]) -> None:
        await asyncio.gather(*(host.take(message) for host, message in shares))
        await receiver.delete([message for _, message in shares])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        await asyncio.gather(*self._receiving, return_exceptions=True)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._resources.aclose()


def _is_well(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is None
