"""Workers as children of the autoscaler: on one machine, as in `duly up --elastic`."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
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


class LocalDriver:
    """Its workers end when it does: they drain."""

    ends_workers = False

    def __init__(self, spec: LocalSpec, drain_timeout: timedelta) -> None:
        self._spec = spec
        self._patience = drain_timeout
        self._children: dict[int, Process] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._hopeless: str | None = None
        """Why a worker said that starting it again cannot help."""

    async def ensure(self, order: Order) -> None:
        """Start as many as are to be started."""
        hopeless, self._hopeless = self._hopeless, None
        if hopeless is not None:
            raise DriverError(hopeless)
        for _ in range(order.start):
            await self._start(order.pool)

    async def _start(self, pool: Pool) -> None:
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

    @staticmethod
    def _environment() -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        inherited.pop("DULY_STORE_DSN_FILE", None)
        return inherited | {PARENT_PID: str(os.getpid())}

    async def _watch(self, pool: str, process: Process) -> None:
        code = await process.wait()
        self._children.pop(process.pid, None)
        if code == EXIT_CONFIG:
            self._hopeless = (
                f"a worker of {self._spec.application} ended with code {code}: it cannot work as it is set up; its "
                "own message in the log says why"
            )
        (log.info if code == 0 else log.warning)("worker ended", pool=pool, pid=process.pid, code=code)

    async def drain(self, pool: Pool, host_ids: Sequence[str]) -> None:  # noqa: ARG002 (ids are of all pools)
        """Send SIGTERM to those that are children of this process; the others learn it by their reports."""
        for host_id in host_ids:
            _, _, rest = host_id.partition(":")
            pid, _, _ = rest.partition(":")
            if pid.isdigit() and (process := self._children.get(int(pid))) is not None:
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
