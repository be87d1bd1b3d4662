"""Keeps the processes of a run alive: forks each again when it ends, unless a fault holds it down."""

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from duly_core.errors import DulyError
from duly_local.processes import clear_group, how_it_ended, signal_group
from tests.chaos.fork_client import ForkServer
from tests.fixtures.service_processes import health_of

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 1.0
_HEALTHY_AFTER_S = 3.0
_GRACE_S = 12.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Spec:
    """One process."""

    name: str
    role: str
    environment: Mapping[str, str]
    health_address: str
    arguments: tuple[str, ...] = ()
    last_words: timedelta = timedelta(seconds=1)
    """How long what it leaves behind in its process group may take to end by itself."""


class ProcessKeeper:
    """Keeps one of them."""

    def __init__(self, spec: Spec, fork_server: ForkServer, logs: Path) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.ready = asyncio.Event()
        self.held_down = 0
        """By so many faults."""
        self._fork_server = fork_server
        self._log = logs / f"{spec.name}.log"
        self._stopping = False
        self._process: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._process = asyncio.create_task(self._keep())

    @property
    def failure(self) -> BaseException | None:
        """Why it is not kept any more."""
        process = self._process
        return (
            process.exception()
            if process is not None and process.done() and not process.cancelled()
            else None
        )

    async def stop(self) -> None:
        """SIGTERM, and after the grace SIGKILL to its process group."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        await asyncio.wait({process}, timeout=_GRACE_S)
        if not process.done():
            self._say(f"still runs {_GRACE_S:g} s after SIGTERM; killing it")
            if self.pid is not None:
                signal_group(self.pid, signal.SIGKILL)
            await asyncio.wait({process})
        if not process.cancelled():
            process.exception()

    async def _keep(self) -> None:
        delay = _FIRST_DELAY_S
        while not self._stopping:
            if self.held_down:
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            began = time.monotonic()
            code = await self._run_once()
            if self._stopping:
                if code:
                    self._say(f"{how_it_ended(code)} while it was to stop")
                return
            if code == os.EX_CONFIG:
                raise DulyError(f"{self.spec.name} cannot work as it is set up: see {self._log}")
            if time.monotonic() - began > _HEALTHY_AFTER_S:
                delay = _FIRST_DELAY_S
            self._say(f"{how_it_ended(code)}; starting it again")
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY_S)

    async def _run_once(self) -> int:
        with self._log.open("ab", buffering=0) as log:
            process = await self._fork_server.fork(
                self.spec.role, self.spec.arguments, self.spec.environment, log.fileno()
            )
        self.pid = process.pid
        watching = asyncio.create_task(self._watch_readiness())
        try:
            if self._stopping:  # `stop` came while it started
                signal_group(process.pid, signal.SIGKILL)
            code = await process.ended
        finally:
            watching.cancel()
            self.pid = None
            self.ready.clear()
        await clear_group(process.pid, self.spec.last_words)
        return code

    async def _watch_readiness(self) -> None:
        while await health_of(self.spec.health_address) != "SERVING":
            await asyncio.sleep(_LOOK_EVERY_S)
        self.ready.set()

    def _say(self, line: str) -> None:
        with self._log.open("ab") as log:
            log.write(f"[chaos] {line}\n".encode())


class ProcessKeepers:
    """All of a run."""

    def __init__(self, specs: Iterable[Spec], fork_server: ForkServer, logs: Path) -> None:
        logs.mkdir(exist_ok=True)
        self._keepers = {spec.name: ProcessKeeper(spec, fork_server, logs) for spec in specs}

    def start(self) -> None:
        for keeper in self._keepers.values():
            keeper.start()

    async def wait_until_ready(self, within: timedelta) -> None:
        """Until all are.

        Raises:
            DulyError: names those that are not.
        """
        deadline = time.monotonic() + within.total_seconds()
        while missing := [
            name for name, keeper in self._keepers.items() if not (keeper.ready.is_set() or keeper.held_down)
        ]:
            failure = next(filter(None, (keeper.failure for keeper in self._keepers.values())), None)
            if failure is not None:
                raise failure
            if time.monotonic() > deadline:
                raise DulyError(f"not ready after {within.total_seconds():g} s: {', '.join(missing)}")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def stop(self) -> None:
        """Hosts first: what they finish is stored by the others."""
        hosts = [keeper for name, keeper in self._keepers.items() if name.startswith("host")]
        others = [keeper for keeper in self._keepers.values() if keeper not in hosts]
        for keepers in (hosts, others):
            await asyncio.gather(*(keeper.stop() for keeper in keepers))

    def hold_down(self, name: str) -> None:
        """Do not start it again, until `let_up`."""
        self._keepers[name].held_down += 1

    def let_up(self, name: str) -> None:
        self._keepers[name].held_down -= 1

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        return {name: keeper.pid for name, keeper in self._keepers.items() if keeper.pid is not None}
