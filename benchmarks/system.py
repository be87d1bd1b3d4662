"""What is measured: a system that runs, with its workers and a submitter, whatever system it is."""

import asyncio
import json
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import CALLBACK_ENVIRONMENT, marks
from duly_local.parent_death_signal import parent_death_signal
from duly_local.processes import end_program

ROOT = Path(__file__).parents[1]

_STOP_WITHIN = timedelta(seconds=10)
_LOOK_EVERY = 0.02
_WARM_UP = 200
_READY_WITHIN = 60.0


class BenchmarkError(Exception):
    """A measurement that could not be taken, and why."""


class Program:
    """A process of the benchmark: it dies with us, and writes into a log."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path, **pipes: int) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **CALLBACK_ENVIRONMENT, "PYTHONPATH": str(ROOT), **environment},
                stdin=pipes.get("stdin", subprocess.DEVNULL),
                stdout=pipes.get("stdout", output),
                stderr=output,
                start_new_session=True,
                preexec_fn=parent_death_signal(signal.SIGTERM),  # noqa: PLW1509 (it makes two system calls)
            )

    def stop(self) -> None:
        """End it, and what it started."""
        end_program(self.process, (signal.SIGTERM,), _STOP_WITHIN)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Driver:
    """The submitter's process (see driver.py)."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def ask(self, do: str, **command: Any) -> dict[str, Any]:
        """Have it carry out a command; its answer."""
        return await asyncio.to_thread(self._exchange, {"do": do, **command})

    def _exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        process = self._program.process
        if process.stdin is None or process.stdout is None:
            raise BenchmarkError("the driver was started without pipes")
        try:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise BenchmarkError("the driver ended: see its log")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(f"the driver could not {command['do']}: {answer['error']}")
        return answer


@asynccontextmanager
async def driving(
    python: str, module: str, environment: Mapping[str, str], folder: Path
) -> AsyncIterator[Driver]:
    """A driver for as long as the context lasts."""
    command = [python, "-m", "benchmarks.driver", module]
    log = folder / "driver.log"
    program = Program(command, environment, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Driver(program)
    finally:
        program.stop()


class Running(ABC):
    """A system with its services up; workers come and go."""

    def __init__(self, driver: Driver, noted: marks.Marks) -> None:
        self.driver = driver
        self.marks = noted
        self.submitted = 0
        """Tasks so far; the next one's number."""

    @abstractmethod
    async def start_workers(self) -> None: ...

    @abstractmethod
    async def stop_workers(self) -> None: ...

    def numbers(self, tasks: int) -> int:
        """Take that many numbers; the first of them."""
        first, self.submitted = self.submitted, self.submitted + tasks
        return first

    async def started(self, tasks: range, within: float) -> None:
        """Wait until each of these tasks has started."""
        deadline = time.monotonic() + within
        while True:
            self.marks.look()
            if len(self.marks.starts) >= len(tasks) and all(n in self.marks.starts for n in tasks):
                return
            if time.monotonic() > deadline:
                missing = sum(1 for number in tasks if number not in self.marks.starts)
                raise BenchmarkError(f"{missing} of {len(tasks)} tasks did not start within {within:g} s")
            await asyncio.sleep(_LOOK_EVERY)

    async def any_started(self, tasks: range, within: float) -> None:
        """Wait until the first of these tasks has started."""
        deadline = time.monotonic() + within
        while not any(number in self.marks.starts for number in tasks):
            self.marks.look()
            if time.monotonic() > deadline:
                raise BenchmarkError(f"none of {len(tasks)} tasks started within {within:g} s")
            await asyncio.sleep(_LOOK_EVERY / 4)

    async def settled(self, within: float) -> int:
        """Wait until the system keeps nothing that is to run: every end is stored. Nanoseconds of the wall clock."""
        deadline = time.monotonic() + within
        while (answer := await self.driver.ask("left"))["left"]:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{answer['left']} tasks had not ended after {within:g} s")
            await asyncio.sleep(_LOOK_EVERY / 4)
        return int(answer["ended_at"])

    async def warm_up(self, processes: int) -> None:
        """Run tasks until every process of the workers has run some."""
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            first = self.numbers(_WARM_UP)
            await self.driver.ask("single", first=first, tasks=_WARM_UP)
            await self.started(range(first, first + _WARM_UP), _READY_WITHIN)
            await self.settled(_READY_WITHIN)
            if self.marks.processes >= processes:
                return
            if time.monotonic() > deadline:
                raise BenchmarkError(
                    f"only {self.marks.processes} of {processes} worker processes took tasks"
                )


@dataclass(frozen=True)
class Description:
    """What a reader must know to judge the figures."""

    title: str
    settings: str
    durability: str


class System(ABC):
    """One of those that are measured side by side."""

    name: str
    description: Description
    processes: int
    """That run tasks."""
    holds_back = False
    """Due tasks cost it work even while no worker runs: pure submits are for another day."""

    def missing(self) -> str:
        """Why it cannot be run here; empty: it can."""
        return ""

    @abstractmethod
    def running(self, folder: Path) -> AbstractAsyncContextManager[Running]:
        """Start its services, in a folder of its own; stop them."""
