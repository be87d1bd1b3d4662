"""Addresses of one use that a callback makes: under its claim, at once, and one answer for a task and key however often it runs."""

import asyncio
import hashlib
import uuid

import grpc
import pytest

import duly
import duly.testing
from duly.errors import InvalidTaskError
from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.event_addresses import store as addresses
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.enums import Outcome
from duly_wire.v1 import event_addresses_pb2, event_addresses_pb2_grpc, hsc_pb2, task_pb2
from tests.console.test_console_event_answers import kept
from tests.fixtures.services import serve_frontend
from tests.search.test_search_plans import rows_read

KEY = "order-7/approved"


class Frontend:
    """Asks one as the Executor of a worker does."""

    def __init__(self, channel, principal=""):
        self._stub = event_addresses_pb2_grpc.EventAddressServiceStub(channel)
        self._metadata = [("authorization", f"Bearer duly_{principal}_secret")] if principal else []

    async def make(self, task, *keys, namespace="", **other):
        asked = [event_addresses_pb2.NewEventAddress(key=key, namespace=namespace) for key in keys or (KEY,)]
        of_task = {"task_id": str(uuid.UUID(bytes=task.task_id)), "claim_token": task.token, **other}
        request = event_addresses_pb2.CreateEventAddressesRequest(addresses=asked, **of_task)
        answer = await self._stub.CreateEventAddresses(request, metadata=self._metadata)
        return [*answer.results]

    async def use(self, made, value="true"):
        request = event_addresses_pb2.UseEventAddressRequest(token=made.token, value=value.encode())
        return (await self._stub.UseEventAddress(request)).state


OPEN = event_addresses_pb2.EVENT_ADDRESS_STATE_OPEN
USED = event_addresses_pb2.EVENT_ADDRESS_STATE_USED


@pytest.fixture
def calls(frontend):
    return Frontend(frontend.channel)


def code(result):
    return task_pb2.ErrorCode.Name(result.error.code).removeprefix("ERROR_CODE_")


async def test_an_address_works_before_the_run_ends_and_says_whose_task_made_it(calls, store, claimed_task):
    (made,) = await calls.make(claimed_task)

    assert await calls.use(made) == OPEN
    assert await kept(store, KEY) == [(True, f"address of task {uuid.UUID(bytes=claimed_task.task_id)}")]


async def test_a_callback_that_runs_again_gets_another_and_the_first_use_ends_those_that_are_there(
    calls, store, claimed_task
):
    first, second, of_another_key = await calls.make(claimed_task, KEY, KEY, "order-7/paid")

    uses = [await calls.use(made, value) for made, value in [(second, "2"), (first, "1"), (second, "2")]]
    (third,) = await calls.make(claimed_task)

    assert uses == [OPEN, USED, USED]
    assert [value for value, _ in await kept(store, KEY)] == [2]
    assert await calls.use(of_another_key) == OPEN
    assert await calls.use(third) == OPEN


async def test_of_many_uses_of_many_addresses_at_a_time_one_is_the_answer(calls, store, claimed_task):
    made = await calls.make(claimed_task, *[KEY] * 10)

    states = await asyncio.gather(*(calls.use(each, "1") for each in made * 2))

    assert sorted(states) == [OPEN] + [USED] * 19
    assert len(await kept(store, KEY)) == 1


async def test_addresses_of_other_tasks_and_of_clients_for_the_key_stay(calls, task_states):
    one, other = await task_states.claimed(), await task_states.claimed()
    (of_one,), (of_other,) = await calls.make(one), await calls.make(other)
    (of_client,) = await calls.make(one, task_id="", claim_token=b"")

    assert [await calls.use(each) for each in (of_one, of_other, of_client)] == [OPEN] * 3


async def test_a_claim_that_is_lost_or_guessed_makes_none(calls, store, task_states):
    claimed = await task_states.claimed()
    (guessed,) = await calls.make(claimed, claim_token=bytes(16))
    await set_results(store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    (ended,) = await calls.make(claimed)

    assert (code(guessed), code(ended)) == ("NOT_FOUND", "NOT_FOUND")
    assert "not held under this token" in ended.error.message


async def test_a_claim_that_is_lost_between_look_and_write_makes_none(store, claimed_task):
    new = addresses.NewAddress(addresses.EventKeyId("", KEY), "", addresses.SHORTEST)
    lost = addresses.Claim(uuid.UUID(bytes=claimed_task.task_id), uuid.uuid4())

    assert await addresses.create(store, [new], None, lost) == [None]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_told_of_an_address_that_was_not_made_is_the_claim_if_it_was_lost_meanwhile(
    calls, store, claimed_task, monkeypatch, is_lost
):
    made = await calls.make(claimed_task, *[KEY] * addresses.MOST_OF_KEY)
    create = addresses.create

    async def lose_and_create(*told):
        await set_results(store, [Result(claimed_task.task_id, claimed_task.token, Outcome.SUCCESS)])
        return await create(*told)

    if is_lost:
        monkeypatch.setattr(addresses, "create", lose_and_create)
    (refused,) = await calls.make(claimed_task)

    assert all(each.token for each in made)
    assert code(refused) == ("NOT_FOUND" if is_lost else "QUOTA_EXCEEDED")


FILL_ADDRESSES = """
insert into event_address (token_hash, key, title, created_at, expires_at, used_at, task_id)
select sha256(number::text::bytea), '/order-7/approved', '', now(), now() + case when number <= 5 then 1 else -1 end * interval '1 day',
    case when number = 5 then now() end, '00000000-0000-0000-0000-000000000001'
from generate_series(1, 5000) as number
"""


@pytest.mark.parametrize("is_of_a_task", [False, True])
async def test_a_use_reads_the_addresses_of_its_key_that_can_be_used(store, is_of_a_task):
    async with store.connection() as connection:
        await connection.set_autocommit(True)
        await connection.execute(FILL_ADDRESSES)
        if not is_of_a_task:
            await connection.execute("update event_address set task_id = null")
        await connection.execute("analyze event_address")
        cursor = await connection.execute(
            f"explain (analyze, timing off, format json) {addresses.ADDRESSES['use_event_address'].sql}".encode(),
            {"hash": hashlib.sha256(b"1").digest()},
        )
        ((plan,),) = await cursor.fetchall()
        cursor = await connection.execute("select count(*) from event_address where used_at is not null")
        ((used,),) = await cursor.fetchall()

    assert rows_read(plan[0]["Plan"]) < 30
    assert used == (5 if is_of_a_task else 2)


async def test_what_is_no_claim_or_no_key_of_its_namespace_is_refused(calls, claimed_task):
    for other in ({"claim_token": b"short"}, {"claim_token": b""}):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await calls.make(claimed_task, **other)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    (no_task,) = await calls.make(claimed_task, task_id="x")
    elsewhere, nothing = (
        await calls.make(claimed_task, namespace="shop"),
        await calls.make(claimed_task, "\0"),
    )

    assert [code(each) for each in (no_task, *elsewhere, *nothing)] == ["INVALID_ARGUMENT"] * 3
    assert "must be ''" in elsewhere[0].error.message


async def test_a_worker_makes_addresses_of_keys_that_its_patterns_cover_and_a_client_needs_no_claim(
    store, task_states, monkeypatch
):
    monkeypatch.setattr(access_cache, "FRESH", access_cache.FRESH * 0)
    for name in ("host", "other", "nobody"):
        digest = hashlib.sha256(f"duly_{name}_secret".encode()).digest()
        await access.add_token(store, digest, name, name)
    task = await task_states.claimed()
    lambda_name = task.lambda_name
    await access.add_grants(
        store, [Grant("host", Role.HOST, lambda_name), Grant("other", Role.HOST, "bill.*")]
    )
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        host = Frontend(served.channel, "host")
        covered, beyond = await host.make(task, lambda_name, "payroll.approved")
        without_claim = await host.make(task, lambda_name, task_id="", claim_token=b"")
        for name in ("other", "nobody"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await Frontend(served.channel, name).make(task, lambda_name)
            assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert await host.use(covered) == OPEN

    assert code(beyond) == code(*without_claim) == "PERMISSION_DENIED"
    assert "duly grants add host client payroll.approved" in beyond.error.message


app = duly.App(owner="tests")


@app.callback("shop/order.ship")
def ship(number: int, ctx: duly.TaskContext) -> bool:
    """Ask by mail, once."""
    key = f"order-{number}/approved"
    if ctx.checkpointed is None:
        sent.append(ctx.event_address(key, title="Ship it?"))
        ctx.checkpoint("mailed")
    return bool(ctx.wait_for(key, type=bool))


sent: list[duly.EventAddress] = []


def test_a_unit_test_sees_the_address_that_the_callback_was_given():
    sent.clear()

    waiting = duly.testing.run(app, "shop/order.ship", 7)
    done = duly.testing.run(app, "shop/order.ship", 7, checkpoint="mailed", events={KEY: True})

    (made,) = waiting.event_addresses
    assert (made.key, made.title, made.url) == (KEY, "Ship it?", sent[0].url)
    assert made.url not in repr(waiting)
    assert (done.result, done.event_addresses) == (True, ())


@pytest.mark.parametrize(
    ("told", "error", "field"),
    [
        ({"key": ""}, ValueError, "key"),
        ({"key": "x" * 256}, ValueError, "key"),
        ({"title": "x" * 2_049}, InvalidTaskError, "title"),
        ({"expires_in": addresses.SHORTEST / 2}, InvalidTaskError, "expires_in"),
        ({"expires_in": addresses.LONGEST * 2}, InvalidTaskError, "expires_in"),
    ],
    ids=["empty", "long", "title", "short", "late"],
)
def test_what_no_address_can_have_is_refused_before_any_call(told, error, field):
    app = duly.App(owner="tests")
    raised = []

    @app.callback("order.ask")
    def ask(_: object, ctx: duly.TaskContext) -> None:
        with pytest.raises(error) as refused:
            ctx.event_address(**{"key": KEY, **told})
        raised.append(str(refused.value))

    assert duly.testing.run(app, "order.ask").event_addresses == ()
    assert field in raised[0]


def test_a_context_without_a_connection_says_so():
    ctx = duly.TaskContext.for_task(hsc_pb2.ClaimedTask())

    with pytest.raises(duly.DulyError, match="no connection"):
        ctx.event_address(KEY)
