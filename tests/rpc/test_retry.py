"""Calling until the answer is definite."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest
from grpc.aio import Metadata

from duly_core.rpc import retry
from duly_core.rpc.retry import TRANSIENT, until_definite
from tests.fixtures.overload import overload

SECOND = timedelta(seconds=1)
DEFINITE = sorted(set(grpc.StatusCode) - TRANSIENT - {grpc.StatusCode.OK}, key=lambda code: code.name)


def status(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, Metadata(), Metadata(), details=code.name)


class Server:
    """Answers the calls in turn: a status is raised, anything else returned."""

    def __init__(self, *answers: Any) -> None:
        self.timeouts: list[float] = []
        self._answers = iter(answers)

    async def __call__(self, timeout: float) -> Any:
        self.timeouts.append(timeout)
        answer = next(self._answers)
        if isinstance(answer, grpc.StatusCode):
            raise status(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries; how long they are is `backoff`'s matter."""
    short: Callable[..., timedelta] = lambda *_: timedelta(microseconds=1)  # noqa: E731
    monkeypatch.setattr(retry, "backoff", short)


async def test_the_first_answer_is_the_answer() -> None:
    server = Server("yes", "never asked for")

    assert await until_definite(server, within=SECOND, attempt_timeout=SECOND) == "yes"
    assert len(server.timeouts) == 1


@pytest.mark.parametrize("code", sorted(TRANSIENT, key=lambda code: code.name))
async def test_a_status_that_leaves_the_outcome_open_is_asked_again(code: grpc.StatusCode) -> None:
    server = Server(code, code, "yes")

    assert await until_definite(server, within=SECOND, attempt_timeout=SECOND) == "yes"
    assert len(server.timeouts) == 3


@pytest.mark.parametrize("code", DEFINITE)
async def test_a_definite_refusal_is_not_asked_again(code: grpc.StatusCode) -> None:
    server = Server(code, "never asked for")

    with pytest.raises(grpc.aio.AioRpcError, match=code.name):
        await until_definite(server, within=SECOND, attempt_timeout=SECOND)

    assert len(server.timeouts) == 1


async def test_a_caller_may_take_a_transient_status_for_definite() -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    server = Server(code, "never asked for")

    with pytest.raises(grpc.aio.AioRpcError, match=code.name):
        await until_definite(server, within=SECOND, attempt_timeout=SECOND, definite=frozenset({code}))

    assert len(server.timeouts) == 1


async def test_a_call_is_given_the_time_of_an_attempt_and_never_more_than_is_left() -> None:
    server = Server(grpc.StatusCode.UNAVAILABLE, "yes")

    await until_definite(server, within=SECOND, attempt_timeout=SECOND / 4)
    assert server.timeouts == [0.25, 0.25]

    server = Server("yes")
    await until_definite(server, within=SECOND / 10, attempt_timeout=SECOND)
    assert server.timeouts[0] <= 0.1


async def test_when_the_time_is_over_the_last_status_is_the_answer() -> None:
    calls = 0

    async def away(timeout: float) -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        raise status(grpc.StatusCode.UNAVAILABLE)

    with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
        await until_definite(away, within=SECOND / 20, attempt_timeout=SECOND)

    assert calls > 1


async def test_what_is_no_status_is_not_caught() -> None:
    async def broken(timeout: float) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await until_definite(broken, within=SECOND, attempt_timeout=SECOND)


async def test_an_overloaded_server_is_asked_again_when_it_says_though_its_status_is_definite_otherwise() -> (
    None
):
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked_at: list[float] = []

    async def call(_timeout: float) -> str:
        asked_at.append(loop.time() - began)
        if len(asked_at) < 3:
            raise overload(timedelta(milliseconds=100))
        return "yes"

    definite = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED})

    assert await until_definite(call, within=60 * SECOND, attempt_timeout=SECOND, definite=definite) == "yes"
    assert asked_at[1] >= 0.1
    assert asked_at[2] - asked_at[1] >= 0.1


async def test_a_long_wait_that_a_server_asks_for_leaves_time_for_another_try() -> None:
    server = Server(overload(60 * SECOND), "yes")

    assert await until_definite(server, within=SECOND, attempt_timeout=SECOND) == "yes"
