"""`duly up --http`: tasks are posted to a receiver, a failing one is tried again, and a webhook tells how a task ended."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import duly
from duly import TaskStatus, webhooks
from tests.fixtures.waiting import wait_until
from tests.fixtures.whole_stack import WholeStack

LONG = timedelta(seconds=60)
KEY = webhooks.new_key()

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # a stack of its own; tests/http_lambdas/ has its parts
    pytest.mark.timeout(240),
]


class Receiver(BaseHTTPRequestHandler):
    """Answers with the status that the task asks for at this attempt."""

    deliveries: list[webhooks.Delivery]
    frontend: Callable[[], str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        delivery = webhooks.verify(self.headers, body, {"k": KEY})
        self.deliveries.append(delivery)
        statuses = json.loads(body).get("statuses", [200])
        if statuses[delivery.attempt - 1] == 202:
            Thread(target=self.complete, args=(delivery,)).start()  # maybe before the answer has arrived
        self.send_response(statuses[delivery.attempt - 1])
        self.send_header("content-length", "0")
        self.end_headers()

    def complete(self, delivery: webhooks.Delivery) -> None:
        """Fail the first attempt, and complete the next one."""
        with duly.Client(self.frontend()) as client:
            if delivery.attempt == 1:
                client.fail(delivery.completion_token, "no parcel left", timeout=LONG)
            else:
                client.complete(delivery.completion_token, {"parcel": 3}, timeout=LONG)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def deliveries() -> list[webhooks.Delivery]:
    return []


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, deliveries: list[webhooks.Delivery]
) -> Iterator[duly.Client]:
    folder = tmp_path_factory.mktemp("stack")
    receiver = type("Own", (Receiver,), {"deliveries": deliveries})
    server = ThreadingHTTPServer(("127.0.0.1", 0), receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    write_file(folder, f"http://127.0.0.1:{server.server_port}/")
    stack = HttpStack(folder, "--http", str(folder / "http.toml"), "--data", str(folder / "data"))
    receiver.frontend = staticmethod(stack.frontend)  # type: ignore[attr-defined]
    try:
        with duly.Client(stack.frontend()) as opened:
            yield opened
    finally:
        stack.stop()
        server.shutdown()
        server.server_close()


class HttpStack(WholeStack):
    """`duly up` without an application."""

    program = ("duly_cli", "up", "--free-ports")


def write_file(folder: Path, url: str) -> None:
    (folder / "key").write_text(KEY)
    sections = "".join(
        f'[{section}."{name}"]\nurl = "{url}"\nkeys = ["k"]\nbackoff = {{ initial = "10ms", maximum = "10ms" }}\n'
        for section, name in (("lambdas", "order.ship"), ("webhooks", "orders.ended"))
    )
    (folder / "http.toml").write_text(
        f'[keys]\nk = {{ file = "key" }}\n[network]\nallow = ["127.0.0.1/32"]\nallow_plaintext = true\n{sections}'
    )


def test_a_task_is_posted_until_it_succeeds(client: duly.Client, deliveries: list[webhooks.Delivery]) -> None:
    task = client.schedule("order.ship", {"statuses": [500, 503, 200]})

    ended = client.wait(task, LONG)

    seen = [each for each in deliveries if each.task_id == task.task_id]
    assert ended.status is TaskStatus.SUCCESS
    assert [each.attempt for each in seen] == [1, 2, 3]
    assert sorted({each.fence for each in seen}) == [each.fence for each in seen]


def test_a_receiver_that_answered_202_completes_its_task_by_token(
    client: duly.Client, deliveries: list[webhooks.Delivery]
) -> None:
    task = client.schedule("order.ship", {"statuses": [202, 202]})

    ended = client.wait(task, LONG)

    first, second = [each.completion_token for each in deliveries if each.task_id == task.task_id]
    assert (ended.status, ended.result, ended.failures) == (TaskStatus.SUCCESS, {"parcel": 3}, 1)
    assert first != second
    with pytest.raises(duly.TokenNotCurrentError):
        client.complete(first)


@pytest.mark.parametrize(("status", "ended"), [(200, "success"), (400, "fatal_failure")])
def test_a_webhook_tells_how_its_task_ended(
    client: duly.Client, deliveries: list[webhooks.Delivery], status: int, ended: str
) -> None:
    with client.graph("order") as graph:
        ship = graph.task("order.ship", {"statuses": [status]}, label="ship")
        hook = graph.task("orders.ended", {"order": 7}, after=ship.finished)

    told = wait_until(lambda: next((each for each in deliveries if each.task_id == hook.task_id), None), LONG)

    event = json.loads(told.body)
    assert [(each["task_id"], each["status"]) for each in event["data"]["tasks"]] == [(ship.task_id, ended)]
    assert event["data"]["payload"] == {"order": 7}
