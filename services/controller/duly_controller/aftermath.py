"""What is done for the tasks of an Executor that died: those that had started crashed, the others are handed back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.v1 import hsc_pb2, task_pb2
from duly_controller import events
from duly_controller.executors import Executor
from duly_controller.remains import prove_dead
from duly_core.rpc.retry import until_definite

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

_MOST_CLAIMS = 1_000
"""In one call; the HSC takes no more than a few thousand."""


class Aftermath:
    """Reports at once, so that nobody has to wait for a heartbeat timeout. Stale claims are refused by their tokens."""

    def __init__(self, hsc: "HscServiceAsyncStub", lease: timedelta, call_timeout: timedelta) -> None:
        """Args: `lease` is how long reporting makes sense: after that the store has taken the tasks back by itself."""
        self._hsc = hsc
        self._lease = lease
        self._call_timeout = call_timeout
        self._running: set[asyncio.Task[None]] = set()

    def deal_with(self, executor: Executor, attached: int) -> None:
        """Called when the process has ended; `attached` Executors are left."""
        task = asyncio.get_running_loop().create_task(self._report(executor, attached))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _report(self, executor: Executor, attached: int) -> None:
        try:
            async with asyncio.timeout(self._lease.total_seconds()):
                await prove_dead(executor)
                # only now: until the last of them was dead, its callback processes may have started more
                started = executor.started_tasks()
                held = [
                    hsc_pb2.Claim(task_id=task_id, token=token) for task_id, token in executor.held.items()
                ]
                crashed = [claim for claim in held if claim.task_id in started]
                unstarted = [claim for claim in held if claim.task_id not in started]
                events.executor_ended(executor.executor_id, len(crashed), len(unstarted), attached)
                for some in _batches(crashed):
                    await self._call(self._hsc.SetResults, _crashes(some))
                for some in _batches(unstarted):
                    await self._call(self._hsc.Release, hsc_pb2.ReleaseRequest(claims=some))
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            events.unreported(executor.executor_id, len(executor.held), str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 (nobody waits for this task: it would be lost without a word)
            events.aftermath_failed(executor.executor_id, len(executor.held), error)

    async def _call(self, method: Callable[..., Awaitable[object]], request: object) -> None:
        await until_definite(
            lambda timeout: method(request, timeout=timeout),
            within=self._lease,
            attempt_timeout=self._call_timeout,
        )

    async def finish(self, within: timedelta) -> None:
        """Wait for the reports that are under way; the leases of what is not reported by then run out."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=within.total_seconds())


def _batches(claims: list[hsc_pb2.Claim]) -> Iterator[list[hsc_pb2.Claim]]:
    return (claims[start : start + _MOST_CLAIMS] for start in range(0, len(claims), _MOST_CLAIMS))


def _crashes(claims: Sequence[hsc_pb2.Claim]) -> hsc_pb2.SetResultsRequest:
    return hsc_pb2.SetResultsRequest(
        results=[
            hsc_pb2.TaskResult(
                claim=claim,
                outcome=hsc_pb2.OUTCOME_CRASHED,
                failure_kind=task_pb2.FAILURE_KIND_CRASH,
                failure_message="the Executor's process died",
            )
            for claim in claims
        ]
    )
