"""One session of the demo: a stack of its own is started, tasks go through it, it is stopped, the run is judged."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any, Literal

import duly
from duly_local.demo import course
from duly_local.demo.display import make_display
from duly_local.demo.evaluation import Evaluation, evaluate
from duly_local.demo.executions import ExecutionLog
from duly_local.demo.files import Input
from duly_local.demo.parts import WORKER, all_executors_run, parts, versions
from duly_local.demo.place import Place
from duly_local.demo.report import Report
from duly_local.demo.workload import plan
from duly_local.merged_output import MergedOutput
from duly_local.options import Ports, StackOptions
from duly_local.ports import free_port
from duly_local.signals import handled_by, interruptible
from duly_local.stack import LocalStack
from duly_local.supervisor import Supervisor

Queue = Literal["store", "sqs"]

_APPLICATION = "duly_local.demo.application:app"
_EXECUTORS = 2
_READY_WITHIN = timedelta(seconds=60)


class Session:
    """From nothing to a verdict; `figures` fills on the way."""

    def __init__(self, found: Input, queue: Queue, place: Place, report: Report, *, kill: bool) -> None:
        self.figures: dict[str, Any] = {
            "directory": str(found.directory),
            "files": len(found.files),
            "bytes": found.size,
            "left_out": dict(found.left_out),
            "queue": queue,
            "seconds": {},
        }
        self._found = found
        self._queue = queue
        self._place = place
        self._report = report
        self._kill = kill
        self._stopped = Event()

    async def run(self) -> Evaluation:
        """Run all of it; whatever happens, no process is left.

        Raises:
            DulyError: a part cannot be started (duly_core's), or did not answer (the SDK's).
            StoppedWhileStartingError, CancelledError: somebody asked to stop.
        """
        with self._place.services_log.open("ab", buffering=0) as log_file:
            started = time.monotonic()
            stack = self._make_stack(MergedOutput(log_file, colour=False))
            try:
                with interruptible():
                    supervisor = stack.start()
                self.figures["seconds"]["foundations"] = time.monotonic() - started
                performing = asyncio.create_task(self._perform(stack, supervisor))

                def hurry() -> None:
                    supervisor.request_stop()
                    supervisor.request_stop()

                with handled_by(_once(performing.cancel, then=hurry)):
                    try:
                        return await performing
                    finally:
                        self._stopped.set()
                        await stack.stop()
            finally:  # also when the start was interrupted; stopping twice does no harm
                await stack.stop()

    def _make_stack(self, output: MergedOutput) -> LocalStack:
        options = StackOptions(
            separate=True,  # each part is shown, with its port
            data_directory=self._place.data,
            queue=self._queue,
            apps=(_APPLICATION,),
            executors=_EXECUTORS,
        )
        ports = Ports.free(tuple(options.workers))
        if options.needs_moto:
            ports = replace(ports, sqs=free_port())
        return LocalStack(replace(options, ports=ports), output)

    async def _perform(self, stack: LocalStack, supervisor: Supervisor) -> Evaluation:
        seconds = self.figures["seconds"]
        started = time.monotonic()
        await supervisor.wait_until_ready(_READY_WITHIN)
        worker = supervisor.pids()[WORKER]
        await all_executors_run(worker, _EXECUTORS)
        seconds["start"] = time.monotonic() - started
        self._name_parts(stack)
        log = ExecutionLog(self._place.executions)
        run = await self._run_tasks(stack.frontend_address, log, worker)
        # What is judged is complete: nothing runs any more that could add to the log.
        started = time.monotonic()
        await stack.stop()
        seconds["stop"] = time.monotonic() - started
        started = time.monotonic()
        facts = await asyncio.to_thread(course.compare_with_files, self._found, self._stopped)
        seconds["compare"] = time.monotonic() - started
        log.catch_up()
        return evaluate(run, log, facts, kill=self._kill)

    def _name_parts(self, stack: LocalStack) -> None:
        running = parts(stack)
        self.figures["versions"] = versions(stack)
        self.figures["processes"] = [
            {"name": part.name, "pid": part.pid, "port": part.port} for part in running
        ]
        self._report.parts(self.figures["versions"], self._queue, running)

    async def _run_tasks(self, frontend: str, log: ExecutionLog, worker: int) -> course.Course:
        planned = plan(file.path for file in self._found.files)
        async with duly.AsyncClient(frontend) as client:
            run = await course.schedule(client, planned)
            self._report.scheduled(planned, run.schedule_s)
            largest = max(file.size for file in self._found.files)
            kill = worker if self._kill else None
            with make_display(self._report.console, len(planned)) as display:
                await course.follow(client, run, log, display, largest=largest, worker=kill)
        self.figures["seconds"] |= {"schedule": run.schedule_s, "run": run.run_s}
        return run


def _once(first: Callable[[], object], then: Callable[[], object]) -> Callable[[], None]:
    """Calls the one, and every further time the other."""
    actions = iter([first])

    def act() -> None:
        next(actions, then)()

    return act
