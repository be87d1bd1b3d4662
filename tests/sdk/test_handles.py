"""Callbacks as handles: a client schedules the function that runs, and its payload's type is checked."""

import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

import duly
from duly.callbacks.lambda_of import name_of
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
    print(greet(Greeting("Ada"), 5))  # wrong
    client.schedule(greet, "Ada")  # wrong
    client.schedule(greet)  # wrong
    client.schedule(later, [1])  # wrong
    client.schedule(tick, 5)  # wrong
    client.schedule(greet, Greeting("Ada"), delay=3)  # wrong
    client.schedule("greet", prio=1)  # wrong
    await others.schedule(greet, {"name": "Ada"})  # wrong
"""


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
