"""Commands that really run: their files, their ends, their limits, and what they cannot see or leave behind."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import duly
from duly.attachments.memory import MemoryService
from duly.callbacks.payload import encode
from duly.command_lambdas import runner
from duly.command_lambdas.definition import CommandLambda, CommandLambdas
from duly.command_lambdas.folder import OutputError, RunFolder
from duly.command_lambdas.request import Pattern, read_request
from duly.command_lambdas.supervised import Supervised
from duly.context import TaskContext
from duly.testing import TestRun, run
from duly_core.process.identity import lives
from duly_executor.callback.attempt import AsyncLoop, Attempt
from duly_wire.enums import AttachmentRole, Outcome, OutputStream
from duly_wire.ids import new_task_id
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.command_lambdas.allowed import command_lambda
from tests.fixtures.forked_process import ROOT
from tests.fixtures.waiting import wait_until

BASH = command_lambda(  # noqa: S604 (it is no subprocess)
    programs={"ps": "/usr/bin/ps", "gone": "/no/such/program", "folder": "/"},
    shell="/bin/bash",
    environment={"PATH": os.defpath.lstrip(":") + ":/usr/bin:/bin"},
)


FOR_LONG = "time.sleep(60)"
SHARES = f"import mmap, time; m = mmap.mmap(-1, 60 << 20); [m.write(bytes(1 << 20)) for _ in range(60)]; {FOR_LONG}"
"""A Python program with 60 MiB of memory that its children would share with it."""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not [*tmp_path.glob("duly-chore-*")]


class Runs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def app(self, allowed: CommandLambda) -> duly.App:
        return runner.make_app(CommandLambdas("", "", self.folder, (allowed,)))

    def __call__(self, payload: dict[str, Any], **changes: Any) -> TestRun:
        return run(self.app(replace(BASH, **changes)), BASH.name, payload)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def kept(done: TestRun) -> dict[AttachmentRole, bytes]:
    return {each.role: each.attachment.read() for each in done.kept}


def test_a_command_gets_files_and_leaves_files(runs: Runs) -> None:
    payload = {
        "script": "mkdir out; tr a-z A-Z < word.txt > out/big.txt; cat >> word.txt; echo done; echo oh >&2",
        "inputs": [duly.Attachment(b"word", name="word.txt"), duly.Attachment(b"same", name="same.txt")],
        "stdin": duly.Attachment(b"+", name="x"),
        "outputs": ["**/*.txt", "out/big.txt"],
        "stdout": "output.txt",
    }

    done = runs(payload)

    assert done.outcome is Outcome.SUCCESS, done
    assert {each["path"]: each["file"].read() for each in done.result["outputs"]} == {
        "out/big.txt": b"WORD",
        "word.txt": b"word+",  # an input that was changed is an output; one that was not is none
    }
    assert (done.result["exit_code"], done.result["seconds"] > 0) == (0, True)
    assert kept(done) == {AttachmentRole.STDOUT: b"done\n", AttachmentRole.STDERR: b"oh\n"}
    assert [each.attachment.name for each in done.kept] == ["output.txt", "stderr.txt"]


def test_argv_runs_without_a_shell(runs: Runs) -> None:
    done = runs({"argv": ["ps", "-p", "1", "-o", "pid=", "; echo $HOME"]})

    assert done.failure_message == "the command ended with exit code 1"
    assert b"HOME" not in kept(done)[AttachmentRole.STDOUT]


@pytest.mark.parametrize(
    ("payload", "changes", "outcome", "message"),
    [
        ({"script": "exit 3"}, {}, Outcome.RETRIABLE_FAILURE, "ended with exit code 3"),
        ({"script": "exit 3"}, {"exit_codes": {3: "fatal"}}, Outcome.FATAL_FAILURE, "ended with exit code 3"),
        ({"script": "exit 3"}, {"exit_codes": {3: "success"}}, Outcome.SUCCESS, ""),
        ({"script": "exit 3"}, {"exit_codes": {3: timedelta(minutes=5)}}, Outcome.SNOOZED, ""),
        ({"script": "kill -SEGV $$"}, {}, Outcome.RETRIABLE_FAILURE, "was killed by SIGSEGV"),
        ({"script": "true", "outputs": ["a"]}, {}, Outcome.RETRIABLE_FAILURE, "left no file for output 1"),
        ({"script": "true", "outputs": ["*"]}, {}, Outcome.SUCCESS, ""),
        ({"argv": ["gone"]}, {}, Outcome.RETRIABLE_FAILURE, "on this host: No such file or directory"),
        ({"argv": ["folder"]}, {}, Outcome.RETRIABLE_FAILURE, "on this host: Permission denied"),
        ({"argv": ["rm"]}, {}, Outcome.FATAL_FAILURE, "the program is not allowed here: ps, gone, folder"),
        (
            {"script": "touch $'a\\nb'", "outputs": ["*"]},
            {},
            Outcome.RETRIABLE_FAILURE,
            "whose name no attachment can have",
        ),
        (
            {"script": "touch $'\\xff'", "outputs": ["*"]},
            {},
            Outcome.RETRIABLE_FAILURE,
            "whose name no attachment can have",
        ),
        (
            {"script": "touch {1..100}", "outputs": ["*"]},
            {},
            Outcome.RETRIABLE_FAILURE,
            "more than 90 files: pack them into one",
        ),
    ],
)
def test_an_end_has_a_meaning(
    runs: Runs, payload: dict[str, Any], changes: dict[str, Any], outcome: Outcome, message: str
) -> None:
    done = runs(payload, **changes)

    assert (done.outcome, message in done.failure_message) == (outcome, True), done


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("yes", {"output_limit": 70_000}, "it wrote more than output_limit, 70000 bytes"),
        ("yes >&2", {}, "it wrote more than output_limit, 1MiB"),
        (
            "trap '' TERM; while :; do sleep 1; done",
            {"max_runtime": timedelta(seconds=0.3)},
            "longer than max_runtime, 0.3s",
        ),
        (
            "for i in {1..60}; do sleep 60 & done; wait",
            {},
            "more processes and threads than process_limit, 20",
        ),
        (
            "for i in {1..60}; do (setsid sleep 60 &) ; done; sleep 60",
            {},
            "more processes and threads than process_limit, 20",
        ),
        (
            "f() { if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & fi; sleep 60; }; f 7",  # a bomb with an end
            {},
            "more processes and threads than process_limit, 20",
        ),
        (
            "a=$(head -c 60M /dev/zero | tr '\\0' x); sleep 60",
            {"memory_limit": 40 << 20},
            "more memory than memory_limit, 40MiB",
        ),
        (
            f"exec {sys.executable} -c '{SHARES}'",
            {"memory_limit": 40 << 20},
            "more memory than memory_limit, 40MiB",
        ),
        ("head -c 20M /dev/zero > big", {}, "folder grew beyond folder_limit, 8MiB"),
        ("for i in {1..9}; do head -c 1M /dev/zero > $i; done", {}, "folder grew beyond folder_limit, 8MiB"),
        ("head -c 9M /dev/zero > $TMPDIR/a; sleep 60", {}, "folder grew beyond folder_limit, 8MiB"),
        ("kill -9 $PPID; sleep 60", {}, "what watched it is gone"),
    ],
)
def test_a_command_beyond_a_limit_is_killed_and_its_output_kept(
    runs: Runs, script: str, changes: dict[str, Any], message: str
) -> None:
    done = runs({"script": f"echo begun $$; {script}"}, **{"stop_grace": timedelta(seconds=0.1)} | changes)

    assert (done.outcome, message in done.failure_message) == (Outcome.RETRIABLE_FAILURE, True), done
    said = kept(done)[AttachmentRole.STDOUT]
    assert said.startswith(b"begun ")
    assert len(said) <= 1 << 20
    wait_until(lambda: not lives(int(said.split()[1])))


def test_memory_that_processes_share_counts_once(runs: Runs) -> None:
    others = "import os; [os.fork() or (sum(m[::4096]), time.sleep(0.5), os._exit(0)) for _ in range(4)]; time.sleep(0.5)"

    done = runs(
        {"script": f"{sys.executable} -c '{SHARES.replace(FOR_LONG, others)}'"}, memory_limit=200 << 20
    )

    assert done.outcome is Outcome.SUCCESS, done


def test_nothing_that_a_command_starts_outlives_it(runs: Runs) -> None:
    done = runs({"script": "(setsid sleep 600 >/dev/null 2>&1 & echo $!)"})

    assert done.outcome is Outcome.SUCCESS
    assert not lives(int(kept(done)[AttachmentRole.STDOUT]))


def test_a_command_sees_nothing_of_the_workers_environment(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "DULY_TOKEN", "HOME"):
        monkeypatch.setenv(name, "s3cret")

    done = runs({"script": "env; tr '\\0' '\\n' < /proc/$PPID/environ; ls /proc/self/fd"})

    said = kept(done)[AttachmentRole.STDOUT].decode()
    assert "s3cret" not in said
    names = {line.partition("=")[0] for line in said.splitlines() if "=" in line}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD", "LD_LIBRARY_PATH"} == {"PATH", "HOME", "TMPDIR"}
    assert [line for line in said.splitlines() if line.isdigit()] == [
        "0",
        "1",
        "2",
        "3",
    ]  # the last is that of ls


def test_bytes_that_are_no_text_are_kept_as_they_are(runs: Runs) -> None:
    garbage = bytes(range(256)) * 300

    done = runs({"script": "cat", "stdin": duly.Attachment(garbage)})

    assert kept(done)[AttachmentRole.STDOUT] == garbage


def test_links_are_no_outputs_and_lead_nowhere(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("s3cret")
    script = f"ln -s {tmp_path}/outside/secret.txt link.txt; ln -s {tmp_path}/outside folder; mkfifo pipe.txt; echo a > own.txt"

    done = runs({"script": script, "outputs": ["**/*.txt"]})

    assert [each["path"] for each in done.result["outputs"]] == ["own.txt"]
    assert (tmp_path / "outside" / "secret.txt").exists()


def test_files_times_patterns_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.command_lambdas.folder._MOST_COMPARISONS", 100)
    with RunFolder(tmp_path) as folder:
        for number in range(30):
            (folder.work / f"{number}.txt").touch()

        assert folder.files([Pattern("7.txt"), Pattern("8.txt"), Pattern("**/9.txt")]) == [
            "7.txt",
            "8.txt",
            "9.txt",
        ]
        with pytest.raises(OutputError, match="too many files for so many patterns"):
            folder.files([Pattern(f"**/{number}.txt") for number in range(4)])


def test_a_folder_is_removed_while_other_tasks_of_the_process_go_on(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_no_loop(path: Path) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        shutil.rmtree(path)

    monkeypatch.setattr("duly.command_lambdas.folder.remove", on_no_loop)

    done = runs({"script": "true"})

    assert done.outcome is Outcome.SUCCESS, done


_PLAIN_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
"""Root, without what lets it pass over the rights of files."""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv (util-linux)")
def test_a_folder_goes_whatever_rights_it_has(tmp_path: Path) -> None:
    path = tmp_path / "duly-chore-x"
    script = "mkdir -p $0/run/a/b; touch $0/run/a/b/c; ln -s / $0/run/a/link; chmod 000 $0/run/a/b $0/run/a; chmod 500 $0/run"
    subprocess.run(["/bin/sh", "-c", script, path], check=True, timeout=30)
    call = "import sys, pathlib; from duly.command_lambdas.folder import remove; remove(pathlib.Path(sys.argv[1]))"
    plain = _PLAIN_USER if os.getuid() == 0 else ()

    subprocess.run([*plain, sys.executable, "-c", call, path], check=True, timeout=30, cwd=ROOT)

    assert not path.exists()
    assert Path("/bin/sh").exists()


@pytest.fixture
def full_disk() -> Iterator[BinaryIO]:
    with Path("/dev/full").open("wb", 0) as file:
        yield file


async def test_a_command_is_ended_when_the_disk_is_full_for_its_output(
    tmp_path: Path, full_disk: BinaryIO
) -> None:
    with RunFolder(tmp_path) as folder, folder.unnamed_file() as errors:
        command = Supervised(BASH, {1: full_disk, 2: errors}, lambda *_: None)
        try:
            command.start(read_request(BASH, {"script": "yes"}), folder, None)
            ended = await command.end()
        finally:
            await command.close()

    assert ended.limit == "disk"


class Running:
    """A command in a slot, as a callback process runs it."""

    def __init__(self, app: duly.App, script: str) -> None:
        self._service = MemoryService()
        task = hsc_pb2.ClaimedTask(
            claim=hsc_pb2.Claim(task_id=new_task_id().bytes, token=bytes(16)),
            payload=encode({"script": script})[0],
            payload_encoding=task_pb2.ENCODING_JSON,
        )
        setattr(task, "lambda", BASH.name)
        self.followed: list[tuple[int, bytes]] = []
        context = TaskContext.for_task(
            task, services=self, output=lambda stream, data: self.followed.append((stream, data))
        )
        self._thread = ThreadPoolExecutor(max_workers=1)
        made: Future[Attempt] = Future()

        def in_slot() -> hsc_pb2.TaskResult:
            attempt = Attempt(task, context, AsyncLoop())
            made.set_result(attempt)
            return attempt.run(app.callbacks[BASH.name], context)

        self.result = self._thread.submit(in_slot)
        self.attempt = made.result(10)

    def for_task(self, _task_id: bytes) -> MemoryService:
        return self._service


@pytest.mark.parametrize(
    ("at_sigterm", "grace", "said"),
    [("echo bye; exit 0", 5, b"bye\n"), ("", 0.1, b"")],  # an empty trap: it ignores the signal
)
def test_a_cancelled_command_may_end_by_itself_and_is_killed_after_its_grace(
    runs: Runs, tmp_path: Path, at_sigterm: str, grace: float, said: bytes
) -> None:
    app = runs.app(replace(BASH, stop_grace=timedelta(seconds=grace)))
    begun = tmp_path / "begun"
    running = Running(app, f"trap '{at_sigterm}' TERM; echo $$ > {begun}; while :; do sleep 0.01; done")
    pid = int(wait_until(lambda: begun.exists() and begun.read_text().strip()))

    running.attempt.stop()

    result = running.result.result(20)
    assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    assert result.attachments[0].size_bytes == len(said)
    assert b"".join(data for stream, data in running.followed if stream == OutputStream.STDOUT) == said
    assert not lives(pid)


def test_an_interrupted_command_is_killed_at_once(runs: Runs, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    running = Running(runs.app(BASH), f"trap '' TERM; echo $$ > {begun}; while :; do sleep 0.01; done")
    pid = int(wait_until(lambda: begun.exists() and begun.read_text().strip()))

    running.attempt.interrupt()

    result = running.result.result(20)
    assert result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME
    assert not lives(pid)


def test_commands_do_not_run_where_nothing_of_them_could_be_kept(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise duly.AttachmentsOffError("attachments are off")

    monkeypatch.setattr(MemoryService, "call", refuse)

    done = runs({"script": f"touch {tmp_path}/ran"})

    assert (done.outcome, "attachments are off" in done.failure_message) == (Outcome.RETRIABLE_FAILURE, True)
    assert not (tmp_path / "ran").exists()


def test_folders_of_dead_workers_are_removed_and_those_in_use_stay(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "duly-chore-dead" / "work").mkdir(parents=True)
    (tmp_path / "other").mkdir()

    with RunFolder(tmp_path) as folder:
        runs.app(BASH)

        assert {each.name for each in tmp_path.iterdir()} == {"other", folder.path.name}


def test_no_program_takes_an_input_for_its_settings(runs: Runs) -> None:
    settings = duly.Attachment(b"use_askpass=/bin/false", name=".wgetrc")

    done = runs(
        {"script": 'test -e .wgetrc && test -d "$HOME" && test ! -e "$HOME/.wgetrc"', "inputs": [settings]}
    )

    assert done.outcome is Outcome.SUCCESS, done
