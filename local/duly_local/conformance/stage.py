"""What a duty works with: the tasks that it makes, what it waits for, and the worker under test."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from duly_local.conformance.server import Faults, ScriptedDuly
from duly_local.conformance.tasks import HOUR, SuiteTask, Tasks, payload_of

ECHO = "conformance.echo"
BYTES = "conformance.bytes"
END = "conformance.end"
CONTEXT = "conformance.context"
TICK = "conformance.tick"
CRASH = "conformance.crash"
_LINES = 5
LAMBDAS = (ECHO, BYTES, END, CONTEXT, TICK, CRASH)


class BrokenError(Exception):
    """The worker breaks the duty; says how."""


class NotTestedError(Exception):
    """The duty could not be judged; says why."""


class Ticks:
    """The file in which a run of conformance.tick shows that it runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"ticks-{uuid4().hex}"

    def lines(self) -> list[tuple[int, int]]:
        """Return process and fence of each tick, in the order in which they came."""
        with contextlib.suppress(FileNotFoundError):
            words = [line.split() for line in self.path.read_text(encoding="ascii").splitlines()]
            return [(int(pid), int(fence)) for pid, fence in (each for each in words if len(each) == 2)]
        return []

    def let_end(self) -> None:
        """Let it succeed."""
        self.path.with_name(self.path.name + ".stop").touch()


class Stage:
    """One run of the suite."""

    def __init__(
        self,
        duly: ScriptedDuly,
        tasks: Tasks,
        folder: Path,
        command: tuple[str, ...],
        environment: dict[str, str],
        patience: timedelta,
        log: Path | None = None,
    ) -> None:
        self.duly = duly
        self.tasks = tasks
        self.folder = folder
        self.ticks: list[tuple[SuiteTask, Ticks]] = []
        self.patience = patience.total_seconds()
        self.lease = tasks.lease.total_seconds()
        self.started_at = time.monotonic()
        self._command = command
        self._log = log or folder / "worker.log"
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    # ---- the worker ------------------------------------------------------------------------------------

    @property
    def starts_it(self) -> bool:
        """Whether the suite starts the worker; somebody else does otherwise."""
        return bool(self._command)

    @property
    def lives(self) -> bool:
        """Whether the worker that the suite started lives."""
        return self._process is not None and self._process.returncode is None

    async def worker(self) -> None:
        """Have a worker that asks for work.

        Raises:
            BrokenError: it does not come to that.
        """
        since = self.started_at
        if self._command and not self.lives:
            since = self.started_at = time.monotonic()
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env={**os.environ, **self._environment},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        asked = await self.within(
            lambda: self.duly.seen("ClaimWork begun", since) or (self._command and not self.lives),
            3 * self.patience,
        )
        if self._command and not self.lives:
            raise BrokenError(f"the worker ended while it started; the end of its log:\n{self._last_lines()}")
        if not asked:
            raise BrokenError("no worker asks for work (ClaimWork)")

    def _last_lines(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        return "\n".join(text.splitlines()[-_LINES:])

    def signal(self, number: int) -> None:
        """Send the worker's own process a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    async def end(self) -> None:
        """End the worker with all that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            await self.within(lambda: not self.lives, 3)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    # ---- tasks -----------------------------------------------------------------------------------------

    async def schedule(self, lambda_name: str, payload: Any = None, **fields: Any) -> SuiteTask:
        """Make a task that is due now."""
        task = SuiteTask(lambda_name, *payload_of(payload), **fields)
        self.tasks.all[task.task_id] = task
        return task

    async def tick(
        self, *, stubborn: bool = False, max_runtime: timedelta = HOUR, crashes: int = 0
    ) -> tuple[SuiteTask, Ticks]:
        """Make a task that shows that it runs."""
        ticks = Ticks(self.folder)
        payload = {"file": str(ticks.path), "stubborn": stubborn}
        task = await self.schedule(TICK, payload, max_runtime=max_runtime, crashes=crashes)
        self.ticks.append((task, ticks))
        return task, ticks

    async def running(self, **options: Any) -> tuple[SuiteTask, Ticks]:
        """Make one, and wait until it runs.

        Raises:
            BrokenError: it does not.
        """
        task, ticks = await self.tick(**options)
        await self.until(ticks.lines, "conformance.tick writes nothing into its file")
        return task, ticks

    async def result(self, task: SuiteTask) -> Any:
        """Wait for a task's result.

        Raises:
            BrokenError: none comes.
        """
        await self.until(lambda: task.applied, f"no result of {task.lambda_name} came")
        return task.applied[-1]

    # ---- waiting ---------------------------------------------------------------------------------------

    async def until(self, told: Callable[[], Any], otherwise: str, seconds: float | None = None) -> Any:
        """Wait for something.

        Raises:
            BrokenError: it does not come in time; says `otherwise`.
        """
        if not (found := await self.within(told, self.patience if seconds is None else seconds)):
            raise BrokenError(otherwise)
        return found

    async def within(self, told: Callable[[], Any], seconds: float) -> Any:
        """Wait for something, no longer than this; what it was, if it came."""
        deadline = time.monotonic() + seconds
        while not (found := told()) and time.monotonic() < deadline:
            self.tasks.reclaim()
            await asyncio.sleep(0.02)
        return found

    async def still(self, ticks: Ticks, seconds: float) -> bool:
        """Return whether nothing ticks for so long."""
        before = len(ticks.lines())
        await self.within(lambda: False, seconds)
        return len(ticks.lines()) == before

    async def clear(self) -> None:
        """Let a duty leave nothing to the next one."""
        self.duly.faults.away.clear()
        self.duly.faults.delay.clear()
        self.duly.faults.next.clear()
        for _, ticks in self.ticks:
            ticks.let_end()
        for task in self.tasks.all.values():
            task.due = False
        await self.within(lambda: not any(task.held for task in self.tasks.all.values()), 2)
        self.tasks.forget()

    @property
    def faults(self) -> Faults:
        """What goes wrong."""
        return self.duly.faults
