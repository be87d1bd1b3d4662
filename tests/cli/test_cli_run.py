"""`duly run`: one attempt in this process, its result and its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app
from tests.fixtures.forked_process import clean_environment

SHOP = """
import asyncio
import sys
from dataclasses import dataclass
from datetime import timedelta

import duly

app = duly.App()


@dataclass
class Order:
    items: list[str]


@app.callback("price", payload_limit=100)
def price(order: Order, ctx: duly.TaskContext) -> int:
    ctx.progress(0.5, "counting")
    if order.items == ["snooze"]:
        raise duly.Snooze(timedelta(minutes=10))
    return {"pen": 2}[order.items[0]]


@app.callback("later")
async def later(payload):
    await asyncio.sleep(0)
    return payload


@app.callback("reverse", raw=True)
def reverse(data: bytes) -> bytes:
    return data[::-1]


@app.callback("ship")
def ship(payload: int, ctx: duly.TaskContext):
    first = ctx.wait_for(f"order {payload}", type=bool, timeout=timedelta(days=3))
    return [first, ctx.wait_for_all("legal", "finance")]


@app.callback("stop")
def stop(payload, ctx):
    breakpoint()
    return ctx.attempt
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_to_run.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def duly_run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["run", "shop_to_run:app", *arguments], input=stdin)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["price", '{"items": ["pen"]}'], "2\n"),
        (["later", '{"é": null}'], '{"é": null}\n'),
        (["later"], "null\n"),
        (["reverse", "abc", "--raw"], "cba\n"),
    ],
)
def test_a_result_is_printed_as_json_or_as_the_bytes_that_it_is(arguments: list[str], printed: str) -> None:
    done = duly_run(*arguments)

    assert (done.exit_code, done.stdout) == (0, printed)


@pytest.mark.usefixtures("folder")
def test_progress_is_shown_beside_the_result() -> None:
    assert duly_run("price", "-", stdin='{"items": ["pen"]}').stderr == "progress: 50% counting\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["price", '{"items": ["unicorn"]}'], 1, "retriable_failure, exception: KeyError: 'unicorn'"),
        (["price", '{"items": 7}'], 1, "fatal_failure, bad_payload: payload.items: "),
        (["price", '{"items": ["snooze"]}'], 75, "snoozed; again after 0:10:00"),
        (["price", '{"items": ["' + "x" * 100 + '"]}'], 2, "the limit of 'price' is 100"),
        (["prize"], 2, "has no lambda 'prize'"),
        (["price", "{"], 2, "the payload is invalid JSON"),
        (["later", "NaN"], 2, "JSON cannot carry"),
    ],
)
def test_what_is_no_success_is_told_with_an_exit_code_of_its_own(
    arguments: list[str], code: int, told: str
) -> None:
    done = duly_run(*arguments)

    assert (done.exit_code, done.stdout) == (code, "")
    assert told in " ".join(done.stderr.replace("│", "").split())


@pytest.mark.usefixtures("folder")
def test_a_failure_shows_the_frames_of_the_callback() -> None:
    lines = duly_run("price", '{"items": ["unicorn"]}').stderr.splitlines()

    assert "Traceback (most recent call last):" in lines
    assert [line.rpartition(" in ")[2] for line in lines if line.startswith("  File ")] == ["price"]


def test_an_application_that_cannot_be_imported_is_told_as_a_worker_tells_it(folder: Path) -> None:
    (folder / "broken_to_run.py").write_text("def (")

    done = CliRunner().invoke(app, ["run", "broken_to_run:app", "price"])

    assert done.exit_code == 78
    assert "broken_to_run.py:1" in done.stderr


def test_a_breakpoint_opens_the_debugger_in_the_callback(folder: Path) -> None:
    command = [sys.executable, "-m", "duly_cli", "run", "shop_to_run:app", "stop", "5", "--attempt", "3"]

    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(),
        input="p payload + 1000\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "(Pdb) 1005" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("3")


@pytest.mark.usefixtures("folder")
def test_a_callback_that_waits_names_the_event_and_how_to_answer_it():
    waiting = duly_run("ship", "7")
    further = duly_run("ship", "7", "--event", "order 7=true", "--event", "legal=1")

    assert waiting.exit_code == further.exit_code == 75
    assert "waits for the event order 7, for 3 days" in waiting.stderr
    assert "--event 'order 7=VALUE'" in waiting.stderr
    assert "waits for events: legal, finance" in further.stderr
    assert waiting.stdout == further.stdout == ""


@pytest.mark.usefixtures("folder")
def test_a_callback_that_waits_gets_the_events_that_are_given():
    answers = ["order 7=true", 'legal={"a": "b=c"}', "finance=[1]"]

    done = duly_run("ship", "7", *(part for each in answers for part in ("--event", each)))

    assert (done.exit_code, json.loads(done.stdout)) == (0, [True, {"legal": {"a": "b=c"}, "finance": [1]}])


@pytest.mark.usefixtures("folder")
def test_an_event_that_does_not_fit_is_told_with_the_reason():
    waiting = duly_run("ship", "7", "--event", 'order 7="secret"')

    assert waiting.exit_code == 75
    assert "put the event order 7 aside: value: expected bool, got str" in waiting.stderr
    assert "secret" not in waiting.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("event", "words"),
    [("order", "KEY=VALUE"), ("=1", "KEY=VALUE"), ("order=yes", "not JSON"), ("order=", "not JSON")],
)
def test_an_event_that_is_no_key_with_json_is_refused(event, words):
    refused = duly_run("ship", "7", "--event", event)

    assert refused.exit_code == 2
    assert words in " ".join(refused.stderr.replace("\u2502", " ").split())
