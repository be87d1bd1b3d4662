"""Callbacks as handles: a client schedules the function that runs, and its payload's type is checked."""

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import duly
from duly.callbacks.lambda_of import name_of
from duly.tasks.handle import check_result_type, handle_of, typed_task
from duly_wire.v1 import task_pb2
from tests.fixtures.forked_process import ROOT


class Shop:
    """Its bound methods are callbacks."""

    def sell(self, payload):
        return payload


@dataclass(eq=True)
class Unhashable:
    """A callback that can be neither hashed nor found again."""

    def __call__(self, payload):
        return payload


@pytest.fixture
def app():
    return duly.App()


def test_a_callback_knows_its_lambda(app):
    @app.callback("shop.sell")
    def sell(payload):
        return payload

    assert name_of(sell) == "shop.sell"


def test_a_bound_method_is_found_though_each_look_makes_another(app):
    shop = Shop()
    app.callback("shop.sell")(shop.sell)

    assert name_of(shop.sell) == "shop.sell"


def test_a_name_is_its_own():
    assert name_of("shop.sell") == "shop.sell"


def test_a_function_that_is_no_callback_is_refused_with_the_way_to_make_it_one():
    with pytest.raises(duly.UnknownLambdaError, match=r"Shop.sell is not a callback: register it with @app"):
        name_of(Shop.sell)


def test_a_function_of_two_lambdas_is_refused_with_both_names(app):
    def sell(payload):
        return payload

    app.callback("shop.sell")(sell)
    app.callback("shop.resell")(sell)

    with pytest.raises(duly.UnknownLambdaError, match=r"serves several lambdas: .* shop.sell, shop.resell"):
        name_of(sell)


def test_what_cannot_be_hashed_is_scheduled_by_its_name_only(app):
    callback = Unhashable()
    app.callback("shop.sell")(callback)

    with pytest.raises(duly.UnknownLambdaError, match="is not a callback"):
        name_of(callback)


def test_the_function_stays_what_it_was(app):
    def sell(payload):
        return payload

    before = dict(vars(sell))

    assert app.callback("shop.sell")(sell) is sell
    assert vars(sell) == before


DECLARED = """
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import duly

app = duly.App()
client = duly.Client()


@dataclass
class Greeting:
    name: str


@app.callback("greet")
def greet(greeting: Greeting, ctx: duly.TaskContext) -> str:
    return greeting.name


@dataclass
class Greeted:
    text: str


@app.callback("greet.fully")
async def greet_fully(greeting: Greeting) -> Greeted:
    return Greeted(greeting.name)


@app.callback("count")
async def count() -> int:
    return 3


@app.callback("later")
async def later(names: list[str]) -> None: ...


@app.callback("tick")
def tick() -> None: ...


async def schedule(others: duly.AsyncClient) -> None:
    client.schedule(greet, Greeting("Ada"), priority=duly.Priority.HIGH, delay=timedelta(seconds=1))
    client.schedule(later, ["Ada"])
    client.schedule(tick)
    client.schedule("greet", {"name": "Ada"})
    await others.schedule(greet, Greeting("Ada"))
    text: str = client.wait(client.schedule(greet, Greeting("Ada"))).result
    handle: duly.Handle[Greeted] = client.schedule(greet_fully, Greeting("Ada"))
    text = client.wait(handle).result.text + client.get(handle).result.text
    text = (await others.wait(await others.schedule(greet_fully, Greeting("Ada")))).result.text
    text = client.wait(client.schedule("greet.fully", result_type=Greeted)).result.text
    number: int = client.wait(client.schedule(count)).result
    receipt: duly.ScheduledTask = client.schedule(greet, Greeting("Ada"))
    receipt = client.schedule("greet")
    ended: duly.Task = client.wait(receipt)
    print(text, number, ended.result["anything"])
    number = client.wait(handle).result.text  # wrong
    client.wait(handle).result.other  # wrong
    client.schedule("greet", result_type=Greeted).created.text  # wrong
    text = client.wait(client.schedule(count)).result  # wrong
    print(greet(Greeting("Ada"), 5))  # wrong
    client.schedule(greet, "Ada")  # wrong
    client.schedule(greet)  # wrong
    client.schedule(later, [1])  # wrong
    client.schedule(tick, 5)  # wrong
    client.schedule(greet, Greeting("Ada"), delay=3)  # wrong
    client.schedule("greet", prio=1)  # wrong
    await others.schedule(greet, {"name": "Ada"})  # wrong
"""


@dataclass
class Greeted:
    text: str
    at: datetime | None = None


def ended(**fields):
    return duly.Task.from_proto(
        task_pb2.Task(
            **{"task_id": "t", "status": task_pb2.TASK_STATUS_SUCCESS, "result_encoding": 1} | fields
        )
    )


def the_handle(lambda_name, result_type=None):
    return handle_of(duly.ScheduledTask("t", created=True), lambda_name, result_type)


def test_a_result_is_read_into_what_the_callback_says_it_returns(app):
    @app.callback("greet")
    async def greet(name: str) -> Greeted:
        raise NotImplementedError

    handle = the_handle(greet)
    task = typed_task(ended(result=b'{"text": "Hello", "at": "2026-11-26T21:00:00+00:00"}'), handle)

    assert (str(handle), handle.created, isinstance(handle, duly.ScheduledTask)) == ("t", True, True)
    assert isinstance(task, duly.TypedTask)
    assert task.result == Greeted("Hello", datetime(2026, 11, 26, 21, tzinfo=UTC))


def test_a_result_by_name_is_read_into_the_type_that_the_caller_says(app):
    assert typed_task(ended(result=b'{"text": "x"}'), the_handle("greet", Greeted)).result == Greeted("x")
    assert typed_task(ended(result=b"[1, 2]"), the_handle("greet", list[int])).result == [1, 2]
    assert typed_task(ended(result=b"{}"), the_handle("greet")).result == {}


def test_a_result_that_does_not_fit_names_the_task_and_shows_no_value():
    task = typed_task(ended(result=b'{"words": "secret"}'), the_handle("greet", Greeted))

    with pytest.raises(duly.EncodingError, match=r"the result of task t is no .*Greeted") as refused:
        _ = task.result
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "status", [task_pb2.TASK_STATUS_FATAL_FAILURE, task_pb2.TASK_STATUS_CANCELLED, task_pb2.TASK_STATUS_NEW]
)
def test_a_task_that_did_not_succeed_has_no_result_whatever_its_type(status):
    assert typed_task(ended(status=status), the_handle("greet", Greeted)).result is None


def test_what_a_callback_returns_stays_json_if_nothing_can_be_read_into_its_annotation(app):
    @app.callback("odd")
    def odd() -> tuple[int, str]: ...

    @app.callback("unknown")
    def unknown() -> "NobodyKnows": ...  # noqa: F821

    @app.callback("bare")
    def bare(): ...

    @app.callback("many", batch=duly.Batch(size=2))
    def many(names: list[str]) -> list[Greeted]: ...

    for callback in (odd, unknown, bare, many):
        assert typed_task(ended(result=b'[1, "x"]'), the_handle(callback)).result == [1, "x"]


def test_a_result_type_that_nothing_can_be_read_into_is_refused_before_anything_is_scheduled():
    with pytest.raises(duly.RegistrationError, match="cannot be read into"):
        check_result_type(complex)


@pytest.mark.long  # mypy reads the SDK and gRPC without a cache
@pytest.mark.timeout(240)
def test_mypy_takes_the_payload_that_a_callback_declares_and_no_other(tmp_path):
    snippet = tmp_path / "declared.py"
    snippet.write_text(DECLARED)
    wrong = {number for number, line in enumerate(DECLARED.splitlines(), 1) if line.endswith("# wrong")}

    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(snippet)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)

    errors = re.findall(r"declared\.py:(\d+): error", done.stdout)
    assert {int(number) for number in errors} == wrong, done.stdout
