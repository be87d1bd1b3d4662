"""The kernel's timer: it ends the process at its instant, whatever Python does by then."""

import signal
import time
from datetime import timedelta

import pytest

from duly_core.process.clock import since_boot_ns
from tests.fixtures.programs import Programs, RunningProgram
from tests.fixtures.waiting import wait_until

MILLISECOND_NS = 1_000_000
LATE_BY_AT_MOST_NS = 250 * MILLISECOND_NS
"""Measured: 3 ms. The rest is how late a busy machine lets a test see it."""

ARMED = """
import ctypes, re, sys, threading, time
from duly_core.process.clock import since_boot_ns
from duly_executor.claims.kill_timer import KillTimer
kill_timer = KillTimer()
deadline = since_boot_ns() + int(sys.argv[1]) * 1_000_000
kill_timer.arm(deadline)
print("armed for", deadline, flush=True)
"""
BUSY = {
    "waits": "threading.Event().wait()",
    "computes": "while True: pass",
    "holds the GIL in C": "ctypes.PyDLL(None).sleep(20)",
    "holds the GIL in a regular expression": "re.match('(a*)*b', 'a' * 32)",
    "ignores every signal that can be": (
        "import signal\\n"
        "for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(number, signal.SIG_IGN)\\n"
        "threading.Event().wait()"
    ),
}


def end_of(program: RunningProgram) -> int:
    """When it had ended, in nanoseconds since boot."""
    wait_until(lambda: program.process.poll() is not None, timedelta(seconds=5))
    return since_boot_ns()


@pytest.mark.parametrize("what", BUSY)
def test_it_ends_a_process_that(programs: Programs, what: str) -> None:
    program = programs.start(ARMED + BUSY[what].replace("\\n", "\n"), 400)
    deadline = program.number_in("armed for")

    ended = end_of(program)

    assert program.process.returncode == -signal.SIGKILL
    assert deadline <= ended < deadline + LATE_BY_AT_MOST_NS


def test_it_ends_a_stopped_process(programs: Programs) -> None:
    program = programs.start(ARMED + BUSY["waits"], 400)
    deadline = program.number_in("armed for")

    program.send(signal.SIGSTOP)

    ended = end_of(program)
    assert program.process.returncode == -signal.SIGKILL
    assert deadline <= ended < deadline + LATE_BY_AT_MOST_NS


def test_arming_it_anew_postpones_the_end(programs: Programs) -> None:
    again = """
later = deadline + 300_000_000
kill_timer.arm(later)
print("now armed for", later, flush=True)
threading.Event().wait()
"""
    program = programs.start(ARMED + again, 400)
    deadline = program.number_in("now armed for")

    ended = end_of(program)

    assert deadline <= ended < deadline + LATE_BY_AT_MOST_NS


def test_arming_it_anew_may_bring_the_end_forward(programs: Programs) -> None:
    again = """
sooner = since_boot_ns() + 100_000_000
kill_timer.arm(sooner)
print("now armed for", sooner, flush=True)
threading.Event().wait()
"""
    program = programs.start(ARMED + again, 60_000)
    deadline = program.number_in("now armed for")

    assert deadline <= end_of(program) < deadline + LATE_BY_AT_MOST_NS


def test_an_instant_that_has_passed_ends_the_process_at_once(programs: Programs) -> None:
    program = programs.start(ARMED + BUSY["waits"], -1_000)

    end_of(program)

    assert program.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("arming", ["kill_timer.arm(None)", "kill_timer.arm(None)\nkill_timer.arm(None)"])
def test_a_disarmed_timer_ends_nothing(programs: Programs, arming: str) -> None:
    outlives_it = """
while since_boot_ns() < deadline + 100_000_000: threading.Event().wait(0.01)
print("alive at the end")
"""
    program = programs.start(f"{ARMED}\n{arming}\n{outlives_it}", 300)

    assert program.wait() == 0
    assert program.lines_with("alive at the end")


def test_a_fork_and_a_program_that_takes_its_place_are_not_ended(programs: Programs) -> None:
    survives = """
import os
if os.fork() == 0:
    while since_boot_ns() < deadline + 100_000_000: threading.Event().wait(0.01)
    print("the fork outlived", os.getppid(), flush=True)
    os._exit(0)
threading.Event().wait()
"""
    program = programs.start(ARMED + survives, 300)

    end_of(program)

    wait_until(lambda: program.lines_with("the fork outlived"))


def test_instants_are_those_of_the_clock_that_counts_suspended_time() -> None:
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    assert abs(since_boot_ns() - boot) < 1_000 * MILLISECOND_NS


def test_the_timer_runs_on_the_clock_that_counts_suspended_time(programs: Programs) -> None:
    # /proc names a timer's clock by its number
    program = programs.start(ARMED + BUSY["waits"], 5_000)
    program.wait_for_line("armed for")

    with open(f"/proc/{program.process.pid}/timers", encoding="ascii") as file:  # noqa: PTH123
        timers = file.read()

    assert f"ClockID: {time.CLOCK_BOOTTIME}" in timers
    assert f"signal: {signal.SIGKILL:d}/" in timers
