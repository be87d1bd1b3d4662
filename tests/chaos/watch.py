"""Looks at the running system once a second: rows that nobody would look at again, processes that live, a busy machine."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg

from duly_core.clock import since_boot_ns
from tests.chaos import audit
from tests.chaos.history import Fault, Sample, Seen
from tests.chaos.journal import SUFFIX
from tests.chaos.stack import System
from tests.chaos.tree import descendants

_EVERY_S = 1.0
_SEEN_EVERY_S = 0.2
_SLACK = timedelta(seconds=20)
_PACE_EVERY_S = 0.5
_BUSY = 3.0
"""A machine that is so many times slower than it could be breaks deadlines as a fault does."""
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
        self._busy: list[Fault] = []
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

    def busy(self) -> tuple[Fault, ...]:
        """When the machine was too slow to keep to any timing."""
        return tuple(self._busy)

    async def _watch_pace(self) -> None:
        """By what the kernel says of ourselves: how long we ran, and how long we waited to."""
        at_ns, ran, waited = since_boot_ns(), *_pace()
        while True:
            await asyncio.sleep(_PACE_EVERY_S)
            now_ns, ran_now, waited_now = since_boot_ns(), *_pace()
            slowness = 1 + (waited_now - waited) / max(1, ran_now - ran)
            self.starved_ns += int((now_ns - at_ns) * (1 - 1 / slowness))
            if slowness > _BUSY:
                before = self._busy[-1] if self._busy else None
                if before is not None and before.until_ns == at_ns:
                    self._busy[-1] = replace(before, until_ns=now_ns)
                else:
                    self._busy.append(Fault("machine_busy", "machine", at_ns, now_ns))
            at_ns, ran, waited = now_ns, ran_now, waited_now

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
        while True:
            for path in self._system.journal.glob(f"*{SUFFIX}"):
                process = path.name.removesuffix(SUFFIX)
                pid, _, made_ns = process.partition("-")
                now_ns = since_boot_ns()
                if _is_alive(int(pid), int(made_ns)):
                    self._seen[process] = Seen(int(pid), process, now_ns)
            await asyncio.sleep(_SEEN_EVERY_S)


def _pace() -> tuple[int, int]:
    """Nanoseconds that this process has run, and waited for a processor."""
    ran, waited, _ = Path("/proc/self/schedstat").read_text().split()
    return int(ran), int(waited)


def _is_alive(pid: int, made_ns: int) -> bool:
    """Whether the process that made a journal then still lives: not another of its number, and no zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began_ns = int(fields[19]) * 10**9 // _CLOCK_TICKS
        return fields[0] not in ("Z", "X") and began_ns <= made_ns
    return False
