"""Starts a host's Executors, starts them again when they die, and drains them at the end."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from duly_core.errors import ApplicationError
from duly_core.process.loop import backoff, wait_for
from duly_core.process.parent import PARENT_PID
from duly_core.process.service import EXIT_CONFIG

log = structlog.get_logger()

_HEALTHY_AFTER = timedelta(seconds=10)
"""A process that lived this long starts again at once."""


class Supervisor:
    """Runs until told to stop, or until an Executor says that starting it again cannot help."""

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        metrics_port: int,
        controller_address: str,
        hsc_address: str,
        journal_folder: Path,
        patience: timedelta,
    ) -> None:
        """Make one.

        Args:
            count: how many Executors to keep alive.
            arguments: what each is told on its command line.
            metrics_port: of the first of them, the next has the next; 0: none.
            controller_address: where they attach.
            hsc_address: where they report.
            journal_folder: where they journal their claims.
            patience: how long a stopping one may take, its own grace included, before it is killed.
        """
        self._count = count
        self._arguments = arguments
        self._metrics_port = metrics_port
        self._address = controller_address
        self._hsc_address = hsc_address
        self._journal_folder = journal_folder
        self._patience = patience
        self._no_patience = asyncio.Event()
        self._hopeless: ApplicationError | None = None
        self._was_healthy = False
        """An Executor ran for long: what keeps one from starting now may pass, and callbacks may be the cause."""

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the Executors alive until `stop`.

        Raises:
            ApplicationError: an Executor ended with EX_CONFIG before one ran for long; it has said on stderr what is wrong.
        """
        keepers = [
            asyncio.get_running_loop().create_task(self._keep(number, stop)) for number in range(self._count)
        ]
        await stop.wait()
        if keepers:  # a second signal means: at once
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(signal_number, self._no_patience.set)
        await asyncio.gather(*keepers)
        if self._hopeless:
            raise self._hopeless

    async def _keep(self, number: int, stop: asyncio.Event) -> None:
        settings = {
            PARENT_PID: str(os.getpid()),
            "DULY_EXECUTOR_HSC_ADDRESS": self._hsc_address,  # where this host claims it also reports
            "DULY_EXECUTOR_JOURNAL_FOLDER": str(self._journal_folder),
            "DULY_TELEMETRY_METRICS_LISTEN": f"127.0.0.1:{self._metrics_port + number}"
            if self._metrics_port
            else "",
        }
        loop = asyncio.get_running_loop()
        failures = 0
        while not stop.is_set():
            started = loop.time()
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",  # callbacks may be able to write to the working folder
                    "-m",
                    "duly_executor",
                    "--controller",
                    self._address,
                    *self._arguments,
                    env=os.environ | settings,
                    stdin=asyncio.subprocess.DEVNULL,
                )
            except OSError as error:  # no memory, no process numbers: that passes
                failures += 1
                log.warning("executor start failed; trying again", reason=str(error))
                await wait_for(stop, backoff(failures))
                continue
            code = await self._wait(process, stop)
            if stop.is_set():
                return
            self._was_healthy |= loop.time() - started > _HEALTHY_AFTER.total_seconds()
            if code == EXIT_CONFIG and not self._was_healthy:
                self._hopeless = ApplicationError("an Executor cannot run; its own message above says why")
                stop.set()
                return
            failures = 0 if loop.time() - started > _HEALTHY_AFTER.total_seconds() else failures + 1
            pause = backoff(failures)
            log.warning("executor ended; starting another", pid=process.pid, code=code)
            await wait_for(stop, pause)

    async def _wait(self, process: Process, stop: asyncio.Event) -> int:
        """Until it ends by itself, or, once `stop` is set, by SIGTERM: an Executor drains within its grace."""
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            with suppress(ProcessLookupError):  # it ended, and we have yet to hear of it
                process.send_signal(signal.SIGTERM)
            await self._let_drain(process, ended)
        return await ended

    async def _let_drain(self, process: Process, ended: "asyncio.Future[int]") -> None:
        """Wait for its end, and bring it about when it takes too long, or we are told again to stop."""
        hurry = asyncio.ensure_future(self._no_patience.wait())
        either: list[asyncio.Future[Any]] = [ended, hurry]
        await asyncio.wait(
            either, timeout=self._patience.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
        hurry.cancel()
        if not ended.done():
            log.error("executor killed: drain timeout", pid=process.pid)
            with suppress(ProcessLookupError):
                process.kill()
