"""Programs in a callback process and under an Executor: cancels, timeouts, crashes, neighbours, and what is left of them."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from duly_core.host.slot_board import SlotBoard
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.process import CallbackProcess, Overdue
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.fixtures.callback_process import Callbacks
from tests.fixtures.host import Host, claimed, gone, value_of

pytestmark = pytest.mark.timeout(120)

SLOTS = 4
SCRIPT = r"""
trap 'echo "$id" >>"$0.told"; exit 1' TERM
task() { IFS= read -r line || exit 0; id=${line#*'"id":"'}; id=${id%%'"'*}; }
say() { printf '{"type":"%s","id":"%s"%s}\n' "$1" "$id" "$2"; }
echo '{"type":"ready"}'
while task; do
  say progress ",\"fraction\":0,\"note\":\"$$\""
  case $line in
    *'"payload":"pid"'*) say success ",\"result\":$$";;
    *'"payload":"obey"'*) IFS= read -r line; case $line in *'"cancel"'*"$id"*) say cancelled;; esac;;
    *'"payload":"flood"'*) while :; do say progress ",\"fraction\":0.5,\"note\":\"$$\""; done;;
    *'"payload":"log"'*) while :; do echo noise >&2; done;;
    *'"payload":"die"'*) kill -9 $$;;
    *) while :; do sleep 0.05; done;;
  esac
done
"""


@pytest.fixture
def application(tmp_path: Path) -> str:
    """What `duly worker --exec` hands to its Executors."""
    file = tmp_path / "program.sh"
    file.write_text(SCRIPT)
    return "duly.programs:" + json.dumps({"exec": f"sh {file}", "lambdas": ["test.program"]})


@pytest.fixture
async def programs(application: str) -> AsyncIterator[Callbacks]:
    """A callback process that runs it."""
    board = SlotBoard.create(1, SLOTS)
    process = await CallbackProcess.start(0, "executor-id", application, board, ProcessTree())
    await process.hello()
    made = Callbacks(process, board)
    yield made
    process.kill()
    await process.ended()
    for report in made.reports:
        for progress in report.progress:
            with suppress(ValueError, ProcessLookupError):
                os.kill(int(progress.note), signal.SIGKILL)


def task(payload: str, **claim: object) -> hsc_pb2.ClaimedTask:
    return claimed("test.program", payload, **claim)  # type: ignore[arg-type]


def pid_of(callbacks: Callbacks, task: hsc_pb2.ClaimedTask) -> int:
    """The program that runs a task; 0: none has said so yet."""
    told = (each for report in callbacks.reports for each in report.progress if each.note.isdigit())
    return next((int(each.note) for each in told if each.task_id == task.claim.task_id), 0)


async def running(callbacks: Callbacks, task: hsc_pb2.ClaimedTask) -> int:
    callbacks.give(task)
    pid: int = await callbacks.until(lambda: pid_of(callbacks, task))
    return pid


async def test_a_program_is_told_of_a_cancel_and_may_obey(programs: Callbacks) -> None:
    obeys = task("obey")
    await running(programs, obeys)

    programs.process.cancel([obeys.claim.task_id])

    assert (await programs.result(obeys)).outcome == hsc_pb2.OUTCOME_CANCELLED


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_program_that_does_not_end_is_asked_by_a_signal_and_killed(
    programs: Callbacks, cancelled: bool, tmp_path: Path
) -> None:
    stubborn, neighbour = task("wait", max_runtime=timedelta(seconds=9)), task("wait")
    pid, other = await running(programs, stubborn), await running(programs, neighbour)
    if cancelled:
        programs.process.cancel([stubborn.claim.task_id])

    programs.process.interrupt({stubborn.claim.task_id: Overdue(0, "max_runtime", hsc_pb2.TaskResult())})

    result = await programs.result(stubborn)
    await gone(pid)
    assert len((tmp_path / "program.sh.told").read_text().split()) == 1
    os.kill(other, 0)
    if cancelled:
        assert result.outcome == hsc_pb2.OUTCOME_CANCELLED
    else:
        assert result.failure_kind == task_pb2.FAILURE_KIND_MAX_RUNTIME


async def test_programs_that_flood_their_pipes_delay_no_neighbour(programs: Callbacks) -> None:
    floods = [task("flood"), task("log")]
    for flood in floods:
        await running(programs, flood)

    calm = [task("pid") for _ in range(20)]
    programs.give(*calm)

    pids = {value_of(await programs.result(each)) for each in calm}
    assert len(pids) <= SLOTS - len(floods)
    assert not any(programs.result_of(flood) for flood in floods)


async def test_a_program_that_dies_is_a_crash_and_none_outlives_its_executor(
    host: Host, application: str
) -> None:
    executor = host.start("--processes", 1, "--slots", SLOTS, application=application)
    await host.controller.until(lambda: host.controller.asked)
    dies, waits, says = task("die"), task("wait"), task("pid")

    host.hand_out(dies, waits, says)

    crash = await host.hsc.end_of(dies)
    assert (crash.outcome, crash.failure_kind) == (hsc_pb2.OUTCOME_CRASHED, task_pb2.FAILURE_KIND_CRASH)
    assert crash.failure_message == "the program was killed by SIGKILL"
    assert value_of(await host.hsc.end_of(says))
    await host.hsc.beat_of(waits)
    pid = await host.hsc.until(lambda: _noted_pid(host, waits))
    executor.kill()
    await gone(pid)


def _noted_pid(host: Host, task: hsc_pb2.ClaimedTask) -> int:
    items = (item for request in host.hsc.beats for item in request.items if item.claim == task.claim)
    return next((int(item.progress_note) for item in items if item.progress_note.isdigit()), 0)
