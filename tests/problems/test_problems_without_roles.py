"""The board for callers whose roles cannot be read, because Postgres does not answer: that it does not, and nothing else."""

import asyncio
import gc
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from duly_core.access import cache as access_cache
from duly_core.access import patience
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.methods import ANSWERED_WITHOUT_ROLES
from duly_core.errors import StoreUnavailableError, UnauthenticatedError
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import found
from duly_wire.v1 import access_pb2, access_pb2_grpc, problems_pb2, problems_pb2_grpc
from tests.fixtures.console import token_of
from tests.fixtures.services import serve_frontend

ALL = problems_pb2.ListProblemsRequest()


def shows(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


@pytest.fixture
def board(guarded):
    return problems_pb2_grpc.ProblemServiceStub(guarded.channel)


@asynccontextmanager
async def postgres_stands_still(store):
    """For reads of roles, and of all that the board needs."""
    async with store.connection() as holder, holder.transaction():
        await holder.execute("set local idle_in_transaction_session_timeout = 0")
        await holder.execute("lock table access_version, problem_board in access exclusive mode")
        yield


async def test_a_caller_whose_roles_cannot_be_read_hears_that_the_store_is_away_and_nothing_else(
    board, store, monkeypatch
):
    begun_at = await store_problems.begin(store, "a-machine", timedelta(0))
    late = found(
        Kind.LATE, Severity.WARNING, datetime.now(UTC), "billing.secret", lambdas={"billing.secret": 3}
    )
    assert await store_problems.publish(store, begun_at, [late])
    before = await board.ListProblems(ALL, metadata=shows(token_of("operator")))
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))

    async with postgres_stands_still(store):
        away = await board.ListProblems(ALL, metadata=shows(token_of("operator")))
        named = problems_pb2.ListProblemsRequest(**{"lambda": "billing.secret"})
        of_another = await board.ListProblems(named, metadata=shows(token_of("owner")))
        guessed = await board.ListProblems(ALL, metadata=shows("duly_guessed"))
    after = await board.ListProblems(ALL, metadata=shows(token_of("owner")))

    assert [each.kind for each in before.problems] == [problems_pb2.PROBLEM_KIND_LATE]
    for answer in (away, of_another, guessed):
        (problem,) = answer.problems
        assert problem.kind == problems_pb2.PROBLEM_KIND_STORE_AWAY
        assert problem.text == "Postgres does not answer: the roles of callers cannot be read"
        assert problem.HasField("since_at")
        assert (answer.is_stale, answer.HasField("as_of"), answer.computed_by) == (True, False, "")
        assert "billing" not in str(answer)
    assert list(after.problems) == []


async def test_who_does_not_say_who_it_is_hears_nothing(board, store, monkeypatch):
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))

    async with postgres_stands_still(store):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await board.ListProblems(ALL)

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_no_other_call_is_served_without_roles_and_those_that_wait_together_end_together(
    guarded, store, monkeypatch
):
    access = access_pb2_grpc.AccessServiceStub(guarded.channel)
    targets = problems_pb2_grpc.ProblemServiceStub(guarded.channel)
    known = shows(token_of("operator"))
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))
    asked = []
    read = access_cache.AccessCache._read

    async def count(cache) -> None:
        asked.append(1)
        await read(cache)

    monkeypatch.setattr(access_cache.AccessCache, "_read", count)
    async with postgres_stands_still(store):
        calls = [access.GetAccess(access_pb2.GetAccessRequest(), metadata=known) for _ in range(5)]
        calls.append(
            targets.ListNotificationTargets(problems_pb2.ListNotificationTargetsRequest(), metadata=known)
        )
        codes = [await call.code() for call in calls]

    assert set(codes) == {grpc.StatusCode.UNAVAILABLE}
    assert len(asked) <= 2


async def test_a_token_that_is_revoked_is_refused_once_the_store_is_back(board, store, monkeypatch):
    monkeypatch.setattr(access_cache, "STALE", timedelta(0))
    async with postgres_stands_still(store):
        await board.ListProblems(ALL, metadata=shows("duly_guessed"))

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await board.ListProblems(ALL, metadata=shows("duly_guessed"))

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_jwt_that_cannot_be_checked_soon_is_checked_and_not_told_that_the_store_is_away(
    store, monkeypatch
):
    monkeypatch.setattr(patience, "_PATIENCE", timedelta(0))

    async def check_slowly(_token):
        await asyncio.to_thread(threading.Event().wait, 0.05)
        raise UnauthenticatedError("the issuer has no such key")

    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store), check_slowly)) as served:
        board = problems_pb2_grpc.ProblemServiceStub(served.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await board.ListProblems(ALL, metadata=shows("a.forged.token"))

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_read_of_roles_that_fails_once_nobody_waits_for_it_is_no_error_of_asyncio():
    complaints, reading, may_fail = [], asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: complaints.append(told))

    async def read():
        reading.set()
        await may_fail.wait()
        raise StoreUnavailableError("no answer")

    (path,) = ANSWERED_WITHOUT_ROLES
    caller = asyncio.create_task(patience.read_soon(path, read()))
    await reading.wait()
    caller.cancel()
    await asyncio.wait([caller])
    may_fail.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    del caller  # the frames of its failure know what it waited for
    gc.collect()

    assert complaints == []
