"""Duly as it is measured: all of its services on one machine, without a queue beside the store."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from benchmarks import CALLBACK_ENVIRONMENT, marks
from benchmarks.duly_submitter import JSON
from benchmarks.system import Description, Driver, Running, System, driving
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.moto import MotoServer
from duly_local.options import Ports, StackOptions
from duly_local.services import child_specs
from duly_local.stack import LocalStack
from duly_local.supervisor import Supervisor

_READY_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what a host runs."""

    executors: int = 1
    processes: int = 1
    slots: int = 8
    app: str = "benchmarks.noop:app"
    queue: Literal["store", "sqs"] = "store"
    json: bool = False
    """Whether payloads are JSON, decoded by the callback's signature; else raw bytes."""
    transactional: bool = False
    """Whether tasks are written with `duly_schedule`, without a Frontend."""
    separate: bool = False
    """Whether each service is a process of its own."""


class RunningDuly(Running):
    """The stack without a worker, and a supervisor of its own for the worker."""

    def __init__(
        self, driver: Driver, noted: marks.Marks, stack: LocalStack, output: MergedOutput, shape: Shape
    ) -> None:
        super().__init__(driver, noted)
        self.stack = stack
        self._output = output
        self._shape = shape
        self._workers: Supervisor | None = None

    async def start_workers(self) -> None:
        options = replace(self.stack.options, apps=(self._shape.app,))
        (*_, worker) = child_specs(options, self.stack.dsn, self.stack.ports)
        self._workers = Supervisor(
            [replace(worker, depends_on=())], self._output, SupervisionTiming(ready_within=_READY_WITHIN)
        )
        self._workers.start()
        await self._workers.wait_until_ready(_READY_WITHIN)

    async def stop_workers(self) -> None:
        if self._workers is not None:
            await self._workers.stop()
            self._workers = None


_KINDS = {
    (False, False): ("duly", "Duly", "benchmarks.duly_submitter"),
    (True, False): ("duly_json", "Duly, JSON payloads", "benchmarks.duly_submitter"),
    (True, True): ("duly_transactional", "Duly, `duly_schedule`", "benchmarks.duly_transactional_submitter"),
}
"""By whether payloads are JSON, and whether they go past the Frontend: name, title, and the submitter's module."""


class Duly(System):
    """Everything that `duly up` starts."""

    name = "duly"
    holds_back = True

    def __init__(self, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self.name, title, self._submitter = _KINDS[self.shape.json, self.shape.transactional]
        self.processes = self.shape.executors * self.shape.processes
        self.description = Description(
            title,
            f"no queue beside the store, {self.shape.executors} Executor(s) of {self.shape.processes} callback process(es) x "
            f"{self.shape.slots} slots, results and history kept, every start under a claim",
            "Postgres, synchronous_commit on: an accepted task survives a server crash",
        )

    def admit(self, stack: LocalStack, folder: Path) -> None:
        """Do what the services need before they admit the worker and the submitter: here nothing."""

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[RunningDuly]:
        noted = folder / "marks"
        noted.mkdir()
        os.environ |= {**CALLBACK_ENVIRONMENT, marks.FOLDER: str(noted)}
        options = StackOptions(
            data_directory=folder / "data",
            executors=self.shape.executors,
            processes=self.shape.processes,
            slots=self.shape.slots,
            queue=self.shape.queue,
            separate=self.shape.separate,
            ports=Ports.free(("worker",)),
        )
        with ExitStack() as services, (folder / "duly.log").open("ab") as log:
            if options.needs_moto:  # ours, so that the worker, which comes later, is told of it too
                moto = services.enter_context(MotoServer(folder / "sqs.log"))
                options = replace(options, endpoint_url=moto.endpoint_url)
            output = MergedOutput(log)
            async with LocalStack(options, output, SupervisionTiming(ready_within=_READY_WITHIN)) as stack:
                self.admit(stack, folder)
                environment = {
                    "DULY_BENCH_FRONTEND": stack.frontend_address,
                    "DULY_BENCH_DSN": stack.dsn,
                    **({JSON: "1"} if self.shape.json else {}),
                    # as docs/clients.md advises client services
                    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
                }
                async with driving(sys.executable, self._submitter, environment, folder) as driver:
                    duly = RunningDuly(driver, marks.Marks(noted), stack, output, self.shape)
                    try:
                        yield duly
                    finally:
                        await duly.stop_workers()
