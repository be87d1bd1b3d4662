"""Starts callback processes: at the beginning an application that fails is fatal, later it is tried again."""

import asyncio
import os

from duly_core.config.settings import format_duration
from duly_core.errors import ApplicationError
from duly_core.host.claim_journal import ClaimJournal
from duly_core.process.loop import backoff, wait_for
from duly_executor.callback.debugging import DEBUG_PORT
from duly_executor.callback.kept_output import OUTPUT_NOT_KEPT
from duly_executor.containment.process_group import Containment
from duly_executor.events import log
from duly_executor.processes.environment import SETTING, CallbackEnvironment
from duly_executor.processes.process import CallbackProcess, StartKilledError
from duly_executor.settings import ExecutorSettings
from duly_wire.v1 import registry_pb2

_STARTS = 5
"""A process that is killed while it imports the application is started so often; then the application is it."""


class ProcessStarter:
    """Makes processes that have said hello."""

    def __init__(
        self,
        application: str,
        executor_id: str,
        journal: ClaimJournal,
        containment: Containment,
        settings: ExecutorSettings,
    ) -> None:
        self._application = application
        self._executor_id = executor_id
        self._journal = journal
        self._containment = containment
        self._import_timeout = settings.import_timeout
        self._user = settings.callback_user
        self._environment = CallbackEnvironment(os.environ, settings.callback_environment)
        if not settings.keep_output:
            self._environment.variables[OUTPUT_NOT_KEPT] = "true"
        if settings.debug_port:
            self._environment.variables[DEBUG_PORT] = str(settings.debug_port)
        if withheld := self._environment.told():
            log.info("environment variables withheld from callbacks", names=withheld, setting=SETTING)
        self._starting: set[CallbackProcess] = set()
        self._closing = asyncio.Event()

    async def first(self, number: int) -> tuple[CallbackProcess, list[registry_pb2.Lambda]]:
        """Start a process of an application of which nothing is known yet; its lambdas.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        for failures in range(1, _STARTS):
            try:
                return await self._start(number)
            except StartKilledError as error:
                if self._closing.is_set():
                    raise
                log.warning("callback process start failed; trying again", reason=str(error))
                await wait_for(self._closing, backoff(failures))
        return await self._start(number)

    async def again(self, number: int, failures: int) -> CallbackProcess | None:
        """Start one for one that died, after so many failures in a row, until it is there; None: closed meanwhile.

        The application was imported before: what keeps it from being so now (a deployment under way, no
        memory, a module's own I/O) passes, or is seen in the log.
        """
        while not self._closing.is_set():
            if failures:
                await wait_for(self._closing, backoff(failures))
            if self._closing.is_set():
                break
            failures += 1
            try:
                process, _ = await self._start(number)
            except (OSError, ApplicationError) as error:
                if not self._closing.is_set():
                    log.warning("callback process start failed; trying again", reason=str(error))
                continue
            if not self._closing.is_set():
                return process
            process.kill(b"")
            await process.ended()
        return None

    def close(self) -> None:
        """Start none any more, and kill those that have not said hello."""
        self._closing.set()
        for process in self._starting:
            process.kill(b"")

    async def _start(self, number: int) -> tuple[CallbackProcess, list[registry_pb2.Lambda]]:
        tree = self._containment.tree(number)
        process = await CallbackProcess.start(
            number,
            self._executor_id,
            self._application,
            self._journal.board,
            tree,
            self._user,
            self._environment,
            self._journal.note_process,
        )
        self._starting.add(process)
        if self._closing.is_set():
            process.kill(b"")
        try:
            async with asyncio.timeout(self._import_timeout.total_seconds()):
                return process, await process.hello()
        except TimeoutError:
            process.kill(b"")
            await process.ended()
            limit = format_duration(self._import_timeout)
            raise ApplicationError(
                f"the application was not imported within {limit} ([executor] import_timeout)"
            ) from None
        finally:
            self._starting.discard(process)
