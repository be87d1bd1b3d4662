"""Keeps as many callback processes alive as are wanted: the ordinary ones, and isolated ones while they are needed."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly_core.process.loop import wait_for
from duly_executor.processes.process import CallbackProcess
from duly_executor.processes.starter import ProcessStarter
from duly_executor.settings import ExecutorSettings
from duly_wire.v1 import registry_pb2

_REST = 4
"""Beyond the first few, an isolated process is started after so many times as long as a start takes: a quarter of a processor
goes into it at most, however many tasks crash."""


class ProcessSupervisor:
    """The processes by number; a number is a place on the slot board."""

    def __init__(
        self,
        starter: ProcessStarter,
        settings: ExecutorSettings,
        serve: Callable[[CallbackProcess], Awaitable[bool]],
        changed: Callable[[], None],
    ) -> None:
        """Make one.

        Args:
            starter: starts processes.
            settings: how many there are to be.
            serve: listens to a process until it has ended; whether it told anything.
            changed: told when a process was added or has ended.
        """
        self._starter = starter
        self._free = list(range(settings.places))
        self._ordinary = settings.processes
        self._isolated = settings.isolated_processes
        self._is_debugged = bool(settings.debug_port)
        """Whether a debugger attaches to the one ordinary process, at a port that another must not take."""
        self._serve = serve
        self._changed = changed
        self.processes: dict[int, CallbackProcess] = {}
        """Those that live, as far as is known."""
        self._starting = {False: 0, True: 0}
        """How many are being started: ordinary ones, and isolated ones."""
        self._failures = 0
        """Ordinary processes in a row that died before they had told anything."""
        self._credit = float(self._isolated)
        """How many may be started isolated now."""
        self._credit_at = 0.0
        self._start_took = 0.0
        self._lives: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._failed: Callable[[BaseException], None] = lambda _: None

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the ordinary processes; the application's lambdas. `failed` is told of an end that nobody expects.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        self._failed = failed
        lambdas: list[registry_pb2.Lambda] = []
        for _ in range(self._ordinary):
            number = heapq.heappop(self._free)
            self.processes[number], lambdas = await self._starter.first(number)
        for process in [*self.processes.values()]:
            self._begin(self._listen(process))
        return lambdas

    async def close(self) -> None:
        """Kill all processes; return when they are buried."""
        self._closing.set()
        self._starter.close()
        for process in self.processes.values():
            process.kill(b"")
        await asyncio.gather(*self._lives, return_exceptions=True)

    def balance(self, wanted_isolated: int) -> None:
        """Start what is missing: ordinary processes, and as many isolated ones as are wanted, up to the most there may be."""
        if self._closing.is_set():
            return
        self._retire_old()
        working = [process for process in self.processes.values() if process.works]
        staying = sum(not process.isolated and not process.is_old for process in working)
        missing = self._ordinary - self._starting[False] - staying
        for process in working:
            if missing > 0 and process.isolated and process.is_free:  # it is warm
                process.isolated = False
                missing -= 1
                self._retire_old()
        has_overdue = not self._is_debugged and any(process.overdue for process in working)
        if has_overdue and not any(process.isolated and process.is_free for process in working):
            wanted_isolated += 1  # one of these may have to be replaced soon
        isolated = self._starting[True] + sum(process.isolated for process in working)
        self._start_some(missing, isolated=False)
        self._start_some(
            min(wanted_isolated - self._starting[True], self._isolated - isolated), isolated=True
        )

    def _retire_old(self) -> None:
        """Let old processes go whose successors are there."""
        ordinary = sum(process.works and not process.isolated for process in self.processes.values())
        for process in self.processes.values():
            if process.is_old and process.works and (process.isolated or ordinary > self._ordinary):
                ordinary -= not process.isolated
                process.retire()

    def retire(self, idle_since: float) -> None:
        """End the isolated processes in which nothing has ended since then (the loop's time)."""
        for process in self.processes.values():
            if process.isolated and process.is_free and process.idles_since(idle_since):
                process.kill(b"")

    def _start_some(self, count: int, *, isolated: bool) -> None:
        for _ in range(min(count, len(self._free))):
            self._starting[isolated] += 1
            self._begin(self._start(heapq.heappop(self._free), isolated=isolated))

    def _begin(self, life: Awaitable[None]) -> None:
        task = asyncio.ensure_future(life)
        self._lives.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._lives.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def _start(self, number: int, *, isolated: bool) -> None:
        try:
            process = await (self._start_isolated(number) if isolated else self._start_ordinary(number))
        finally:
            self._starting[isolated] -= 1
        if process is None:
            heapq.heappush(self._free, number)
            return
        process.isolated = isolated
        self.processes[number] = process
        self._changed()
        await self._listen(process)

    async def _start_ordinary(self, number: int) -> CallbackProcess | None:
        return await self._starter.again(number, self._failures)

    async def _start_isolated(self, number: int) -> CallbackProcess | None:
        loop = asyncio.get_running_loop()
        while (wait := self._credit_missing(loop.time())) > 0:
            if await wait_for(self._closing, timedelta(seconds=wait)):
                return None
        self._credit -= 1
        began = loop.time()
        process = await self._starter.again(number, 0)
        if process is not None:
            self._start_took = loop.time() - began
            process.ended_at = loop.time()
        return process

    def _credit_missing(self, now: float) -> float:
        """In how many seconds a process may be started isolated."""
        if self._start_took:
            gained = (now - self._credit_at) / (_REST * self._start_took)
            self._credit = min(float(self._isolated), self._credit + gained)
        self._credit_at = now
        return (1 - self._credit) * _REST * self._start_took if self._credit < 1 else 0

    async def _listen(self, process: CallbackProcess) -> None:
        told = await self._serve(process)
        if told:
            self._failures = 0
        elif process.killed_for is None and not process.isolated:
            self._failures += 1
        heapq.heappush(self._free, process.number)
        if not self._closing.is_set():
            self._changed()
