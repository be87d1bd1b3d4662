"""`ctx.wait_for` in callbacks: what it returns, how it ends the attempt, and what it refuses."""

import logging
from dataclasses import dataclass
from datetime import timedelta

import pytest

import duly
from duly.encryption import AesGcm
from duly.testing import TIMED_OUT, run
from duly_wire.enums import FailureKind, Outcome

DAYS = timedelta(days=3)


@dataclass
class Decision:
    approved: bool
    by: str


@pytest.fixture
def app():
    return duly.App()


def test_a_callback_waits_until_the_event_is_there_and_then_gets_its_value(app):
    @app.callback("order.ship")
    def ship(payload: int, ctx: duly.TaskContext):
        try:
            decision = ctx.wait_for(f"order-{payload}", type=Decision, timeout=DAYS)
        except Exception:  # noqa: BLE001
            return "swallowed"
        return decision.by

    before = run(app, "order.ship", 7)
    after = run(app, "order.ship", 7, events={"order-7": {"approved": True, "by": "ann"}})

    assert (before.outcome, before.waits_for, before.wait_timeout) == (
        Outcome.WAIT_FOR_EVENT,
        ("order-7",),
        DAYS,
    )
    assert (after.outcome, after.result) == (Outcome.SUCCESS, "ann")


def test_an_async_callback_waits_with_the_same_call(app):
    @app.callback("order.ship")
    async def ship(_payload: None, ctx: duly.TaskContext):
        return ctx.wait_for("go")

    assert run(app, "order.ship").outcome is Outcome.WAIT_FOR_EVENT
    assert run(app, "order.ship", events={"go": [1]}).result == 1


def test_several_waits_of_one_callback_get_their_events_in_order(app):
    @app.callback("order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        return [
            ctx.wait_for("manager"),
            ctx.wait_for("manager"),
            ctx.wait_for_first("paid", "refused").key,
            ctx.wait_for_all("legal", "finance"),
        ]

    events = {"manager": [1, 2], "refused": 3, "legal": 4, "finance": 5}

    assert run(app, "order.ship", events={"manager": [1]}).waits_for == ("manager",)
    assert run(app, "order.ship", events=events).result == [1, 2, "refused", {"legal": 4, "finance": 5}]
    assert run(app, "order.ship", events={**events, "finance": []}).waits_for == ("legal", "finance")


def test_a_timeout_is_the_default_or_an_error_that_ends_the_task(app):
    @app.callback("order.ship")
    def ship(payload: str, ctx: duly.TaskContext):
        if payload == "default":
            return ctx.wait_for("go", default="nobody")
        if payload == "caught":
            try:
                ctx.wait_for_all("go", "come")
            except duly.EventTimeoutError as error:
                return list(error.keys)
        return ctx.wait_for("go")

    late = {"go": TIMED_OUT}

    assert run(app, "order.ship", "default", events=late).result == "nobody"
    assert run(app, "order.ship", "caught", events={**late, "come": 1}).result == ["go"]
    failed = run(app, "order.ship", "", events=late)
    assert (failed.outcome, failed.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.EVENT_TIMEOUT)
    assert "no event go came within 7 days" in failed.failure_message


def test_a_value_of_another_type_is_put_aside_and_the_task_waits_for_another(app, caplog):
    @app.callback("order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        try:
            return ctx.wait_for("go", type=bool, timeout=DAYS, default="late")
        except Exception:  # noqa: BLE001
            return "swallowed"

    with caplog.at_level(logging.WARNING, "duly.callback"):
        waiting = run(app, "order.ship", events={"go": "secret"})

    assert (waiting.outcome, waiting.waits_for, waiting.wait_timeout) == (
        Outcome.WAIT_FOR_EVENT,
        ("go",),
        DAYS,
    )
    assert waiting.refused_events == {"go": "value: expected bool, got str"}
    assert "put the event go aside" in caplog.text
    assert "secret" not in caplog.text


def test_of_all_keys_only_those_whose_values_do_not_fit_are_waited_for_again(app):
    @app.callback("order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        return ctx.wait_for_all("a", "b", "c", type=int)

    waiting = run(app, "order.ship", events={"a": 1, "b": "x", "c": [[]]})

    assert waiting.waits_for == ("b", "c")
    assert [*waiting.refused_events] == ["b", "c"]


def test_of_the_first_of_several_a_wrong_value_lets_the_other_keys_count(app):
    @app.callback("order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        return ctx.wait_for_first("a", "b", type=int).value

    waiting = run(app, "order.ship", events={"a": "x"})

    assert (waiting.waits_for, [*waiting.refused_events]) == (("a", "b"), ["a"])


@pytest.mark.parametrize(
    ("keys", "timeout", "words"),
    [
        ((), DAYS, "1 to 16 keys"),
        (("a", "a"), DAYS, "each once"),
        (tuple(map(str, range(17))), DAYS, "1 to 16 keys"),
        (("",), DAYS, "1 to 255 bytes"),
        (("é" * 128,), DAYS, "1 to 255 bytes"),
        (("a\0",), DAYS, "without NUL"),
        ((7,), DAYS, "must be a str"),
        (("a",), 3, "must be a timedelta"),
        (("a",), timedelta(), "between 1 s and 365 days"),
        (("a",), timedelta(days=366), "between 1 s and 365 days"),
    ],
)
def test_a_wait_that_no_store_would_take_is_an_error_of_the_callback(app, keys, timeout, words):
    @app.callback("order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        return ctx.wait_for_first(*keys, timeout=timeout)

    failed = run(app, "order.ship")

    assert failed.failure_kind is FailureKind.EXCEPTION
    assert words in failed.failure_message


def test_a_batch_does_not_wait(app):
    @app.callback("order.ship", batch=duly.Batch(size=2))
    def ship(payloads: list[int], contexts: list[duly.TaskContext]):
        return [context.wait_for("go") for context in contexts]

    failed = run(app, "order.ship", 1)

    assert (failed.outcome, failed.failure_kind) == (Outcome.FATAL_FAILURE, FailureKind.BAD_RESULT)
    assert "a batch cannot wait for events" in failed.failure_message


def test_the_value_of_an_event_is_encrypted_bound_to_its_key_and_namespace():
    codec = AesGcm({"1": bytes(32)}, "1")
    app = duly.App(codec=codec)

    @app.callback("shop/order.ship")
    def ship(_payload: None, ctx: duly.TaskContext):
        return ctx.wait_for("go")

    sent = duly.NewEvent("go", "secret", "shop").to_proto(codec)
    again = duly.NewEvent("go", "secret", "shop", sent.event_id).to_proto(codec)

    assert b"secret" not in sent.value
    assert again == sent
    assert codec.decrypt(sent.value, b"event\0shop/go")[1:] == b'"secret"'
    with pytest.raises(duly.DecryptionError):
        codec.decrypt(sent.value, b"event\0/go")
    assert run(app, "shop/order.ship", events={"go": "secret"}).result == "secret"
