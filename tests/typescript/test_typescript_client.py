"""The TypeScript client: its own tests run with Node, against a scripted server and a whole stack."""

import asyncio
import http.client
import json
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2, error_details_pb2, status_pb2

import duly
from duly import webhooks
from duly.transport.channel import check_address
from duly_local.certificates import make_authority, make_certificate
from duly_local.ports import free_ports
from duly_wire import missing_cells
from duly_wire.peers import Peer, split_peers
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, task_pb2
from tests.fixtures import typescript
from tests.fixtures.documents import DOCS, blocks
from tests.fixtures.forked_process import ROOT, clean_environment
from tests.fixtures.host import APP
from tests.fixtures.whole_stack import WholeStack

CLIENT = ROOT / "clients" / "typescript"

pytestmark = [
    pytest.mark.long,  # it installs packages and compiles
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("typescript"),
    typescript.needs_node,
]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The client, built of the wire as it is now."""
    typescript.build()


def run_node_tests(name: str, **environment: str) -> None:
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", f"test/{name}.test.mjs"],
        cwd=CLIENT,
        env=clean_environment() | {"PATH": os.environ["PATH"]} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout


class Scripted(frontend_pb2_grpc.FrontendServiceServicer):
    """Does with a task what the name of its lambda says."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self.calls: Counter[str] = Counter()
        self.lists: list[frontend_pb2.ListTasksRequest] = []

    async def Schedule(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.ScheduleRequest, context: grpc.aio.ServicerContext
    ) -> frontend_pb2.ScheduleResponse:
        first = getattr(request.tasks[0], "lambda")
        if first == "cell.away.refused" and self.calls[first]:
            await refuse(context, code_pb2.PERMISSION_DENIED, "not any more")
        if len(request.tasks) > 1 or first.startswith("cell.away"):
            return self._of_several_cells(request)
        (task,) = request.tasks
        name = getattr(task, "lambda")
        self.calls[name] += 1
        self.ids.setdefault(name, []).append(task.task_id)
        told = dict(context.invocation_metadata())
        if name == "silent":
            await asyncio.Event().wait()  # until the call is cancelled
        if name.startswith("show.lambda"):
            await refuse(context, code_pb2.PERMISSION_DENIED, name)
        if name == "show.token":
            await refuse(context, code_pb2.PERMISSION_DENIED, told.get("authorization", "none"))
        if name.startswith("invalid"):
            violation = error_details_pb2.BadRequest.FieldViolation(field="tasks[0].lambda")
            details = error_details_pb2.BadRequest(field_violations=[violation])
            await refuse(context, code_pb2.INVALID_ARGUMENT, "it is wrong", details)
        if name.startswith("unavailable.always") or (name == "unavailable.twice" and self.calls[name] < 3):
            await refuse(context, code_pb2.UNAVAILABLE, "the store is away")
        if name == "cancelled.once" and self.calls[name] < 2:
            await refuse(context, code_pb2.CANCELLED, "it stops")
        if name == "overloaded.once" and self.calls[name] < 2:
            details = error_details_pb2.RetryInfo()
            details.retry_delay.FromMilliseconds(20)
            await refuse(context, code_pb2.RESOURCE_EXHAUSTED, "too many", details)
        return frontend_pb2.ScheduleResponse(
            results=[frontend_pb2.ScheduleResult(task_id=task.task_id, created=True)]
        )

    def _of_several_cells(self, request: frontend_pb2.ScheduleRequest) -> frontend_pb2.ScheduleResponse:
        """Write each task, but those of a cell that is away: for one call, or for ever."""
        answer = frontend_pb2.ScheduleResponse()
        for task in request.tasks:
            name = getattr(task, "lambda")
            self.calls[name] += 1
            self.ids.setdefault(name, []).append(task.task_id)
            if name in ("cell.away.always", "cell.away.refused") or (
                name == "cell.away.once" and self.calls[name] < 2
            ):
                code = task_pb2.ERROR_CODE_CELL_UNAVAILABLE
                answer.results.add().error.CopyFrom(
                    task_pb2.ItemError(code=code, message="cell b: it is away")
                )
            else:
                answer.results.add(task_id=task.task_id, created=True)
        return answer

    async def ListTasks(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.ListTasksRequest, context: grpc.aio.ServicerContext
    ) -> frontend_pb2.ListTasksResponse:
        self.lists.append(request)
        if request.cell == "c":
            missing = error_details_pb2.ResourceInfo(resource_type="cell")
            await refuse(context, code_pb2.NOT_FOUND, "there is no cell 'c'", missing)
        if not request.cell:
            context.set_trailing_metadata(((missing_cells.METADATA, "b,c"),))
        page = frontend_pb2.ListTasksResponse(next_page_token="" if request.page_token else "next")
        page.tasks.add(task_id=request.page_token or "first", cell="a", status=task_pb2.TASK_STATUS_SUCCESS)
        return page


async def refuse(context: grpc.aio.ServicerContext, code: int, message: str, *details: object) -> NoReturn:
    status = status_pb2.Status(code=code, message=message)
    for each in details:
        packed = Any()
        packed.Pack(each)
        status.details.append(packed)
    known = {each.value[0]: each for each in grpc.StatusCode}
    metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(known[code], message, metadata)


@asynccontextmanager
async def serving(scripted: Scripted, folder: Path) -> AsyncIterator[str]:
    make_authority(folder)
    make_certificate(folder, "server", ["127.0.0.1"])
    pair = (folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes()
    server = grpc.aio.server()
    frontend_pb2_grpc.add_FrontendServiceServicer_to_server(scripted, server)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_calls_are_repeated_refused_shown_and_aborted_as_they_should(tmp_path: Path) -> None:
    scripted = Scripted()
    (silent,) = free_ports(1)

    async with serving(scripted, tmp_path) as address:
        await asyncio.to_thread(
            run_node_tests,
            "scripted",
            ADDRESS=address,
            SILENT=f"127.0.0.1:{silent}",
            CA_FILE=str(tmp_path / "ca.pem"),
        )

    for name, times in (("unavailable.twice", 3), ("overloaded.once", 2), ("cancelled.once", 2)):
        assert scripted.calls[name] == times
        assert len(set(scripted.ids[name])) == 1  # a repeat makes no second task
    assert len(set(scripted.ids["unavailable.always"])) == 1
    assert scripted.calls["invalid"] == 1
    assert (scripted.calls["cell.serves"], scripted.calls["cell.away.once"]) == (1, 2)
    assert len(set(scripted.ids["cell.away.once"])) == 1
    assert [each.page_token for each in scripted.lists[:2]] == ["", "next"]
    assert list(scripted.lists[0].statuses) == [task_pb2.TASK_STATUS_SUCCESS]
    assert scripted.calls["echo"] == scripted.calls["aborted"] == 0


LISTS = [
    *("a:1", "a:1,b:2", "a:1, [::1]:2", "ipv4:10.0.0.1:1,10.0.0.2:2", "dns:///name:1"),
    *("unix:/a,unix:/b", "unix:/a,b", "unix:/a,b:1", "unix:/a=b:1", "http://a:1", "a:0", "a:65536", "a"),
    *("east=a:1, west-2=[::1]:2", "east=a:1,b:2", "east=dns:///a:1,west=dns:///b:1"),
    *("east=unix:/a=1,west=unix:/b", "a:1,", "a:1,b", "a:1,,b:1", "a:1;b:2", "=a:1", "a b=a:1"),
    *("east=west=a:1", "east=a"),
]


def test_it_calls_the_frontends_of_its_own_zone_while_they_serve() -> None:
    peers = [(text, [(each.address, each.zone) for each in read_list(text)] or None) for text in LISTS]

    run_node_tests("zones", PEERS=json.dumps(peers))


def read_list(text: str) -> list[Peer]:
    """What Python's client makes of it; nothing: it refuses it."""
    try:
        return split_peers(check_address(text))
    except duly.AddressError:
        return []


SENT_AT = datetime(2026, 11, 26, 12, tzinfo=UTC)


def test_its_receivers_accept_and_refuse_what_pythons_do() -> None:
    key, body = webhooks.new_key(), '{"to":"ä"}'
    headers = webhooks.signed_headers(
        {"other": b"o" * 32, "new": webhooks.key_from_text(key)},
        body.encode(),
        task_id="01a215a0-ca0b-73b6-8abb-0cb44ca4f999",
        lambda_name="mail.send",
        attempt=2,
        fence=2**53 + 1,
        deadline=SENT_AT + timedelta(minutes=1),
        now=SENT_AT.timestamp(),
    )
    said = [headers["webhook-id"], "mail.send", 2, str(2**53 + 1), "2026-11-26T12:01:00.000Z", "new"]
    changes = {name: f"{value[:-1]}{'1' if value[-1] != '1' else '2'}" for name, value in headers.items()}
    changes |= {"duly-fence": "9", "webhook-timestamp": str(int(SENT_AT.timestamp()) - 301)}
    cases = [
        {"why": "as it was signed", "headers": headers, "body": body, "said": said},
        {"why": "another body", "headers": headers, "body": body + " "},
        *(
            {"why": f"another {name}", "headers": headers | {name: value}, "body": body}
            for name, value in changes.items()
        ),
        *({"why": f"no {name}", "headers": {**headers, name: ""}, "body": body} for name in headers),
    ]
    for case in cases[1:]:
        with pytest.raises(duly.SignatureError):
            webhooks.verify(case["headers"], case["body"].encode(), {"new": key}, now=SENT_AT)

    run_node_tests("webhooks", CASES=json.dumps({"key": key, "sentAt": SENT_AT.timestamp(), "cases": cases}))


def test_the_receiver_of_its_readme_answers_a_signed_request_and_no_other() -> None:
    key, body = webhooks.new_key(), b'{"to":"ann"}'
    example = blocks(CLIENT / "README.md", "ts")[-1].replace("duly-client", "./dist/index.js")
    script = example.replace("listen(8080)", "listen(0, function () { console.log(this.address().port); })")
    headers = webhooks.signed_headers(
        {"2026-11": webhooks.key_from_text(key)},
        body,
        task_id="01a215a0-ca0b-73b6-8abb-0cb44ca4f999",
        lambda_name="mail.send",
        attempt=1,
        fence=1,
        deadline=datetime.now(UTC),
    )
    with subprocess.Popen(
        ["node", "--input-type=module", "-e", script],
        cwd=CLIENT,
        env=os.environ | {"MAIL_HOOK_KEY": key},
        stdout=subprocess.PIPE,
        text=True,
    ) as receiver:
        try:
            port = int(receiver.stdout.readline())

            answered = post(port, body, headers)
            refused = post(port, body, headers | {"duly-fence": "2"})
        finally:
            receiver.kill()

    assert answered == (200, {"sent_to": "ann", "once": headers["webhook-id"]})
    assert refused == (401, None)


def post(port: int, body: bytes, headers: dict[str, str]) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer.status, json.loads(read) if read else None


class StackOfTests(WholeStack):
    """With the callbacks of the tests, and those of the page's examples."""

    program = ("duly_cli", "up", APP, "examples.hello:app", "--free-ports")


@pytest.mark.system
def test_tasks_go_from_the_client_through_a_whole_stack_and_back(tmp_path: Path) -> None:
    stack = StackOfTests(tmp_path, "--data", str(tmp_path / "data"))
    try:
        address = stack.frontend()
        run_node_tests("stack", DULY_ADDRESS=address)
        printed = [run_example(page, address) for page in (CLIENT / "README.md", DOCS / "clients.md")]
    finally:
        stack.stop()
    assert printed[0].startswith("SUCCESS {")
    for each in printed:
        assert "text: 'Hello, Ada!'" in each


def run_example(page: Path, address: str) -> str:
    """Run the first example of a page; what it prints."""
    example = blocks(page, "ts")[0]
    script = example.replace("duly-client", "./dist/index.js").replace("127.0.0.1:7401", address)
    done = subprocess.run(
        ["node", "--input-type=module", "-"],
        input=script,
        cwd=CLIENT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
