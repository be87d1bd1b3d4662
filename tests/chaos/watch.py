"""Looks at the running system every two seconds: rows that nobody would look at again, processes that live, a busy machine."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg

from duly_core.process.clock import since_boot_ns
from tests.chaos import audit
from tests.chaos.history import MACHINE_BUSY, Fault, Sample, Seen
from tests.chaos.journal import SUFFIX
from tests.chaos.process_tree import descendants
from tests.chaos.stack import System

_EVERY_S = 2.0
_SEEN_EVERY_S = 0.4
_SLACK = timedelta(seconds=20)
_PACE_EVERY_S = 1.0
_BUSY = 0.4
"""A machine on which a process waits for so much of its time to run breaks deadlines as a fault does."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Starts, and stops."""

    def __init__(self, system: System) -> None:
        self._system = system
        jumps = [abs(fault.amount) for fault in system.plan.faults if fault.kind == "clock_jump"]
        self._horizon = system.plan.lease + _SLACK + timedelta(seconds=max(jumps, default=0))
        self._samples: list[Sample] = []
        self._seen: dict[str, Seen] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._busy: list[tuple[Fault, int]] = []
        """With how long one process waited, of the one that did longest."""
        self.starved_ns = 0
        """How much of the time since the start the machine had no time for us."""

    def start(self) -> None:
        looks = (self._sample(), self._look_for_processes(), self._watch_pace())
        self._tasks = [asyncio.create_task(look) for look in looks]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._samples)

    def seen(self) -> tuple[Seen, ...]:
        """Each callback process, when it was last alive."""
        return tuple(self._seen.values())

    def busy(self, least_ns: int = 0) -> tuple[Fault, ...]:
        """When the machine was too slow to keep to any timing; `least_ns`: to one that allows for so long."""
        return tuple(fault for fault, waited_ns in self._busy if waited_ns >= least_ns)

    async def _watch_pace(self) -> None:
        """By what the kernel says of us and of every service: how long it waited to run, of the one that did longest."""
        at_ns, waited = since_boot_ns(), self._waited()
        while True:
            await asyncio.sleep(_PACE_EVERY_S)
            now_ns, waited_now = since_boot_ns(), self._waited()
            longest = max(waited_now[pid] - waited[pid] for pid in waited_now.keys() & waited.keys())
            if longest > (now_ns - at_ns) * _BUSY:
                self.starved_ns += longest
                before, before_ns = self._busy[-1] if self._busy else (None, 0)
                if before is not None and before.until_ns == at_ns:
                    self._busy[-1] = replace(before, until_ns=now_ns), before_ns + longest
                else:
                    self._busy.append((Fault(MACHINE_BUSY, "machine", at_ns, now_ns), longest))
            at_ns, waited = now_ns, waited_now

    def _waited(self) -> dict[int, int]:
        """Nanoseconds that we, and each service that runs, waited for a processor so far; by process."""
        found = {os.getpid(): _wait_of(os.getpid())}
        for pid in self._system.pids():
            with suppress(OSError, ValueError):  # it has just ended
                found[pid] = _wait_of(pid)
        return found

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            with suppress(psycopg.Error, OSError):
                self._samples.append(await asyncio.to_thread(self._look))

    def _look(self) -> Sample:
        options = "-c statement_timeout=3000"
        with psycopg.connect(
            self._system.postgres.dsn,
            autocommit=True,
            connect_timeout=3,
            application_name="chaos",
            options=options,
        ) as connection:
            return audit.sample(connection, self._horizon, len(descendants(os.getpid())))

    async def _look_for_processes(self) -> None:
        dead: set[str] = set()
        while True:
            for path in self._system.journal.iterdir():
                process = path.name.removesuffix(SUFFIX)
                if process == path.name or process in dead:
                    continue
                pid, _, made_ns = process.partition("-")
                now_ns = since_boot_ns()
                if _is_alive(int(pid), int(made_ns)):
                    self._seen[process] = Seen(int(pid), process, now_ns)
                else:
                    dead.add(process)
            await asyncio.sleep(_SEEN_EVERY_S)


def _wait_of(pid: int) -> int:
    _, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(waited)


def _is_alive(pid: int, made_ns: int) -> bool:
    """Whether the process that made a journal then still lives: not another of its number, and no zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began_ns = int(fields[19]) * 10**9 // _CLOCK_TICKS
        return fields[0] not in ("Z", "X") and began_ns <= made_ns
    return False
