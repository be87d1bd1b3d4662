"""Brings the lambdas that Executors declare to the registry; a Frontend, or a lambda's cell, that is away is tried until it is there."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import grpc

from duly_controller.events import log
from duly_core.lambdas.declarations import is_of_lower_numbers
from duly_core.process.loop import backoff, worth_logging
from duly_core.rpc.retry import TRANSIENT, describe_status
from duly_wire.v1 import registry_pb2, task_pb2

if TYPE_CHECKING:
    from duly_wire.v1.registry_pb2_grpc import RegistryServiceAsyncStub

_AT_A_TIME = 1_000
"""Lambdas; the registry takes no more in one call."""
_TABLES_AT_A_TIME = 1_000
"""Time tables of one call, which is one transaction; those of one lambda are not divided."""
_RESOURCES_AT_A_TIME = 100
"""The registry takes no more in one call."""
_BYTES_AT_A_TIME = 1024 * 1024

_MOST_LOGGED = 20
"""Warnings of one call."""

_PATIENCE = timedelta(seconds=2)
"""How long an Executor that attaches waits for the registry's word on its lambdas."""

_AWAY_AGAIN = timedelta(seconds=5)

_Key: TypeAlias = tuple[str, str]
"""A lambda's name and owner."""
_Answer: TypeAlias = tuple[registry_pb2.Lambda, registry_pb2.RegisterLambdasResult]


class LambdaRegistration:
    """Answers what is wrong with a declaration, if the registry says so soon; else goes on trying by itself.

    Of the declarations of a lambda by the same owner that are not registered yet, only the newest is tried again.
    """

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
        self._newest: dict[_Key, registry_pb2.Lambda] = {}
        """Of what is not answered yet, the newest declaration."""
        self._away: dict[_Key, registry_pb2.Lambda] = {}
        """Those of them whose cell did not answer."""
        self._return: asyncio.Task[None] | None = None
        """Registers them again, while there are any."""

    async def register(self, lambdas: Sequence[registry_pb2.Lambda]) -> list[str]:
        """Register; the problems found, none if all is well or the registry is not there yet."""
        for declared in lambdas:
            before = self._newest.get(_key(declared))
            if before is None or not is_of_lower_numbers(declared.version, before.version):
                self._newest[_key(declared)] = declared
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
            found, away = await self._register(some)
            problems += found
            if away:
                _warn_of_away(away)
            if self._away and (self._return is None or self._return.done()):
                self._return = asyncio.get_running_loop().create_task(self._until_back())
        return problems

    async def _register(
        self, lambdas: list[registry_pb2.Lambda]
    ) -> tuple[list[str], list[registry_pb2.RegisterLambdasResult]]:
        """Register; the problems, and the answers about cells that are away."""
        failures = 0
        while lambdas:
            try:
                response = await self._registry.RegisterLambdas(
                    registry_pb2.RegisterLambdasRequest(lambdas=lambdas),
                    timeout=self._call_timeout.total_seconds(),
                    wait_for_ready=not failures,  # later the call says why there is no connection
                )
            except grpc.aio.AioRpcError as error:
                reason = describe_status(error)
                if error.code() not in TRANSIENT:
                    for declared in lambdas:
                        self._forget(declared)
                    return [reason], []
                failures += 1
                if worth_logging(failures):
                    log.warning("lambda registration failed; trying again", reason=reason, failures=failures)
                await asyncio.sleep(backoff(failures).total_seconds())
                lambdas = [declared for declared in lambdas if self._is_newest(declared)]
            else:
                return self._read(list(zip(lambdas, response.results, strict=True)))
        return [], []

    def _read(self, answers: list[_Answer]) -> tuple[list[str], list[registry_pb2.RegisterLambdasResult]]:
        away = []
        for declared, result in answers:
            if not _is_away(result):
                self._forget(declared)
            else:
                away.append(result)
                if self._is_newest(declared):
                    self._away[_key(declared)] = declared
        warned = [(declared.name, result.warning) for declared, result in answers if result.warning]
        for name, warning in warned[:_MOST_LOGGED]:
            log.warning("lambda declaration has a problem", **{"lambda": name}, problem=warning)
        if len(warned) > _MOST_LOGGED:
            log.warning("more lambda declarations have problems", count=len(warned) - _MOST_LOGGED)
        problems = [
            f"lambda {declared.name!r}, {result.error.field}: {result.error.message}"
            for declared, result in answers
            if result.HasField("error") and not _is_away(result)
        ]
        return problems, away

    def _is_newest(self, declared: registry_pb2.Lambda) -> bool:
        return self._newest.get(_key(declared)) is declared

    def _forget(self, declared: registry_pb2.Lambda) -> None:
        """Try it no more, unless it was declared again since."""
        if self._is_newest(declared):
            del self._newest[_key(declared)]
            self._away.pop(_key(declared), None)

    async def _until_back(self) -> None:
        """Go on by itself: the lambdas of other cells are there."""
        rounds = 0
        while self._away:
            await asyncio.sleep(self._away_again.total_seconds())
            rounds += 1
            try:
                await self._register_away(rounds)
            except Exception:  # noqa: BLE001 (one bad answer must not end what registers all others)
                log.exception("lambda registration failed unexpectedly", rounds=rounds)

    async def _register_away(self, rounds: int) -> None:
        away: list[registry_pb2.RegisterLambdasResult] = []
        for some in _divided(list(self._away.values())):
            problems, still = await self._register([each for each in some if self._is_newest(each)])
            away += still
            if problems:
                _tell_refused(problems)
        if away and worth_logging(rounds + 1):  # the attach has told the first time
            _warn_of_away(away)

    async def stop(self) -> None:
        """Give up on what was not registered."""
        tasks = [*self._trying, *([self._return] if self._return is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _key(declared: registry_pb2.Lambda) -> _Key:
    # which owner a lambda has is for the registry to say
    return declared.name, declared.owner


def _warn_of_away(away: Sequence[registry_pb2.RegisterLambdasResult]) -> None:
    log.warning(
        "lambdas of a cell that does not answer are not registered yet; trying again",
        lambdas=len(away),
        reason=away[0].error.message,
    )


def _tell_refused(problems: Sequence[str]) -> None:
    log.error("lambdas refused by the registry", problems="; ".join(problems))


def _is_away(result: registry_pb2.RegisterLambdasResult) -> bool:
    """Whether the lambda's cell does not answer: that is no fault of the lambda."""
    return bool(result.error.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE)


def _divided(lambdas: Sequence[registry_pb2.Lambda]) -> Iterator[list[registry_pb2.Lambda]]:
    """Yield as many lambdas as one call takes, in their order; of a name, one in each call."""
    some: dict[str, registry_pb2.Lambda] = {}
    tables = resources = size = 0
    for each in lambdas:
        tables += len(each.time_tables)
        resources += len(each.declared_resources)
        size += each.ByteSize()
        if some and (
            len(some) == _AT_A_TIME
            or each.name in some
            or tables > _TABLES_AT_A_TIME
            or resources > _RESOURCES_AT_A_TIME
            or size > _BYTES_AT_A_TIME
        ):
            yield [*some.values()]
            some = {}
            tables, resources, size = len(each.time_tables), len(each.declared_resources), each.ByteSize()
        some[each.name] = each
    if some:
        yield [*some.values()]


def _tell_late_problems(task: asyncio.Task[list[str]]) -> None:
    """The Executor is at work already: all that is left is to tell the operator."""
    if not task.cancelled() and task.exception() is None and task.result():
        _tell_refused(task.result())
