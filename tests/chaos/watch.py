"""Looks at the running system once a second: rows that nobody would look at again, processes that live."""

import asyncio
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg

from duly_core.clock import since_boot_ns
from tests.chaos import audit
from tests.chaos.history import Sample, Seen
from tests.chaos.journal import SUFFIX
from tests.chaos.stack import System
from tests.chaos.tree import descendants

_EVERY_S = 1.0
_SEEN_EVERY_S = 0.2
_SLACK = timedelta(seconds=20)
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

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._sample()), asyncio.create_task(self._look_for_processes())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._samples)

    def seen(self) -> tuple[Seen, ...]:
        """Each callback process, when it was last alive."""
        return tuple(self._seen.values())

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


def _is_alive(pid: int, made_ns: int) -> bool:
    """Whether the process that made a journal then still lives: not another of its number, and no zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        began_ns = int(fields[19]) * 10**9 // _CLOCK_TICKS
        return fields[0] not in ("Z", "X") and began_ns <= made_ns
    return False
