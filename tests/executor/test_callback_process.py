"""The callback process at the other end of its socket pair: what it says, runs, refuses, and survives."""

import errno
import json
import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from duly_core.errors import ApplicationError
from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess, StartKilledError
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.callback_process import SLOTS, Callbacks
from tests.fixtures.host import APP, Journal, claimed, value_of
from tests.fixtures.programs import is_alive
from tests.fixtures.waiting import wait_until

MODULES = {
    "declares_nothing": "import duly\napp = duly.App()",
    "has_no_app": "import duly",
    "raises": "raise ValueError('the module\\'s own words')",
    "exits": "import sys\nsys.exit('enough')",
    "leaves": "import os\nos._exit(3)",
    "kills_itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "wants_more": "import a_package_that_nobody_has",
}
LOST_KEYS = """
import duly

class Codec:
    def decrypt(self, data, bound_to):
        raise KeyError("no such key")

app = duly.App(codec=Codec())

@app.callback("test.secret")
def secret(payload):
    pass
"""


async def test_hello_lists_the_lambdas_with_their_policies(in_root: None) -> None:
    process = await CallbackProcess.start(0, "executor-id", APP, SlotBoard.create(1, 1), ProcessTree())

    lambdas = {declared.name: declared for declared in await process.hello()}

    assert lambdas["test.brief"].max_runtime.ToTimedelta() == timedelta(milliseconds=300)
    assert lambdas["test.echo"].owner == "tests"
    process.kill()
    assert await process.ended() == -9


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("has_no_app", "'has_no_app' has no 'app'"),
        ("declares_nothing", "declares no lambdas: use @app.callback(NAME)"),
        ("raises", "ValueError: the module's own words"),
        ("exits", "SystemExit: enough"),
        ("leaves", "ended with exit code 3 while it imported the application"),
        ("wants_more", "imports 'a_package_that_nobody_has', which is not installed"),
    ],
)
async def test_an_application_that_cannot_be_imported_is_told_why(
    module: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    process = await CallbackProcess.start(
        0, "executor-id", f"{module}:app", SlotBoard.create(1, 1), ProcessTree()
    )

    with pytest.raises(ApplicationError) as refused:
        await process.hello()

    assert complaint in str(refused.value)
    assert not isinstance(refused.value, StartKilledError)


async def test_a_process_that_is_killed_while_it_imports_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kills_itself.py").write_text(MODULES["kills_itself"])
    monkeypatch.chdir(tmp_path)
    process = await CallbackProcess.start(
        0, "executor-id", "kills_itself:app", SlotBoard.create(1, 1), ProcessTree()
    )

    with pytest.raises(StartKilledError, match="signal 9"):
        await process.hello()


@pytest.mark.parametrize("name", ["test.echo", "test.async"])
async def test_a_callback_gets_its_payload_and_its_result_is_told(callbacks: Callbacks, name: str) -> None:
    task = claimed(name, {"deep": [1, None, "é"]})

    callbacks.give(task)

    assert value_of(await callbacks.result(task)) == {"deep": [1, None, "é"]}


async def test_callbacks_run_beside_each_other_on_all_slots_and_no_more(
    callbacks: Callbacks, journal: Journal
) -> None:
    tasks = [claimed("test.wait", journal.payload()) for _ in range(SLOTS + 1)]

    callbacks.give(*tasks)
    await journal.started(*tasks[:SLOTS])
    running = {entry.task_id for entry in callbacks.board.running()}

    assert running == {task.claim.task_id for task in tasks[:SLOTS]}
    assert len(journal.lines("started")) == SLOTS
    journal.let_go()
    for task in tasks:
        await callbacks.result(task)
    wait_until(lambda: not list(callbacks.board.running()))


@pytest.mark.parametrize(
    ("fault", "outcome", "kind", "message"),
    [
        ("raise", "RETRIABLE_FAILURE", "EXCEPTION", "RuntimeError: the callback's own words"),
        ("fatal", "FATAL_FAILURE", "CALLBACK", "never again"),
        ("exit", "RETRIABLE_FAILURE", "EXCEPTION", "SystemExit: 3"),
        ("unserialisable", "FATAL_FAILURE", "BAD_RESULT", "the result, a set, cannot be encoded"),
    ],
)
async def test_how_a_callback_failed_is_told(
    callbacks: Callbacks, fault: str, outcome: str, kind: str, message: str
) -> None:
    task, after = claimed("test.misbehave", fault), claimed()

    callbacks.give(task, after)

    result = await callbacks.result(task)
    assert hsc_pb2.Outcome.Name(result.outcome) == f"OUTCOME_{outcome}"
    assert task_pb2.FailureKind.Name(result.failure_kind) == f"FAILURE_KIND_{kind}"
    assert message in result.failure_message
    assert value_of(await callbacks.result(after)) is None


@pytest.mark.parametrize(("name", "frames"), [("test.misbehave", 1), ("test.async_exit", 1)])
async def test_a_failure_is_told_with_the_frames_of_the_callback_alone(
    callbacks: Callbacks, name: str, frames: int
) -> None:
    task = claimed(name, "raise")

    callbacks.give(task)

    lines = (await callbacks.result(task)).traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    files = [line for line in lines if line.startswith("  File ")]
    assert len(files) == frames
    assert all("tests/fixtures/callbacks.py" in line for line in files)


async def test_a_snooze_is_told_with_its_delay(callbacks: Callbacks) -> None:
    task = claimed("test.misbehave", "snooze")

    callbacks.give(task)

    result = await callbacks.result(task)
    assert result.outcome == hsc_pb2.OUTCOME_SNOOZED
    assert result.retry_after.ToTimedelta() == timedelta(seconds=7)


async def test_an_async_callback_that_exits_does_not_end_the_loop_of_the_others(
    callbacks: Callbacks, journal: Journal
) -> None:
    other = claimed("test.async_wait", journal.payload())
    exits = claimed("test.async_exit")

    callbacks.give(other, exits)

    assert (await callbacks.result(exits)).failure_message == "SystemExit: 4"
    journal.let_go()
    assert value_of(await callbacks.result(other)) == "waited"


async def test_a_lambda_that_the_application_does_not_have_is_said_to_be_missing(
    callbacks: Callbacks,
) -> None:
    task = claimed("test.unknown")

    callbacks.give(task)

    assert (await callbacks.result(task)).failure_kind == task_pb2.FAILURE_KIND_NO_CALLBACK


@pytest.mark.parametrize(("fault", "value"), [("thread", "left a thread behind"), ("fork", 5)])
async def test_threads_and_forks_of_a_callback_do_no_harm(
    callbacks: Callbacks, fault: str, value: object
) -> None:
    task, after = claimed("test.misbehave", fault), claimed()

    callbacks.give(task)
    assert value_of(await callbacks.result(task)) == value
    callbacks.give(after)

    assert value_of(await callbacks.result(after)) is None


async def test_what_a_callback_prints_goes_through_at_once(
    callbacks: Callbacks, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh = await callbacks.another()
    task = claimed("test.misbehave", "print")

    fresh.give(task)
    await fresh.result(task)

    (line,) = capfd.readouterr().out.splitlines()
    assert line.endswith("] printed by the callback")


async def test_each_line_has_its_time_lambda_and_task_also_where_callbacks_run_side_by_side(
    callbacks: Callbacks, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh = await callbacks.another()
    tasks = [claimed(name, {"lines": 20, "of": 2}) for name in ("test.talk", "test.async_talk") for _ in "12"]

    fresh.give(*tasks)
    for task in tasks:
        await fresh.result(task)

    told = capfd.readouterr()
    for task in tasks:
        task_id = str(UUID(bytes=task.claim.task_id))
        head = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z \[{getattr(task, 'lambda')} {task_id}\] "
        printed = re.findall(rf"^{head}(.*)$", told.out, re.MULTILINE)
        logged = re.findall(rf"^{head}(.*)$", told.err, re.MULTILINE)
        assert printed == [f"{task_id} says {line}" for line in range(20)] + ["the end"]
        assert logged == [f"WARNING talk: {task_id} logs {line}" for line in range(20)]
    assert len(told.out.splitlines()) == 4 * 21


async def test_lines_are_json_where_the_executors_are(
    callbacks: Callbacks, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_TELEMETRY_LOG_FORMAT", "json")
    fresh = await callbacks.another()
    task = claimed("test.misbehave", "raise")
    talk = claimed("test.talk", {"lines": 1, "of": 1})

    fresh.give(task)
    await fresh.result(task)
    fresh.give(talk)
    await fresh.result(talk)

    told = capfd.readouterr()
    raised = json.loads(told.err.splitlines()[0])
    assert raised["task"] == str(UUID(bytes=task.claim.task_id))
    assert (raised["lambda"], raised["level"], raised["logger"]) == (
        "test.misbehave",
        "warning",
        "duly.callback",
    )
    assert raised["event"].endswith("RuntimeError: the callback's own words")
    printed = json.loads(told.out.splitlines()[0])
    assert (printed["stream"], printed["service"], printed["lambda"]) == ("stdout", "callback", "test.talk")


async def test_a_task_that_cannot_be_run_fails_and_its_traceback_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lost_keys.py").write_text(LOST_KEYS)
    monkeypatch.chdir(tmp_path)
    board = SlotBoard.create(1, SLOTS)
    process = await CallbackProcess.start(0, "executor-id", "lost_keys:app", board, ProcessTree())
    await process.hello()
    callbacks, task = Callbacks(process, board), claimed("test.secret")
    task.payload_encoding = task_pb2.ENCODING_ENCRYPTED

    callbacks.give(task)
    result = await callbacks.result(task)
    process.kill()
    await process.ended()

    assert result.outcome == hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    assert result.failure_message == "the task cannot be run: KeyError: 'no such key'"
    assert "in decrypt" in capfd.readouterr().err


async def test_what_belongs_to_no_task_names_the_process(
    callbacks: Callbacks, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh = await callbacks.another()
    task = claimed("test.misbehave", "print in a thread")

    fresh.give(task)
    await fresh.result(task)

    (line,) = capfd.readouterr().out.splitlines()
    assert line.endswith(f"[callback process {fresh.process.process.pid}] printed by a thread")


async def test_a_callback_process_knows_no_driver_and_no_address_of_the_store(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "DULY_STORE_DSN",
        "DULY_QUEUE_ENDPOINT_URL",
        "GRPC_ENABLE_FORK_SUPPORT",
        "DULY_EXECUTOR_SLOTS",
    ):
        monkeypatch.setenv(name, "secret")
    fresh = await callbacks.another()
    modules, environment = claimed("test.misbehave", "modules"), claimed("test.misbehave", "environment")

    fresh.give(modules, environment)

    loaded = set(value_of(await fresh.result(modules)))
    assert "duly" in loaded
    assert not loaded & {"grpc", "psycopg", "psycopg_pool", "boto3", "sqlalchemy", "structlog", "uvloop"}
    names = value_of(await fresh.result(environment))
    assert set(names) <= {"DULY_EXECUTOR_ID", "DULY_TELEMETRY_LOG_FORMAT"}


class RecordingCage(ProcessTree):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.proven = 0

    def holds(self, pid: int) -> None:
        self.pid = pid

    async def emptied(self) -> None:
        assert self.pid is None or not is_alive(self.pid)
        self.proven += 1


@pytest.mark.parametrize(
    "step",
    [
        "duly_executor.processes.process.ExitRecord",
        "socket.socketpair",
        "asyncio.create_subprocess_exec",
        "asyncio.open_connection",
    ],
)
async def test_of_a_start_that_fails_half_way_nothing_is_left(
    step: str, in_root: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(step, fail)
    tree, board, pids = RecordingCage(), SlotBoard.create(1, 1), [0]

    with pytest.raises(OSError, match="too many open files"):
        await CallbackProcess.start(
            0, "executor-id", APP, board, tree, note_process=lambda _, pid: pids.append(pid)
        )

    assert tree.proven == 1
    assert (tree.pid is not None) == (step == "asyncio.open_connection")
    assert pids[-1] == 0
