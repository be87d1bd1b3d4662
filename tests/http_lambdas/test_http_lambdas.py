"""An HTTP lambda against a real server: what is posted, and what is refused, whatever a name or a server says."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest
from aiohttp import web

from duly import FailureKind, Outcome, Priority, TaskContext, webhooks
from duly.callbacks.loading import load_app
from duly.callbacks.payload import SentPayload
from duly.callbacks.predecessors import Predecessor
from duly.errors import AppImportError
from duly.http_lambdas.ended_event import ended_event
from duly.testing import TestRun, run
from duly_local.certificates import make_authority, make_certificate
from duly_wire.enums import TaskStatus
from duly_wire.guarded_http import Sender
from duly_wire.ids import new_task_id_text
from duly_wire.v1 import task_pb2
from tests.fixtures import tcp_server
from tests.fixtures.waiting import until

KEY = webhooks.new_key()
LIMIT = 2_000
METADATA = "169.254.169.254"


class Receiver:
    """A server of a lambda's owner, and what it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.connections: set[object] = set()
        self.asked, self.left = asyncio.Event(), asyncio.Event()
        self.port = 0
        self.scheme = "http"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        self.connections.add(request.transport)
        return await getattr(self, request.path.strip("/"))(request)

    async def echo(self, _: web.Request) -> web.Response:
        return web.json_response({"got": json.loads(self.bodies[-1])})

    async def busy(self, _: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "90"}, text="payload of somebody")

    async def redirect(self, _: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://{METADATA}/latest/meta-data"})

    async def large(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * (LIMIT + 1))

    async def endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 1_000)

    async def silent(self, _: web.Request) -> web.Response:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return web.Response()

    async def hangs_up(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def cookie(self, _: web.Request) -> web.Response:
        return web.Response(headers={"Set-Cookie": "session=1"})

    def app(
        self,
        path: str,
        *,
        host: str = "127.0.0.1",
        allow: str = "127.0.0.1/32",
        section: str = "lambdas",
        **network: str,
    ):
        (self.folder / "key").write_text(KEY)
        more = "".join(f'{name} = "{value}"\n' for name, value in network.items())
        (self.folder / "http.toml").write_text(
            f'[keys]\nk = {{ file = "key" }}\n[network]\nallow_plaintext = true\nallow = ["{allow}"]\n{more}'
            f'[{section}."mail.send"]\nurl = "{self.scheme}://{host}:{self.port}/{path}?token=s3cret"\nkeys = ["k"]\n'
            f"result_limit = {LIMIT}\n"
        )
        return load_app("duly.http_lambdas:" + json.dumps({"file": str(self.folder / "http.toml")}))

    async def run(self, path: str, payload: object = None, **said) -> TestRun:
        return await asyncio.to_thread(self._run, self.app(path, **said), payload)

    @staticmethod
    def _run(app, payload: object, times: int = 1, **said) -> TestRun:
        with asyncio.Runner() as runner:
            for _ in range(times):
                attempt = run(app, "mail.send", payload, run_async=runner.run, **said)
            runner.run(app.callbacks["mail.send"].function.__self__.sender.close())
        return attempt


@asynccontextmanager
async def serving(folder: Path, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    made = Receiver(folder)
    made.scheme = "https" if tls else "http"
    app = web.Application()
    app.router.add_post("/{path}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with serving(tmp_path) as made:
        yield made


async def test_a_task_is_posted_signed_and_its_answer_is_the_result(receiver: Receiver) -> None:
    attempt = await receiver.run("echo", {"to": "ann"})

    (request,) = receiver.requests
    delivery = webhooks.verify(request.headers, receiver.bodies[0], {"k": KEY})
    assert (attempt.outcome, attempt.result) == (Outcome.SUCCESS, {"got": {"to": "ann"}})
    assert receiver.bodies == [b'{"to":"ann"}']
    assert (delivery.lambda_name, delivery.attempt) == ("mail.send", 1)
    assert timedelta(seconds=50) < delivery.deadline - datetime.now(UTC) < timedelta(seconds=61)
    assert request.headers["idempotency-key"] == f'"{delivery.task_id}"'
    assert request.content_type == "application/json"


@pytest.mark.parametrize(
    ("payload", "kind", "body"),
    [
        (None, "application/json", b"null"),
        (b"\x00\xff", "application/octet-stream", b"\x00\xff"),
        (b"", "application/octet-stream", b""),
    ],
)
async def test_bytes_and_nothing_are_posted_as_such(receiver: Receiver, payload, kind, body) -> None:
    await receiver.run("cookie", payload)

    assert (receiver.requests[0].content_type, receiver.bodies) == (kind, [body])


async def test_a_connection_that_idles_is_closed_in_time(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_wire.guarded_http._IDLE_SECONDS", 0.05)
    sender = Sender((ip_network("127.0.0.1/32"),), timedelta(seconds=5), "")

    await sender.post(f"http://127.0.0.1:{receiver.port}/cookie", b"1", {}, LIMIT, timedelta(seconds=5))

    (connection,) = receiver.connections
    await until(connection.is_closing)
    await sender.close()


async def test_tasks_share_a_connection_and_nothing_else(receiver: Receiver) -> None:
    await asyncio.to_thread(receiver._run, receiver.app("cookie"), None, times=3)

    assert len(receiver.requests) == 3
    assert len(receiver.connections) == 1
    assert [request.headers.get("cookie") for request in receiver.requests] == [None] * 3


@pytest.mark.parametrize(
    ("path", "outcome", "message"),
    [
        ("busy", Outcome.RETRIABLE_FAILURE, "the receiver answered 503"),
        ("redirect", Outcome.FATAL_FAILURE, f"a redirect to '{METADATA}': Duly follows none"),
        ("large", Outcome.FATAL_FAILURE, "larger than the lambda's result_limit"),
        ("endless", Outcome.FATAL_FAILURE, "larger than the lambda's result_limit"),
        ("hangs_up", Outcome.RETRIABLE_FAILURE, "127.0.0.1: it closed the connection without an answer"),
    ],
)
async def test_what_a_receiver_does_becomes_an_outcome(
    receiver: Receiver, path, outcome, message, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = await receiver.run(path, {"card": "4111"})

    assert attempt.outcome is outcome
    assert message in attempt.failure_message
    assert attempt.retry_after == (timedelta(seconds=90) if path == "busy" else None)
    assert len(receiver.requests) == 1
    for secret in ("s3cret", "4111", "payload of somebody", KEY):
        assert secret not in attempt.failure_message + attempt.traceback + caplog.text


async def test_a_name_of_this_machine_is_not_connected_to(receiver: Receiver) -> None:
    attempt = await receiver.run("echo", host="localhost", allow="10.0.0.0/8")

    assert attempt.outcome is Outcome.FATAL_FAILURE
    assert "localhost leads to an address that is not public" in attempt.failure_message
    assert receiver.requests == []


@pytest.mark.parametrize("address", [METADATA, f"::ffff:{METADATA}"])
async def test_a_name_that_leads_to_a_metadata_service_is_refused_each_time_it_does(
    receiver: Receiver, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["127.0.0.1", address])  # it was harmless when somebody looked
    resolve = socket.getaddrinfo

    def rebinding(host, port, *args, **kwargs):
        assert host == "rebind.example"
        return resolve(next(answers), port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    first = await receiver.run("echo", host="rebind.example", allow="127.0.0.0/8")
    second = await receiver.run("echo", host="rebind.example", allow="127.0.0.0/8")

    assert first.outcome is Outcome.SUCCESS
    assert second.outcome is Outcome.FATAL_FAILURE
    assert second.failure_message == (
        "rebind.example leads to an address that is not public: allow its network in the file, network.allow"
    )
    assert len(receiver.requests) == 1


async def test_a_metadata_service_is_no_url(receiver: Receiver) -> None:
    with pytest.raises(AppImportError, match="is not a public address"):
        receiver.app("echo", host=METADATA, allow="0.0.0.0/0")


async def test_nobody_there_is_a_failure_that_is_tried_again(receiver: Receiver) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        receiver.port = taken.getsockname()[1]

        attempt = await receiver.run("echo")

    assert attempt.outcome is Outcome.RETRIABLE_FAILURE
    assert attempt.failure_message == "127.0.0.1: no connection: Connection refused"
    assert attempt.failure_kind is FailureKind.CALLBACK


async def test_a_certificate_must_be_of_a_known_authority_and_of_the_host(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_certificate(tmp_path, "receiver", ["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "receiver.pem", tmp_path / "receiver.key")

    async with serving(tmp_path, tls) as receiver:
        known = await receiver.run("echo", ca_file="ca.pem")
        unknown = await receiver.run("echo")
        other_host = await receiver.run("echo", host="localhost", ca_file="ca.pem")

    assert known.outcome is Outcome.SUCCESS
    for refused in (unknown, other_host):
        assert refused.outcome is Outcome.RETRIABLE_FAILURE
        assert "its certificate is not trusted" in refused.failure_message
    assert len(receiver.requests) == 1


async def test_a_webhook_tells_how_the_tasks_before_it_ended(receiver: Receiver) -> None:
    app = receiver.app("cookie", section="webhooks")
    results = {"ship": {"parcel": 3}, "label": b"\x89PNG"}

    await asyncio.to_thread(receiver._run, app, {"order": 7}, results=results)

    event = json.loads(receiver.bodies[0])
    assert (
        webhooks.verify(receiver.requests[0].headers, receiver.bodies[0], {"k": KEY}).lambda_name
        == "mail.send"
    )
    assert event["type"] == "task.ended"
    assert event["data"]["payload"] == {"order": 7}
    assert {task["label"]: (task["status"], task["result"]) for task in event["data"]["tasks"]} == {
        "ship": ("success", {"parcel": 3}),
        "label": ("success", {"base64": "iVBORw=="}),
    }


async def test_an_attempt_that_is_cancelled_or_over_its_time_leaves_the_receiver(receiver: Receiver) -> None:
    callback = receiver.app("silent").callbacks["mail.send"]
    ctx = TaskContext(
        task_id=new_task_id_text(),
        lambda_name="mail.send",
        priority=Priority.NORMAL,
        attempt=1,
        fence=1,
        due_at=datetime.now(UTC),
        deadline=datetime.now(UTC) + timedelta(minutes=1),
    )
    attempt = asyncio.create_task(callback.call(callback.read(b"1", 1), ctx))

    await asyncio.wait_for(receiver.asked.wait(), 10)
    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt
    await asyncio.wait_for(receiver.left.wait(), 10)
    await callback.function.__self__.sender.close()


MUCH = 40_000_000
"""Bytes of what should end earlier: more than the sockets' buffers take while nobody reads."""


@pytest.mark.parametrize(
    ("said", "endless"),
    [
        (b"hello\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1_000),
        (b"HTTP/1.1 200 OK\r\n", b"X-%d: y\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", b"x" * 1_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 1_000),
        (b"HTTP/1.1 500 No\r\nContent-Length: 999999999\r\n\r\n", b"x" * 1_000),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b"x" * 1_000),
        (b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"\x16\x03\x01\x00\x05hello", b""),
    ],
)
async def test_a_server_that_speaks_no_http_ends_nothing_but_its_attempt(
    receiver: Receiver, said: bytes, endless: bytes
) -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        while endless and sent < MUCH:
            writer.write(endless * 50)
            sent += len(endless) * 50
            try:
                await writer.drain()
            except ConnectionError:
                break

    async with tcp_server.serving(answer) as port:
        receiver.port = port
        attempt = await receiver.run("echo")

    assert attempt.outcome in (Outcome.RETRIABLE_FAILURE, Outcome.FATAL_FAILURE)
    assert attempt.failure_kind is FailureKind.CALLBACK
    assert len(attempt.failure_message) < 200
    assert sent < MUCH or said.endswith(
        b"1;"
    )  # an extension of a chunk is not kept, and ends at the deadline


def test_a_webhook_tells_of_results_with_attachments() -> None:
    stored = b'{"$duly.attachment":{"hash":"%s","size":1,"name":"x"}}' % (b"0" * 64)
    now = datetime.now(UTC)
    context = TaskContext(
        task_id="t", lambda_name="h", priority=Priority.NORMAL, attempt=1, fence=1, due_at=now, deadline=now
    )
    for label, encoding in (("inside", task_pb2.ENCODING_JSON), ("whole", task_pb2.ENCODING_ATTACHMENT)):
        context.predecessors[label] = Predecessor(label, "t", TaskStatus.SUCCESS, stored, encoding)

    event = json.loads(ended_event(SentPayload(stored, task_pb2.ENCODING_JSON), context))

    assert event["data"]["payload"] == event["data"]["tasks"][0]["result"] == json.loads(stored)
    assert event["data"]["tasks"][1]["result_omitted"] is True
