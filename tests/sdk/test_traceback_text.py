"""Which part of a traceback is kept of a failed attempt."""

import asyncio
import logging
from datetime import timedelta

import pytest

import duly
from duly.callbacks.traceback_text import LIMIT_BYTES
from duly.testing import run

app = duly.App()


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError("no words")


def fail(error):
    raise error


@app.callback("plain")
def plain(payload):
    return fail(ValueError(payload))


@app.callback("async")
async def later(payload):
    await asyncio.sleep(0)
    fail(ValueError(payload))


@app.callback("chained")
def chained():
    try:
        fail(KeyError("first"))
    except KeyError as error:
        raise duly.FatalFailure("second") from error


@app.callback("unreadable")
def unreadable():
    fail(UnreadableError())


@app.callback("deep")
def deep(depth):
    one_way(depth)


def one_way(depth):
    other_way(depth)


def other_way(depth):
    one_way(depth - 1) if depth else fail(ValueError("the bottom"))


@app.callback("returned")
def returned():
    return duly.FatalFailure("as a value")


@app.callback("snoozed")
def snoozed():
    raise duly.Snooze(timedelta(seconds=1))


def functions(text):
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith('  File "')]


@pytest.mark.parametrize(("name", "function"), [("plain", "plain"), ("async", "later")])
def test_it_begins_in_the_callback_and_ends_with_the_error(name, function):
    text = run(app, name, "why").traceback

    assert text.startswith("Traceback (most recent call last):\n")
    assert functions(text) == [function, "fail"]
    assert text.endswith("ValueError: why")


def test_a_cause_is_part_of_it_and_an_outcome_that_is_raised_has_one():
    text = run(app, "chained").traceback

    assert "KeyError: 'first'" in text
    assert "direct cause" in text
    assert text.endswith("FatalFailure: second")


def test_an_exception_without_words_still_has_its_frames():
    assert functions(run(app, "unreadable").traceback) == ["unreadable", "fail"]


def test_a_long_one_loses_its_middle():
    text = run(app, "plain", "\n".join(["€" * 900] * 9)).traceback

    assert len(text.encode()) <= LIMIT_BYTES
    assert functions(text) == ["plain", "fail"]
    assert "[... cut ...]" in text
    assert text.endswith("€")


def test_of_a_deep_recursion_the_innermost_frames_stay():
    text = run(app, "deep", 300).traceback

    assert len(text.encode()) <= LIMIT_BYTES
    assert functions(text)[-1] == "fail"


def test_nothing_that_a_text_of_postgres_cannot_hold_is_left():
    text = run(app, "plain", "a\x00b").traceback

    assert text.endswith("ValueError: a\\0b")


@pytest.mark.parametrize("name", ["returned", "snoozed"])
def test_what_raised_no_failure_has_none(name):
    assert run(app, name).traceback == ""


def test_what_fails_before_the_callback_has_none():
    app_of_one = duly.App()

    @app_of_one.callback("typed")
    def typed(payload: int):
        return payload

    assert run(app_of_one, "typed", "no number").traceback == ""


@pytest.mark.parametrize("name", ["plain", "async"])
def test_the_log_shows_the_frames_that_are_kept_and_none_of_duly(name, caplog):
    with caplog.at_level(logging.WARNING, "duly.callback"):
        kept = run(app, name, "no").traceback

    (record,) = caplog.records
    assert record.exc_text.splitlines() == kept.splitlines()
    assert "invoke.py" not in kept


@app.callback("verbose")
def verbose(length):
    return fail(ValueError("a" * length))


@pytest.mark.parametrize("length", [10_000_000, 900])
def test_the_log_has_no_more_of_a_long_exception_than_is_kept(length, caplog):
    with caplog.at_level(logging.WARNING, "duly.callback"):
        kept = run(app, "verbose", length).traceback

    assert kept.splitlines()[-1] in caplog.text
    assert "in verbose" in caplog.text
    assert len(caplog.text) < 2 * LIMIT_BYTES
