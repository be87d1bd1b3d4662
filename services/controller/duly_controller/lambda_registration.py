"""Brings the lambdas that Executors declare to the registry; a Frontend, or a lambda's cell, that is away is tried until it is there."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly_controller.events import log
from duly_core.process.loop import backoff
from duly_core.rpc.retry import TRANSIENT, describe_status
from duly_wire.v1 import registry_pb2, task_pb2

if TYPE_CHECKING:
    from duly_wire.v1.registry_pb2_grpc import RegistryServiceAsyncStub

_AT_A_TIME = 1_000
"""Lambdas; the registry takes no more in one call."""
_TABLES_AT_A_TIME = 1_000
"""Time tables of one call, which is one transaction; those of one lambda are not divided."""
_BYTES_AT_A_TIME = 1024 * 1024

_MOST_LOGGED = 20
"""Warnings of one call."""

_PATIENCE = timedelta(seconds=2)
"""How long an Executor that attaches waits for the registry's word on its lambdas."""

_AWAY_AGAIN = timedelta(seconds=5)


class LambdaRegistration:
    """Answers what is wrong with a declaration, if the registry says so soon; else goes on trying by itself."""

    def __init__(
        self,
        registry: "RegistryServiceAsyncStub",
        call_timeout: timedelta,
        away_again: timedelta = _AWAY_AGAIN,
    ) -> None:
        """Make one; after `away_again`, lambdas of a cell that does not answer are registered again."""
        self._away_again = away_again
        self._registry = registry
        self._call_timeout = call_timeout
        self._trying: set[asyncio.Task[list[str]]] = set()

    async def register(self, lambdas: Sequence[registry_pb2.Lambda]) -> list[str]:
        """Register; the problems found, none if all is well or the registry is not there yet."""
        task = asyncio.get_running_loop().create_task(self._until_answered(list(lambdas)))
        self._trying.add(task)
        task.add_done_callback(self._trying.discard)
        done, _ = await asyncio.wait([task], timeout=_PATIENCE.total_seconds())
        if done:
            return task.result()
        task.add_done_callback(_tell_late_problems)
        return []

    async def _until_answered(self, lambdas: list[registry_pb2.Lambda]) -> list[str]:
        problems: list[str] = []
        for some in _divided(lambdas):
            problems += await self._register(some)
        return problems

    async def _register(self, lambdas: list[registry_pb2.Lambda]) -> list[str]:
        request = registry_pb2.RegisterLambdasRequest(lambdas=lambdas)
        failures = 0
        while True:
            try:
                response = await self._registry.RegisterLambdas(
                    request,
                    timeout=self._call_timeout.total_seconds(),
                    wait_for_ready=not failures,  # later the call says why there is no connection
                )
            except grpc.aio.AioRpcError as error:
                reason = describe_status(error)
                if error.code() not in TRANSIENT:
                    return [reason]
                failures += 1
                log.warning("lambda registration failed; trying again", reason=reason)
                await asyncio.sleep(backoff(failures).total_seconds())
            else:
                break
        answers = list(zip(lambdas, response.results, strict=True))
        if away := [declared for declared, result in answers if _is_away(result)]:
            reason = next(result.error.message for _, result in answers if _is_away(result))
            log.warning(
                "lambdas of a cell that does not answer are not registered yet; trying again",
                lambdas=len(away),
                reason=reason,
            )
            self._try_later(away)
        warned = [(declared.name, result.warning) for declared, result in answers if result.warning]
        for name, warning in warned[:_MOST_LOGGED]:
            log.warning("lambda declaration has a problem", **{"lambda": name}, problem=warning)
        if len(warned) > _MOST_LOGGED:
            log.warning("more lambda declarations have problems", count=len(warned) - _MOST_LOGGED)
        return [
            f"lambda {declared.name!r}, {result.error.field}: {result.error.message}"
            for declared, result in answers
            if result.HasField("error") and not _is_away(result)
        ]

    def _try_later(self, lambdas: list[registry_pb2.Lambda]) -> None:
        """Go on by itself: the lambdas of other cells are there."""

        async def again() -> list[str]:
            await asyncio.sleep(self._away_again.total_seconds())
            return await self._register(lambdas)

        task = asyncio.get_running_loop().create_task(again())
        self._trying.add(task)
        task.add_done_callback(self._trying.discard)
        task.add_done_callback(_tell_late_problems)

    async def stop(self) -> None:
        """Give up on what was not registered."""
        for task in self._trying:
            task.cancel()
        await asyncio.gather(*self._trying, return_exceptions=True)


def _is_away(result: registry_pb2.RegisterLambdasResult) -> bool:
    """Whether the lambda's cell does not answer: that is no fault of the lambda."""
    return bool(result.error.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE)


def _divided(lambdas: Sequence[registry_pb2.Lambda]) -> Iterator[list[registry_pb2.Lambda]]:
    """Yield as many lambdas as one call takes, in their order."""
    some: list[registry_pb2.Lambda] = []
    tables = size = 0
    for each in lambdas:
        tables += len(each.time_tables)
        size += each.ByteSize()
        if some and (len(some) == _AT_A_TIME or tables > _TABLES_AT_A_TIME or size > _BYTES_AT_A_TIME):
            yield some
            some, tables, size = [], len(each.time_tables), each.ByteSize()
        some.append(each)
    if some:
        yield some


def _tell_late_problems(task: asyncio.Task[list[str]]) -> None:
    """The Executor is at work already: all that is left is to tell the operator."""
    if not task.cancelled() and task.exception() is None and task.result():
        log.error("lambdas refused by the registry", problems="; ".join(task.result()))
