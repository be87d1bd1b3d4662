"""Programs that run lambdas: what comes of each thing that they say, of each rule that they break, and of their ends."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.callbacks.payload import SentPayload
from duly.callbacks.predecessors import Predecessor, Predecessors
from duly.programs import program_app
from duly.programs.instance import Instance
from duly.programs.json_lines import JsonLines, payload_field
from duly.programs.messages import Task
from duly.testing import TestRun, run
from duly_executor.callback.attempt import AsyncLoop
from duly_wire.ids import new_task_id_text
from duly_wire.v1 import task_pb2

pytestmark = pytest.mark.timeout(60)

NAME = "test.program"
IN_SHELL = """
task() { IFS= read -r line || exit 0; id=${line#*'"id":"'}; id=${id%%'"'*}; }
say() { printf '{"type":"%s","id":"%s"%s}\\n' "$1" "$id" "$2"; }
echo '{"type":"ready"}'
"""
"""Enough of a program to be understood: `task` waits for one, `say TYPE ',"field":value'` answers."""

Served = Callable[..., duly.App]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """An application of a shell script."""

    def make(script: str, begin: str = IN_SHELL, **options: Any) -> duly.App:
        file = tmp_path / "program.sh"
        file.write_text(begin + script)
        return program_app(["sh", str(file)], [NAME], **options)

    return make


ANSWERS = {
    "a value": ("""say success ',"result":{"n":[1,"é"]}'""", duly.Outcome.SUCCESS, {"n": [1, "é"]}),
    "nothing": ("say success", duly.Outcome.SUCCESS, None),
    "bytes": ("""say success ',"result_base64":"AAH/"'""", duly.Outcome.SUCCESS, b"\x00\x01\xff"),
    "blank lines": ("echo; echo; say success", duly.Outcome.SUCCESS, None),
    "retry": (
        """say retry ',"message":"the relay is busy"'""",
        duly.Outcome.RETRIABLE_FAILURE,
        "the relay is busy",
    ),
    "fatal": ("""say fatal ',"message":"no such mailbox"'""", duly.Outcome.FATAL_FAILURE, "no such mailbox"),
    "snooze": ("""say snooze ',"delay":90'""", duly.Outcome.SNOOZED, timedelta(seconds=90)),
    "retry later": (
        """say retry ',"message":"busy","retry_after":0.5'""",
        duly.Outcome.RETRIABLE_FAILURE,
        timedelta(seconds=0.5),
    ),
    "an end": ("say success; exit 0", duly.Outcome.SUCCESS, None),
    "an end in failure": ("say success; exit 7", duly.Outcome.SUCCESS, None),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_a_program_answers_is_what_became_of_the_attempt(case: str, served: Served) -> None:
    script, outcome, value = ANSWERS[case]

    done = run(served(f"while task; do {script}; done"), NAME)

    assert done.outcome is outcome
    assert value in (done.result, done.failure_message, done.retry_after)


BROKEN = {
    "text": ("echo hello", "line 2 of its stdout: not JSON.*; log to stderr"),
    "a number": ("echo 1", "a message is a JSON object"),
    "half a message": ("""echo '{"type":"succ'""", "line 2 of its stdout: not JSON"),
    "not UTF-8": (r"""printf '\377\n'""", "not JSON: not UTF-8"),
    "NaN": ("""say success ',"result":NaN'""", "NaN is not JSON"),
    "an unknown type": ("say done", '"type" is not one of ready, progress'),
    "no type": ("echo {}", '"type" is not one of'),
    "no id": ("""echo '{"type":"success"}'""", '"id" is missing'),
    "a misspelled field": ("""say success ',"resullt":1'""", 'a "success" has 1 more fields'),
    "base64 that is none": ("""say success ',"result_base64":"%%%"'""", '"result_base64" is not base64'),
    "progress beyond the end": (
        """say progress ',"fraction":1.5'""",
        '"fraction" is not a number from 0 to 1',
    ),
    "a note that is no text": (
        r"""say progress ',"fraction":0.5,"note":"\ud800"'""",
        '"note" has a lone surrogate',
    ),
    "no delay": ("say snooze", '"delay" is not a number of seconds'),
    "a delay of ages": ("""say snooze ',"delay":1e300'""", '"delay" is not a number of seconds'),
    "two years": ("""say snooze ',"delay":63072000'""", "between 0 and 365 days"),
    "another's task": ("id=x; say success", "of a task that the program was not given"),
    "ready again": ("""echo '{"type":"ready"}'""", 'it said "ready" twice'),
    "no stdout": ("exec 1>&-; sleep 60", "it closed its stdout and went on"),
    "no stdin": ("exec 0<&-; sleep 60", "it closed its stdin and went on"),
    "a huge checkpoint": (
        """say checkpoint ',"value":"'"$(head -c 70000 /dev/zero | tr '\\0' x)"'"'""",
        "the limit is 65,536",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_program_that_breaks_the_protocol_fails_its_attempt_and_says_how(case: str, served: Served) -> None:
    script, problem = BROKEN[case]

    done = run(served(f"task; {script}; sleep 60"), NAME)

    assert done.outcome is duly.Outcome.RETRIABLE_FAILURE
    assert done.failure_kind is duly.FailureKind.CALLBACK
    assert re.search(problem, done.failure_message), done.failure_message


def test_a_line_without_an_end_is_given_up_before_it_fills_the_memory(served: Served) -> None:
    done = run(served("task; while :; do printf %4096s x; done"), NAME)

    assert done.outcome is duly.Outcome.RETRIABLE_FAILURE
    assert "line 2 of its stdout is longer than 8,388,608 bytes" in done.failure_message


ENDS = {
    "exit 0": ("exit 0", "the program ended with exit code 0"),
    "exit 3": ("exit 3", "the program ended with exit code 3"),
    "a signal": ("kill -9 $$", "the program was killed by SIGKILL"),
    "progress first": ("""say progress ',"fraction":0.5'; exit 1""", "the program ended with exit code 1"),
    "a child that holds the pipe": ("sleep 60 & exit 2", "the program ended with exit code 2"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_program_that_ends_without_an_answer_is_a_crash_of_its_task(case: str, served: Served) -> None:
    script, problem = ENDS[case]

    done = run(served(f"task; {script}"), NAME)

    assert done.outcome is duly.Outcome.CRASHED
    assert done.failure_kind is duly.FailureKind.CRASH
    assert done.failure_message == problem


STARTS = {
    "no such file": (["./nobody-has-this"], "cannot be started: No such file or directory"),
    "no program": (["/"], "cannot be started: Permission denied"),
    "ends": (["false"], "ended with exit code 1 before it was ready"),
    "talks": (["echo", "hello"], "was not ready: line 1 of its stdout: not JSON"),
    "is silent": (["sleep", "60"], "did not say that it is ready within 0.5 s"),
    "a task first": (["echo", '{"type":"success","id":"x"}'], 'its first message is not "ready"'),
}


@pytest.mark.parametrize("case", STARTS)
def test_a_program_that_cannot_start_is_refused_with_its_reason(case: str) -> None:
    argv, problem = STARTS[case]

    with pytest.raises(duly.RegistrationError) as refused:
        program_app(argv, [NAME], start_timeout=timedelta(seconds=0.5 if case == "is silent" else 30))

    assert problem in str(refused.value)


def test_no_task_is_charged_for_a_program_that_cannot_be_started_any_more(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.programs.program._FIRST_PAUSE", 0.01)
    app = served("task; say success")
    (tmp_path / "program.sh").unlink()

    done = run(app, NAME)

    assert (done.outcome, done.retry_after) == (duly.Outcome.SNOOZED, timedelta(seconds=10))


def test_progress_and_checkpoints_reach_the_task_and_the_next_attempt_gets_the_last(served: Served) -> None:
    app = served(
        """task
        say progress ',"fraction":0.25,"note":"a quarter"'
        say checkpoint ',"value":[1]'
        case $line in *'"checkpoint":{"at":7}'*) say success ',"result":"went on"';; *) say retry;; esac
        """
    )

    first, second = run(app, NAME), run(app, NAME, attempt=2, checkpoint={"at": 7})

    assert first.progress == ((0.25, "a quarter"),)
    assert first.checkpoints == ([1],)
    assert second.result == "went on"


def test_a_program_is_told_what_a_callback_can_know(served: Served) -> None:
    app = served("""task; say success ',"result":'"$line" """)

    seen = run(
        app, NAME, [1, "é\n"], attempt=3, fence=9, priority=duly.Priority.HIGH, results={"a": b"\x00"}
    ).result

    assert seen.pop("deadline") > seen.pop("due_at")
    assert len(seen.pop("completion_token")) == 64
    predecessor = seen.pop("graph")["predecessors"]["a"]
    assert (predecessor["status"], predecessor["result_base64"]) == ("success", "AA==")
    assert len(seen.pop("id")) == 36
    assert seen == {
        "type": "task",
        "lambda": NAME,
        "attempt": 3,
        "fence": 9,
        "priority": "high",
        "payload": [1, "é\n"],
    }


PAYLOADS = {
    "a number that no double holds": (
        b'{"n": 12345678901234567890.50}',
        '"payload":{"n": 12345678901234567890.50}',
    ),
    "line breaks": (b'{\r\n"n":1\n}', '"payload":{  "n":1 }'),
    "none": (b"", '"payload":null'),
}


@pytest.mark.parametrize("case", PAYLOADS)
def test_a_payload_comes_on_one_line_as_it_was_sent(case: str) -> None:
    data, text = PAYLOADS[case]

    name, value = payload_field(SentPayload(data, task_pb2.ENCODING_JSON))

    assert f'"{name}":{value.decode()}' == text


def test_no_text_can_end_the_line_of_a_task_however_a_language_divides_lines(served: Served) -> None:
    app = served("""task; say success ',"result":'"$line" """)
    text = 'a\u2028{"type":"cancel"}\u2029b\x85c'

    seen = run(app, NAME, text, checkpoint=text, results={"a": text}).result

    told = seen["payload"], seen["checkpoint"], seen["graph"]["predecessors"]["a"]["result"]
    assert told == (text,) * 3
    line = JsonLines.write(Task(SentPayload(b"1", task_pb2.ENCODING_JSON), _context(checkpointed=text)))
    assert len(line.decode().splitlines()) == 1


def test_a_program_is_told_of_a_node_that_was_removed_and_of_results_with_attachments() -> None:
    stored = json.dumps({"$duly.attachment": {"hash": "0" * 64, "size": 1, "name": "x"}}).encode()
    context = _context(graph_id="g", predecessors=Predecessors())
    for label, status, data, encoding in (
        ("gone", None, b"", task_pb2.ENCODING_JSON),
        ("inside", duly.TaskStatus.SUCCESS, stored, task_pb2.ENCODING_JSON),
        ("whole", duly.TaskStatus.SUCCESS, stored, task_pb2.ENCODING_ATTACHMENT),
    ):
        context.predecessors[label] = Predecessor(label, "t", status, data, encoding)

    line = JsonLines.write(Task(SentPayload(b"1", task_pb2.ENCODING_JSON), context))

    assert json.loads(line)["graph"]["predecessors"] == {
        "gone": {"id": "t", "status": "removed", "result": None},
        "inside": {"id": "t", "status": "success", "result": json.loads(stored)},
        "whole": {"id": "t", "status": "success", "result_omitted": True},
    }


def _context(**more: Any) -> duly.TaskContext:
    now = datetime.now(UTC)
    context = duly.TaskContext(
        task_id=new_task_id_text(),
        lambda_name=NAME,
        priority=duly.Priority.NORMAL,
        attempt=1,
        fence=1,
        due_at=now,
        deadline=now,
    )
    for name, value in more.items():
        setattr(context, name, value)
    return context


def test_a_payload_that_is_no_json_comes_to_no_program(served: Served) -> None:
    callback = served("task; say success").callbacks[NAME]

    with pytest.raises(duly.PayloadError, match="not JSON"):
        callback.read(b'{"n":1}\n{"type":"cancel"}', task_pb2.ENCODING_JSON)


def test_an_answer_is_read_though_the_program_ended_while_its_output_rested(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.programs.instance._REST", 1e6)  # as if the first message had taken long to read

    done = run(served("""task; say progress ',"fraction":0'; sleep 0.1; say success"""), NAME)

    assert done.outcome is duly.Outcome.SUCCESS


def test_a_program_that_joins_another_process_group_is_ended_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(JOINS)
    app = program_app([sys.executable, str(file)], [NAME])

    done = run(app, NAME)

    assert "not JSON" in done.failure_message


JOINS = """
import os, sys
os.setpgid(0, os.getpgid(os.getppid()))
print('{"type":"ready"}', flush=True)
sys.stdin.readline()
print("hello", flush=True)
os.read(os.pipe()[0], 1)
"""


# ---- in protobuf ---------------------------------------------------------------------------------------


PROTOBUF = """
import sys
from google.protobuf.proto import parse_length_prefixed, serialize_length_prefixed
from duly_wire.v1 import program_pb2 as p, task_pb2
out, come = sys.stdout.buffer, sys.stdin.buffer
def say(**report):
    serialize_length_prefixed(p.ProgramReport(**report), out)
    out.flush()
say(ready=p.ProgramReady())
while (order := parse_length_prefixed(p.ProgramOrder, come)) is not None:
    task = order.task
    say(id=task.id, progress=p.ProgramProgress(fraction=0.5, note="half"))
    say(id=task.id, checkpoint=b'{"at": 1}')
    kind = task.payload.decode()
    if kind == "echo":
        say(id=task.id, success=p.ProgramSuccess(result=task.payload, result_encoding=task_pb2.ENCODING_RAW))
    elif kind == "garbage":
        out.write(b"\\xff" * 9)
        out.flush()
    elif kind == "other":
        say(id="x", success=p.ProgramSuccess())
    else:
        say(id=task.id, retry=p.ProgramFailure(message="busy %d" % len(task.checkpoint)))
"""


def test_a_program_may_speak_protobuf(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROTOBUF)
    app = program_app([sys.executable, str(tmp_path / "program.py")], [NAME], messages="protobuf")

    echoed, busy = run(app, NAME, b"echo"), run(app, NAME, b"retry", checkpoint={"at": 7})
    garbage, other = run(app, NAME, b"garbage"), run(app, NAME, b"other")

    assert (echoed.result, echoed.progress, echoed.checkpoints) == (b"echo", ((0.5, "half"),), ({"at": 1},))
    assert (busy.outcome, busy.failure_message) == (duly.Outcome.RETRIABLE_FAILURE, "busy 8")
    assert "message 4 of its stdout is longer than 8,388,608 bytes" in garbage.failure_message
    assert "of a task that the program was not given" in other.failure_message


# ---- several tasks -------------------------------------------------------------------------------------


@pytest.fixture
def on_one_loop() -> Iterator[Callable[[duly.App], TestRun]]:
    """Attempts as a callback process runs them: the programs live on between them."""
    loop = AsyncLoop()
    yield lambda app: run(app, NAME, run_async=lambda coroutine: loop.submit(coroutine).result())
    loop.submit(_end_all()).result()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


SECOND = {
    "an instance is kept": ("while task; do n=$((n+1)); say success ',\"result\":'$n; done", [1, 2, 3]),
    "one that ends is started anew": ("task; say success ',\"result\":1'", [1, 1, 1]),
    "one that ends as the next comes": ("task; say success ',\"result\":1'; task; exit 0", [1, 1, 1]),
    "one that fails as the next comes": ("task; say success ',\"result\":1'; task; exit 7", [1, 1, 1]),
    "one that is killed as the next comes": (
        "task; say success ',\"result\":1'; task; kill -9 $$",
        [1, 1, 1],
    ),
    "one that answers twice": ("while task; do say success ',\"result\":1'; say success; done", [1, 1, 1]),
    "one that answers again later": (
        (
            "task; first=$id; say success ',\"result\":1'; task; second=$id; id=$first; say fatal; "
            "id=$second; say success ',\"result\":2'"
        ),
        [1, 2, 1],
    ),
    "one that talks between tasks": (
        "task; say success ',\"result\":1'; echo hello; while task; do :; done",
        [1, 1, 1],
    ),
}


@pytest.mark.parametrize("case", SECOND)
def test_what_a_program_does_after_an_answer_harms_no_other_task(
    case: str, served: Served, on_one_loop: Callable[[duly.App], TestRun]
) -> None:
    script, results = SECOND[case]
    app = served(script)

    done = [on_one_loop(app) for _ in results]

    assert [each.outcome for each in done] == [duly.Outcome.SUCCESS] * len(results)
    assert [each.result for each in done] == results


def test_what_a_program_logs_before_its_answer_is_of_its_task_and_not_of_the_next(
    served: Served, on_one_loop: Callable[[duly.App], TestRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = ContextVar[int]("of")
    logged = []

    def log_slowly(instance: Instance, lines: bytes) -> None:
        threading.Event().wait(0.02)  # as where the log's reader is slow
        logged.append((instance._speaker[of], lines))

    monkeypatch.setattr(Instance, "_log", log_slowly)
    app = served("while task; do n=$((n+1)); echo $n >&2; say success; [ $n -lt 3 ] || exit; done")

    for number in (1, 2, 3):
        of.set(number)
        on_one_loop(app)

    assert logged == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_a_task_that_ends_each_program_is_a_crash_though_the_first_of_them_had_run_others(
    served: Served, on_one_loop: Callable[[duly.App], TestRun], tmp_path: Path
) -> None:
    app = served(f"task; [ -e {tmp_path}/poison ] && exit 7; say success; task; exit 7")
    on_one_loop(app)
    (tmp_path / "poison").touch()

    done = on_one_loop(app)

    assert (done.outcome, done.failure_message) == (
        duly.Outcome.CRASHED,
        "the program ended with exit code 7",
    )


def test_half_a_line_that_a_program_logs_is_of_its_task_and_not_of_the_next(
    served: Served, on_one_loop: Callable[[duly.App], TestRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = ContextVar[int]("of")
    logged = []
    monkeypatch.setattr(
        Instance, "_log", lambda instance, lines: logged.append((instance._speaker[of], lines))
    )
    app = served("while task; do n=$((n+1)); printf $n >&2; say success; [ $n -lt 3 ] || exit; done")

    for number in (1, 2, 3):
        of.set(number)
        on_one_loop(app)

    assert logged == [(1, b"1"), (2, b"2"), (3, b"3")]
