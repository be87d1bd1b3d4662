"""Workers as children of the autoscaler: on one machine, as in `duly up --elastic`."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import LocalSpec
from duly_autoscaler.events import log
from duly_core.pools.rules import Pool
from duly_core.process.parent import PARENT_PID
from duly_core.process.service import EXIT_CONFIG

_NOT_INHERITED = {
    # of the autoscaler itself
    "DULY_TELEMETRY_METRICS_LISTEN": "",
    "DULY_CONTROLLER_HEALTH_LISTEN": "",
    "DULY_STORE_DSN": "",
    "DULY_AUTOSCALER_DRIVERS": "",
}


@dataclass(slots=True)
class _Doubt:
    """A worker of a pool said that starting it again cannot help."""

    reason: str
    is_told: bool = False
    trial: int | None = None
    """The process that was started since, to find out whether it helps now."""


class LocalDriver:
    """Its workers end when it does: they drain."""

    ends_workers = False

    def __init__(self, spec: LocalSpec, drain_timeout: timedelta) -> None:
        self._spec = spec
        self._patience = drain_timeout
        self._children: dict[int, Process] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._doubts: dict[str, _Doubt] = {}
        """By pool, until a worker that was started since has reported."""

    async def ensure(self, order: Order) -> None:
        """Start as many as are to be started; of a pool in doubt one, to find out whether it works now."""
        doubt = self._doubts.get(order.pool.name)
        if doubt is not None and not self._is_over(doubt, order):
            if doubt.is_told and doubt.trial not in self._children:
                doubt.trial = await self._start(order.pool)
            doubt.is_told = True
            raise DriverError(doubt.reason)
        self._doubts.pop(order.pool.name, None)
        for _ in range(order.start):
            await self._start(order.pool)

    def _is_over(self, doubt: _Doubt, order: Order) -> bool:
        """Whether a worker came that was started since, or none is missing any more."""
        if doubt.trial in self._children and doubt.trial in map(_pid_of, order.workers):
            return True
        return doubt.is_told and not order.start

    async def _start(self, pool: Pool) -> int:
        spec = self._spec
        labels = [word for label in pool.labels for word in ("--label", label)]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "duly_cli",
                "worker",
                spec.application,
                "--pool",
                pool.name,
                *labels,
                *spec.arguments,
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the autoscaler, which drains them
            )
        except OSError as error:
            raise DriverError(f"a worker cannot be started: {error}") from error
        self._children[process.pid] = process
        watching = asyncio.get_running_loop().create_task(self._watch(pool.name, process))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        log.info("worker started", pool=pool.name, pid=process.pid)
        return process.pid

    @staticmethod
    def _environment() -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        inherited.pop("DULY_STORE_DSN_FILE", None)
        return inherited | {PARENT_PID: str(os.getpid())}

    async def _watch(self, pool: str, process: Process) -> None:
        code = await process.wait()
        self._children.pop(process.pid, None)
        if code == EXIT_CONFIG:
            self._doubts.setdefault(pool, _Doubt("")).reason = (
                f"a worker of {self._spec.application} ended with code {code}: it cannot work as it is set up; its "
                "own message in the log says why"
            )
        (log.info if code == 0 else log.warning)("worker ended", pool=pool, pid=process.pid, code=code)

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:  # noqa: ARG002 (ids are of all pools)
        """Send SIGTERM to those that are children of this process; the others learn it by their reports."""
        for host_id in host_ids:
            if (process := self._children.get(_pid_of(host_id))) is not None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)

    async def close(self) -> None:
        """Have all drain and end; kill those that take too long."""
        children = [*self._children.values()]
        for process in children:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        if self._watching:
            await asyncio.wait({*self._watching}, timeout=self._patience.total_seconds())
        for process in [*self._children.values()]:
            log.error("worker killed: drain timeout", pid=process.pid)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if self._watching:
            await asyncio.wait({*self._watching})


def _pid_of(host_id: str) -> int:
    """Return the process of a host by its id, NAME:PID:...; -1: it says none."""
    _, _, rest = host_id.partition(":")
    pid, _, _ = rest.partition(":")
    return int(pid) if pid.isdigit() else -1
