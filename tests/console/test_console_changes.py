"""Streams that tell open pages of changes: what they tell, how many there may be, and what ends them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import httpx
import pytest

from duly_console.app import console_app
from duly_console.changes.activity import ActivityLooks
from duly_console.changes.sources import tell_of
from duly_console.changes.streams import MOST_OF_ONE, Signal, Streams
from duly_console.changes.subjects import Subject, may_follow, subject_of
from duly_console.errors import PageError
from duly_console.frontend_calls import FrontendCalls, FrontendStubs
from duly_console.http_server import HttpServer
from duly_console.pages import changes
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_console.viewer import Viewer
from duly_core.access import store as access
from duly_core.access.grants import UNRESTRICTED, Access, Grant
from duly_core.access.roles import Role
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.tasks import store as tasks
from duly_wire.enums import EdgeCondition
from duly_wire.ids import new_task_id
from tests.fixtures.console import token_of
from tests.fixtures.graph_states import claim_work, end, write_graph
from tests.fixtures.services import BreakableLine, serve_frontend
from tests.fixtures.waiting import until

ID = "0193b2f0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("/", Subject("all")),
        ("/tasks", Subject("all")),
        ("/dead-letters", Subject("all")),
        ("/lambdas", Subject("all")),
        ("/queues", Subject("all")),
        ("/hosts", Subject("all")),
        (f"/tasks/{ID}", Subject("tasks", ID)),
        (f"/graphs/{ID}", Subject("graphs", ID)),
        ("/settings", None),
        ("/tasks/x", None),
        ("/tasks/------------------------------------", None),
        (f"/tasks/{ID}/cancel", None),
        ("https://elsewhere.example/", None),
        ("", None),
    ],
)
def test_a_page_of_a_task_a_graph_or_all_of_them_can_be_followed(path, subject):
    assert subject_of(path) == subject


def test_what_happens_at_all_is_told_only_to_those_who_may_read_everything():
    some = Viewer("ann", Access("ann", [Grant("ann", Role.OWNER, "mail.*")], ()))
    everybody = Viewer("", UNRESTRICTED)

    assert may_follow(Subject("all"), everybody)
    assert not may_follow(Subject("all"), some)
    assert may_follow(Subject("tasks", ID), some)
    assert not may_follow(None, everybody)


async def test_signals_of_one_kind_become_one_until_they_are_sent():
    with Streams(1).opened("a") as stream:
        for _ in range(3):
            stream.tell(Signal.CHANGED)
        stream.tell(Signal.AWAY)

        assert await stream.next(5) == [Signal.CHANGED, Signal.AWAY]
        assert await stream.next(0) == []


def test_streams_of_a_session_and_of_all_have_a_bound_and_their_places_are_free_again():
    streams = Streams(MOST_OF_ONE + 1)
    opened = [streams.opened("a") for _ in range(MOST_OF_ONE)]
    for each in opened:
        each.__enter__()

    with pytest.raises(PageError) as of_one, streams.opened("a"):
        pass
    with streams.opened("b"), pytest.raises(PageError) as of_all, streams.opened("c"):
        pass
    opened[0].__exit__(None, None, None)
    with streams.opened("a"):
        assert len(streams) == MOST_OF_ONE

    assert (of_one.value.status, of_all.value.status) == (429, 429)
    for each in opened[1:]:
        each.__exit__(None, None, None)
    assert len(streams) == 0


def test_a_session_that_ends_ends_its_streams_only_and_a_console_that_stops_ends_all():
    streams = Streams(10)
    with streams.opened("a") as of_a, streams.opened("b") as of_b:
        streams.end("a")
        assert (of_a.over.is_set(), of_b.over.is_set()) == (True, False)
        streams.close()
        assert of_b.over.is_set()
        with pytest.raises(PageError), streams.opened("a"):
            pass


class Served:
    """A console on a socket, as browsers reach it."""

    def __init__(self, http: httpx.AsyncClient, streams: Streams, stop: asyncio.Event, serving) -> None:
        self.http, self.streams, self.stop, self.serving = http, streams, stop, serving

    @asynccontextmanager
    async def following(self, path: str) -> AsyncIterator["Followed"]:
        headers = {"accept": "text/event-stream", "sec-fetch-site": "same-origin"}
        async with self.http.stream("GET", "/changes", params={"of": path}, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            followed = Followed(answer)
            assert await followed.next() == "begun"
            yield followed


class Followed:
    """A stream as a browser reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> str | None:
        """Return the next signal; None: the stream has ended."""
        async with asyncio.timeout(30):
            async for line in self._lines:
                if line.startswith("event: "):
                    return line.removeprefix("event: ")
        return None

    async def until(self, signal: str) -> None:
        """Read on to a signal; others may come before it."""
        while (found := await self.next()) != signal:
            assert found is not None, "the stream has ended"


@asynccontextmanager
async def served_console(address: str, token: str = "", **settings: object) -> AsyncIterator[Served]:
    channel = open_channel(address, RpcSettings())
    console = ConsoleSettings(listen="127.0.0.1:0", **settings)
    streams = Streams(20)
    cookies = SessionCookies.open("", timedelta(hours=1))
    app = console_app(console, cookies, channel, secure=False, streams=streams)
    server = HttpServer(app, console, RpcSettings(), streams.close)
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(stop))
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        page = await http.get("/sign-in" if token else "/")
        if token:
            csrf = page.text.split('name="csrf" value="')[1].split('"')[0]
            signed = await http.post(
                "/sign-in",
                data={"csrf": csrf, "token": token, "back": "/"},
                headers={"origin": server.url},
            )
            assert signed.status_code == 303
        yield Served(http, streams, stop, serving)
    stop.set()
    await serving
    await channel.close()


@pytest.fixture
async def console(frontend) -> AsyncIterator[Served]:
    async with served_console(frontend.address) as served:
        yield served


async def test_a_page_of_a_task_is_told_of_its_end_and_that_nothing_comes_any_more(
    console, store, task_states
):
    await task_states.register()
    new = await task_states.new()

    async with console.following(f"/tasks/{UUID(bytes=new.task_id)}") as stream:
        await tasks.cancel_tasks(store, [new.task_id])
        await stream.until("changed")
        assert await stream.next() in ("done", None)

    await until(lambda: not len(console.streams))


async def test_a_page_of_a_graph_is_told_of_the_ends_of_its_nodes(console, store, task_states):
    await task_states.register()
    graph = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})

    async with console.following(f"/graphs/{UUID(bytes=graph.new.graph_id)}") as stream:
        await stream.until("changed")  # it follows from now on
        await end(store, await claim_work(store))
        await stream.until("changed")
        await end(store, await claim_work(store))
        await stream.until("changed")
        assert await stream.next() in ("done", None)


async def test_nothing_is_told_of_what_is_not_there(console):
    async with console.following(f"/tasks/{new_task_id()}") as stream:
        assert await stream.next() in ("changed", "done")
    async with console.following(f"/graphs/{new_task_id()}") as stream:
        while (found := await stream.next()) == "changed":
            pass
        assert found == "done"


async def test_pages_of_all_share_one_look(console, store, task_states, monkeypatch):
    await task_states.register()
    async with console.following("/") as first, console.following("/tasks") as second:
        for _ in range(3):
            await task_states.new()
            await end(store, await claim_work(store))
        await asyncio.gather(first.until("changed"), second.until("changed"))

    assert len(console.streams) <= 2
    await until(lambda: not len(console.streams))


async def test_strangers_open_no_stream(console):
    bare = httpx.AsyncClient(base_url=console.http.base_url)
    refused = await bare.get("/changes", params={"of": "/"}, headers={"accept": "text/event-stream"})
    other = await console.http.get("/changes", params={"of": "/"}, headers={"sec-fetch-site": "cross-site"})
    nothing = await console.http.get("/changes", params={"of": "/settings"})
    head = await console.http.head("/changes", params={"of": "/"})
    await bare.aclose()

    assert (refused.status_code, other.status_code, nothing.status_code) == (403, 403, 404)
    assert (head.status_code, len(console.streams)) == (200, 0)


async def test_the_bound_of_a_session_is_an_answer_and_closed_pages_free_their_places(console):
    path = f"/graphs/{new_task_id()}"
    async with console.following("/"), console.following("/"), console.following("/"):
        async with console.following("/") as last:
            refused = await console.http.get("/changes", params={"of": path})
            assert refused.status_code == 429
            await last.answer.aclose()
        await until(lambda: len(console.streams) == MOST_OF_ONE - 1)
        async with console.following("/"):
            pass
    await until(lambda: not len(console.streams))


async def test_a_stream_lives_longer_than_the_times_of_the_server_and_shows_that_it_does(
    frontend, monkeypatch
):
    monkeypatch.setattr("duly_console.http_server._IDLE_SECONDS", 1)
    monkeypatch.setattr(changes, "BEAT", 0.5)
    async with (
        served_console(frontend.address, page_timeout=timedelta(seconds=1)) as console,
        console.following("/") as stream,
    ):
        for _ in range(6):  # three seconds at least
            await stream.until("beat")


async def test_a_stop_does_not_wait_for_streams(frontend):
    async with served_console(frontend.address) as console, console.following("/") as stream:
        console.stop.set()
        assert await stream.next() is None
        async with asyncio.timeout(5):  # rpc.shutdown_grace is longer
            await console.serving


async def test_a_session_that_is_signed_out_gets_no_signal_any_more(guarded):
    async with (
        served_console(guarded.address, token_of("operator")) as console,
        console.following("/") as stream,
    ):
        page = await console.http.get("/")
        csrf = page.text.split('name="csrf" value="')[1].split('"')[0]
        origin = str(console.http.base_url).rstrip("/")
        await console.http.post("/sign-out", data={"csrf": csrf}, headers={"origin": origin})
        while (found := await stream.next()) == "changed":
            pass
        assert found is None


async def test_a_grant_that_is_taken_away_ends_the_stream_with_the_next_sign_of_life(
    guarded, store, monkeypatch
):
    monkeypatch.setattr(changes, "BEAT", 0.2)
    async with (
        served_console(guarded.address, token_of("auditor")) as console,
        console.following("/") as stream,
    ):
        await access.remove_grants(store, [Grant("auditor", Role.AUDITOR, "*")])
        while (found := await stream.next()) in ("beat", "changed"):
            pass
        assert found in (None, "done")


@pytest.fixture
async def stubs(guarded) -> AsyncIterator[FrontendStubs]:
    channel = open_channel(guarded.address, RpcSettings())
    yield FrontendStubs(channel)
    await channel.close()


@pytest.mark.parametrize("kind", ["tasks", "graphs"])
async def test_a_token_that_has_expired_ends_a_stream_and_the_page_may_open_another(stubs, kind):
    with Streams(1).opened("a") as stream:
        await tell_of(Subject(kind, ID), stream, FrontendCalls(stubs, "duly_expired", 30))

        assert stream.over.is_set()
        assert await stream.next(0) == []


async def test_of_those_who_share_a_look_one_whose_token_has_expired_may_open_another_stream(stubs):
    looks, streams = ActivityLooks(every=0.02), Streams(2)
    with (
        streams.opened("a") as expired,
        streams.opened("b") as valid,
        looks.following(expired, FrontendCalls(stubs, "duly_expired", 30)),
        looks.following(valid, FrontendCalls(stubs, token_of("auditor"), 30)),
    ):
        await until(lambda: looks.looks > 2)

        assert (expired.over.is_set(), valid.over.is_set()) == (True, False)
        assert await expired.next(0) == []


async def test_one_who_follows_as_soon_as_the_last_has_left_is_told_too(stubs):
    looks, calls = ActivityLooks(every=0.02), FrontendCalls(stubs, token_of("auditor"), 30)
    with Streams(1).opened("a") as stream:
        with looks.following(stream, calls):
            await until(lambda: looks.looks > 0)
        with looks.following(stream, calls):
            before = looks.looks
            await until(lambda: looks.looks > before)


async def test_a_grant_that_is_taken_away_ends_a_stream_that_always_has_something_to_tell(
    guarded, store, task_states, monkeypatch
):
    monkeypatch.setattr(changes, "BEAT", 0.2)
    await task_states.register()
    task = UUID(bytes=(await task_states.new()).task_id)
    async with (
        served_console(guarded.address, token_of("auditor")) as console,
        console.following(f"/tasks/{task}") as stream,  # its poll waits longer than this test
    ):
        (open_stream,) = console.streams._open
        await access.remove_grants(store, [Grant("auditor", Role.AUDITOR, "*")])
        found = []
        while None not in found and len(found) < 5:
            open_stream.tell(Signal.CHANGED)  # before the last one may be followed by another
            found.append(await stream.next())

        assert found[-1] is None


async def test_those_who_may_read_some_lambdas_follow_no_overview_but_their_tasks(guarded):
    async with served_console(guarded.address, token_of("owner")) as console:
        overview = await console.http.get("/")
        refused = await console.http.get("/changes", params={"of": "/"})
        async with console.following(f"/tasks/{new_task_id()}"):
            pass

    assert "data-follows" not in overview.text
    assert refused.status_code == 404


async def test_a_frontend_that_is_away_is_told_of_once_and_when_it_is_back_the_page_looks(store, task_states):
    await task_states.register()
    async with serve_frontend(store) as frontend:
        host, port = frontend.address.split(":")
        line = BreakableLine(host, int(port))
        await line.restore()
        async with served_console(line.address) as console, console.following("/") as stream:
            await line.cut()
            await stream.until("away")
            await line.restore()
            await stream.until("changed")
        await line.cut()
