"""Several servers behind one channel: what a list of addresses means, and which server a call goes to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any, Self

import grpc
import pytest

import duly
from duly.tasks.blocking_schedule import BlockingSchedule
from duly.transport.caller import Reachability
from duly.transport.channel import open_blocking_channel, open_channel
from duly_core.rpc.channel import open_channel as open_core_channel
from duly_core.rpc.settings import RpcSettings
from duly_wire.credentials import Credentials
from duly_wire.peers import Avoided, Peer, split_addresses, split_peers
from duly_wire.v1 import frontend_pb2
from tests.fixtures.name_server import NameServer, name_server
from tests.fixtures.waiting import until

METHOD = "/test/Method"
READ = "/test/GetTask"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ["a:1"]),
        ("a:1,b:2", ["a:1", "b:2"]),
        ("a:1, [::1]:2", ["a:1", "[::1]:2"]),
        ("ipv4:10.0.0.1:1,10.0.0.2:2", ["ipv4:10.0.0.1:1", "ipv4:10.0.0.2:2"]),
        ("dns:///name:1", ["dns:///name:1"]),
        ("unix:/a,unix:/b", ["unix:/a", "unix:/b"]),
        ("unix:/a,b", ["unix:/a,b"]),
        ("unix:/a,b:1", ["unix:/a", "b:1"]),
    ],
)
def test_a_list_of_addresses_is_split_at_its_commas(text: str, addresses: list[str]) -> None:
    assert split_addresses(text) == addresses


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("east=a:1, west-2=[::1]:2", [Peer("a:1", "east"), Peer("[::1]:2", "west-2")]),
        ("east=a:1,b:2", [Peer("a:1", "east"), Peer("b:2")]),
        ("east=dns:///a:1,west=dns:///b:1", [Peer("dns:///a:1", "east"), Peer("dns:///b:1", "west")]),
        ("east=unix:/a=1,west=unix:/b", [Peer("unix:/a=1", "east"), Peer("unix:/b", "west")]),
        ("unix:/a=b:1", [Peer("unix:/a=b:1")]),
    ],
)
def test_an_address_may_have_its_zone_before_it(text: str, peers: list[Peer]) -> None:
    assert split_peers(text) == peers
    assert duly.AsyncClient(text).address == text


@pytest.mark.parametrize(
    "text", ["a:1,", "a:1,b", "a:1,,b:1", "a:1;b:2", "=a:1", "a b=a:1", "east=west=a:1", "east=a"]
)
def test_a_list_with_something_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(duly.AddressError, match="is not an address"):
        duly.AsyncClient(text)


def test_the_wrong_address_of_a_list_is_named() -> None:
    with pytest.raises(
        duly.AddressError, match=r"^'west' of 'east=a:1,west' is not an address: .*a zone and '='"
    ):
        duly.AsyncClient("east=a:1,west")


class Server:
    """Answers with its own name, or as a test says."""

    def __init__(self, name: str, listen: str = "127.0.0.1:0") -> None:
        self.name = name
        self._listen = listen
        self.refuses: grpc.StatusCode | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.calls = 0
        self.address = ""
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test", {"Method": handler, "GetTask": handler}),)
        )

    async def _answer(self, _request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        self.calls += 1
        await self.open.wait()
        if self.refuses is not None:
            await context.abort(self.refuses, "as the test said")
        return self.name.encode()

    async def __aenter__(self) -> Self:
        host = self._listen.rpartition(":")[0]
        self.address = f"{host}:{self._server.add_insecure_port(self._listen)}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Server(name)) for name in ("first", "second")]


@pytest.fixture
async def channel(servers: list[Server]) -> AsyncIterator[grpc.aio.Channel]:
    made = open_channel(",".join(server.address for server in servers), Credentials())
    yield made
    await made.close()


@pytest.fixture
async def in_first(servers: list[Server]) -> AsyncIterator[grpc.aio.Channel]:
    """A channel of a caller in the zone of the first server."""
    made = open_channel(zoned(servers), Credentials(), zone="east")
    yield made
    await made.close()


def zoned(servers: list[Server]) -> str:
    return ",".join(f"{zone}={each.address}" for zone, each in zip(("east", "west"), servers, strict=True))


async def call(channel: grpc.aio.Channel, timeout: float = 10) -> bytes:
    answer: bytes = await channel.unary_unary(METHOD)(b"", timeout=timeout)
    return answer


async def read(channel: grpc.aio.Channel) -> bytes:
    method = channel.unary_unary(READ, request_serializer=frontend_pb2.GetTaskRequest.SerializeToString)
    answer: bytes = await method(frontend_pb2.GetTaskRequest(), timeout=10)
    return answer


async def test_servers_that_answer_are_called_in_turn(channel: grpc.aio.Channel) -> None:
    answered = set()
    for _ in range(100):  # a connection may take longer than the calls before it
        answered.add(await call(channel))
        if len(answered) == 2:
            break

    assert {await call(channel) for _ in range(2)} == {b"first", b"second"}


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE])
async def test_a_server_that_cannot_serve_is_avoided(
    channel: grpc.aio.Channel, servers: list[Server], code: grpc.StatusCode
) -> None:
    servers[0].refuses = code
    failures = 0
    for _ in range(4):
        try:
            await call(channel)
        except grpc.aio.AioRpcError:
            failures += 1

    assert failures == servers[0].calls <= 1


async def test_a_server_that_is_late_is_avoided(channel: grpc.aio.Channel, servers: list[Server]) -> None:
    servers[0].open.clear()
    failures = 0
    for _ in range(4):
        try:
            await call(channel, timeout=0.6)
        except grpc.aio.AioRpcError:
            failures += 1

    assert failures == servers[0].calls <= 1


async def test_a_read_that_takes_long_is_answered_by_another_server(
    channel: grpc.aio.Channel, servers: list[Server]
) -> None:
    servers[0].open.clear()

    async with asyncio.timeout(30):
        while not servers[0].calls:  # it may be connected later than the other
            assert await read(channel) == b"second"


@pytest.mark.parametrize("place", [0, 1])
async def test_a_read_of_which_one_try_failed_waits_for_the_other(
    channel: grpc.aio.Channel, servers: list[Server], place: int
) -> None:
    for server in servers:
        server.open.clear()
    servers[place].refuses = grpc.StatusCode.UNAVAILABLE
    answer = asyncio.ensure_future(read(channel))
    await until(lambda: all(server.calls for server in servers))

    servers[place].open.set()
    await asyncio.wait([answer], timeout=0.1)
    servers[1 - place].open.set()

    assert await answer == servers[1 - place].name.encode()


async def test_a_refusal_says_nothing_against_a_server(
    channel: grpc.aio.Channel, servers: list[Server]
) -> None:
    for server in servers:
        server.refuses = grpc.StatusCode.INVALID_ARGUMENT
    for _ in range(6):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)

    assert min(server.calls for server in servers) > 0


async def test_when_all_servers_failed_they_are_called_all_the_same(
    channel: grpc.aio.Channel, servers: list[Server]
) -> None:
    for server in servers:
        server.refuses = grpc.StatusCode.UNAVAILABLE
    for _ in range(4):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(channel)

    for server in servers:
        server.refuses = None
    assert await call(channel) in (b"first", b"second")


async def test_a_server_that_ended_is_not_called(channel: grpc.aio.Channel, servers: list[Server]) -> None:
    for _ in range(4):
        await call(channel)
    await servers[0].__aexit__()

    answers = []
    for _ in range(6):
        with suppress(grpc.aio.AioRpcError):  # the first perhaps, which was made before the end was known
            answers.append(await call(channel))

    assert set(answers) == {b"second"}
    assert len(answers) >= 5


async def test_a_name_is_resolved_by_grpc() -> None:
    async with Server("only") as server:
        channel = open_channel(f"dns:///localhost:{server.address.rpartition(':')[2]}", Credentials())
        answer = await call(channel)
        await channel.close()

    assert answer == b"only"


@pytest.fixture
def names() -> Iterator[NameServer]:
    with name_server(cached_for=timedelta()) as server:
        yield server


@pytest.mark.parametrize(
    "open_one",
    [
        partial(open_channel, credentials=Credentials()),
        partial(open_core_channel, settings=RpcSettings()),
    ],
    ids=["of a client", "of a host"],
)
async def test_a_name_whose_servers_were_all_replaced_within_seconds_leads_to_the_new_ones(
    open_one: Callable[[str], grpc.aio.Channel], names: NameServer
) -> None:
    async with Server("old") as old:
        host, _, port = old.address.rpartition(":")
        names.set("pods.test", [host])
        channel = open_one(names.url("pods.test", int(port)))
        before = await call(channel)
        async with Server("new", f"127.0.0.2:{port}"):
            names.set("pods.test", ["127.0.0.2"])
            await old.__aexit__()
            after = await until_answered(channel, timedelta(seconds=10))
        async with Server("newest", f"127.0.0.3:{port}"):
            names.set("pods.test", ["127.0.0.3"])
            last = await until_answered(channel, timedelta(seconds=10))
        await channel.close()

    assert (before, after, last) == (b"old", b"new", b"newest")


async def until_answered(channel: grpc.aio.Channel, within: timedelta) -> bytes:
    """Call until there is an answer."""
    async with asyncio.timeout(within.total_seconds()):
        while True:
            with suppress(grpc.aio.AioRpcError):
                return await channel.unary_unary(METHOD)(b"", timeout=10, wait_for_ready=True)


async def test_who_waits_for_readiness_is_served_by_whichever_server_comes_first() -> None:
    async with Server("only") as server:
        channel = open_channel(f"127.0.0.1:1,{server.address}", Credentials())
        answer = await channel.unary_unary(METHOD)(b"", timeout=10, wait_for_ready=True)
        await channel.close()

    assert answer == b"only"


def test_a_pause_grows_with_each_failure_and_is_forgotten_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr("duly_wire.peers.time.monotonic", lambda: now)
    avoided = Avoided()

    def pause_after_a_failure() -> float:
        nonlocal now
        avoided.note_failure("a:1")
        since = now
        while avoided.is_avoided("a:1"):
            now += 0.1
        return now - since

    first, *_, last = [pause_after_a_failure() for _ in range(6)]
    now += 60

    assert first <= 1.1
    assert 5 <= last <= 10.1
    assert pause_after_a_failure() <= 1.1
    assert not avoided.is_avoided("b:1")


async def test_servers_of_the_own_zone_get_all_calls_while_they_serve(
    in_first: grpc.aio.Channel, servers: list[Server]
) -> None:
    answers = {await call(in_first) for _ in range(20)}

    assert answers == {b"first"}
    assert servers[1].calls == 0


async def test_calls_go_to_another_zone_while_the_own_fails_and_come_back(
    in_first: grpc.aio.Channel, servers: list[Server]
) -> None:
    await call(in_first)
    servers[0].refuses = grpc.StatusCode.UNAVAILABLE
    away = []
    for _ in range(6):
        with suppress(grpc.aio.AioRpcError):  # the one that finds out
            away.append(await call(in_first))
    servers[0].refuses = None

    async with asyncio.timeout(20):
        while await call(in_first) != b"first":
            pass

    assert set(away) == {b"second"}
    assert {await call(in_first) for _ in range(10)} == {b"first"}


@pytest.mark.parametrize("zone", ["", "north"])
async def test_where_no_server_is_of_the_own_zone_all_are_called_in_turn(
    servers: list[Server], zone: str
) -> None:
    channel = open_channel(zoned(servers), Credentials(), zone=zone)
    answered = set()
    async with asyncio.timeout(20):
        while len(answered) < 2:
            answered.add(await call(channel))
    await channel.close()

    assert answered == {b"first", b"second"}


def test_the_zone_of_a_client_is_that_of_the_environment_and_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DULY_RPC_ZONE", "eu-west-1a")

    assert duly.AsyncClient().zone == "eu-west-1a"
    assert duly.AsyncClient(zone="").zone == ""
    assert signature(duly.Client) == signature(duly.AsyncClient)
    with pytest.raises(duly.AddressError, match="'eu/west' is not the name of a zone"):
        duly.AsyncClient(zone="eu/west")


def test_a_blocking_schedule_uses_its_own_zone_and_goes_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("duly.tasks.blocking_schedule.time.monotonic", lambda: now)
    monkeypatch.setattr("duly_wire.peers.time.monotonic", lambda: now)
    called: list[str] = []

    def open_and_note(address: str, *arguments: Any, **named: Any) -> grpc.Channel:
        called.append(address)
        return open_blocking_channel(address, *arguments, **named)

    monkeypatch.setattr("duly.tasks.blocking_schedule.open_blocking_channel", open_and_note)
    schedule = BlockingSchedule(
        "east=127.0.0.1:1,west=127.0.0.1:2", Credentials(), Reachability(None), "west"
    )

    def schedule_after(seconds: float) -> None:
        nonlocal now
        now += seconds
        schedule.schedule(frontend_pb2.NewTask(), 0.1)  # nobody listens: after each failure the other comes

    for pause in (0, 0, 70, 0):
        schedule_after(pause)
    schedule.close()

    assert called == ["127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"]
