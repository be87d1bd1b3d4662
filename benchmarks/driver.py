"""The submitter's process, of any system, in either venv: `python -m benchmarks.driver MODULE`.

MODULE has a class `Submitter`. Commands come as lines of JSON on stdin, answers go as lines of JSON to stdout; the
process stays until stdin ends, so that its CPU time and its connections' are still there to be read.
"""

import asyncio
import importlib
import json
import sys
import time
from typing import Any, Protocol

import uvloop


class Submitting(Protocol):
    """What each system's `Submitter` does."""

    callers: int
    """How many single calls at a time serve it best, 16 at most."""
    bulk: int
    """How many tasks a call of the bulk API takes; 0: there is none."""
    bulk_takes_times: bool
    """Whether that call takes a due time for each task, or one for all."""

    async def open(self) -> None: ...

    async def one(self, number: int, due_at: float | None = None) -> None:
        """Submit a task with one call; `due_at` in seconds of the wall clock, None: now."""

    async def many(self, numbers: range, due_at: list[float] | None = None) -> None:
        """Submit tasks by the bulk API."""

    async def left(self) -> int:
        """How many tasks it still keeps, of those that are to run."""

    async def close(self) -> None: ...


async def submit(submitter: Submitting, numbers: range, due_at: list[float] | None = None) -> None:
    """One task a call."""
    waiting = iter(zip(numbers, due_at or [None] * len(numbers), strict=True))

    async def caller() -> None:
        for number, due in waiting:
            await submitter.one(number, due)

    await asyncio.gather(*(caller() for _ in range(submitter.callers)))


async def paced(submitter: Submitting, numbers: range, every: float) -> list[int]:
    """One task at a time, `every` seconds; when each call began."""
    called = []
    for number in numbers:
        called.append(time.time_ns())
        await submitter.one(number)
        await asyncio.sleep(every)
    return called


async def lone(submitter: Submitting, numbers: range, due_at: list[float] | None) -> list[int]:
    """One caller, one call at a time; nanoseconds of each."""
    took = []
    for number, due in zip(numbers, due_at or [None] * len(numbers), strict=True):
        before = time.perf_counter_ns()
        await submitter.one(number, due)
        took.append(time.perf_counter_ns() - before)
    return took


async def obey(submitter: Submitting, command: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command."""
    began_at, cpu = time.time_ns(), time.process_time()
    numbers = range(command.get("first", 0), command.get("first", 0) + command.get("tasks", 0))
    due_at = command.get("due_at")
    if isinstance(due_at, int | float):  # one for all
        due_at = [due_at] * len(numbers)
    answer: dict[str, Any] = {}
    match command["do"]:
        case "single":
            await submit(submitter, numbers, due_at)
        case "bulk":
            await submitter.many(numbers, due_at)
        case "paced":
            answer["called"] = await paced(submitter, numbers, command["every"])
        case "lone":
            answer["took"] = await lone(submitter, numbers, due_at)
        case "left":
            answer["left"] = await submitter.left()
        case "hello":
            answer |= {"bulk": submitter.bulk, "bulk_takes_times": submitter.bulk_takes_times}
        case "call":  # something that only this system's submitter knows
            answer["returned"] = await getattr(submitter, command["method"])(*command.get("arguments", ()))
    return answer | {"began_at": began_at, "ended_at": time.time_ns(), "cpu": time.process_time() - cpu}


async def main() -> None:
    submitter: Submitting = importlib.import_module(sys.argv[1]).Submitter()
    await submitter.open()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = await obey(submitter, json.loads(line))
        except Exception as error:  # noqa: BLE001 (whatever it is, the other side reports it)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    await submitter.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
