"""The whole of Duly on one machine: Postgres, an SQS look-alike if wanted, the services, a host for each app."""

import asyncio
import errno
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from duly_core.config.config_file import read_config
from duly_core.config.settings import format_duration
from duly_core.errors import DulyError, SettingsError
from duly_local.cells.starting import CellsInFolder, LocalCells, make_cells
from duly_local.child_spec import ChildSpec, SupervisionTiming
from duly_local.elastic_pools import declare
from duly_local.environment import (
    console_url,
    drain_grace,
    drain_time,
    joining_environment,
    store_environment,
)
from duly_local.keepalive_pipes import KeepalivePipes
from duly_local.merged_output import MergedOutput
from duly_local.moto import MotoServer
from duly_local.options import AUTOSCALER, CONSOLE, FRONTEND, HSC, SERVICES, Ports, StackOptions
from duly_local.ports import await_free
from duly_local.postgres.data_directory import make_data_directory, no_space
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.preflight import check
from duly_local.programs import Program, keep_running
from duly_local.reloader import Reloader, probe
from duly_local.services import child_specs
from duly_local.signals import StoppedWhileStartingError, handled_by, interruptible
from duly_local.supervisor import Supervisor

_AFTER_WORKERS = timedelta(seconds=3)
"""Between the end of the last worker and that of the services, when we are killed."""
_AFTER_SERVICES = timedelta(seconds=5)

_FREE_PORTS = "add --free-ports to run on any that are free"


class LocalStack:
    """One stack: `async with` it (returns when all is ready), or `await run_forever()`; main thread only."""

    def __init__(
        self,
        options: StackOptions,
        output: MergedOutput | None = None,
        timing: SupervisionTiming | None = None,
    ) -> None:
        self.options = options
        self.ports: Ports = options.choose_ports()
        self.dsn = options.dsn or ""
        self.supervisor: Supervisor | None = None
        self._joining: dict[str, str] = {}
        """What another worker on this machine must be told."""
        self._cells: LocalCells | None = None
        self._reaching_cells: dict[str, str] = {}
        """What `duly cells` must be told; empty: the user knows it, for it is the address of `dsn`."""
        self._output = output or MergedOutput()
        self._timing = timing or SupervisionTiming()
        self._programs: dict[str, Program] = {}
        self._keepalive_pipes = KeepalivePipes(stay=drain_time() + _AFTER_WORKERS)
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def frontend_address(self) -> str:
        """`host:port` that clients are told."""
        return self.ports.address(FRONTEND)

    @property
    def hsc_address(self) -> str:
        """`host:port` of the Heartbeat and Status Controller."""
        return self.ports.address(HSC)

    async def __aenter__(self) -> Self:
        try:
            supervisor = self.start()
            await supervisor.wait_until_ready(self._timing.ready_within)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def run_forever(self) -> None:
        """Start, and run until SIGINT, SIGTERM or SIGHUP (a second one kills); then nothing is left.

        Raises:
            DulyError: a part cannot work as it is set up.
        """
        try:
            with interruptible():
                supervisor = self.start()
        except BaseException:
            await self.stop()
            raise
        with handled_by(partial(self._ask_to_stop, supervisor)):
            announcing = asyncio.create_task(self._announce(supervisor))
            try:
                await supervisor.run()
            finally:
                announcing.cancel()
                await self.stop()

    def _ask_to_stop(self, supervisor: Supervisor) -> None:
        """Stop, and say what that takes; at once if it is asked for again."""
        if supervisor.is_stopping:
            self._output.write(
                "duly", "killing everything; tasks that ran count a crash, and run again later"
            )
        elif self.options.pools:
            grace = format_duration(min(drain_grace(), self._timing.grace))
            self._output.write(
                "duly",
                f"stopping: callbacks have {grace} to end. To kill everything at once, ask again: their tasks then "
                "count a crash",
            )
        else:
            self._output.write("duly", "stopping")
        supervisor.request_stop()

    def start(self) -> Supervisor:
        """Start what the services stand on, wait for it, and begin to start the services.

        Raises:
            PortInUseError: a port that a process was told to use is taken.
            DulyError: Postgres or the SQS look-alike cannot be started.
        """
        workers = tuple(self.options.workers)
        self._output.announce(["duly", "postgres", "sqs", *self.options.services, *self.options.pools])
        options = self.options
        if options.dsn is not None:
            _check_dsn(options.dsn)
        else:
            self._start_postgres()
        if options.dsn is not None and options.cells is not None:
            self._cells = make_cells(
                options.cells, (), store_environment(self.options, self.dsn), self._tell_of_cells
            )
        if options.needs_moto:
            make_data_directory(options.data_directory)
            moto = MotoServer(options.data_directory / "sqs.log")
            self._start_program("sqs", moto)
            options = replace(options, endpoint_url=moto.endpoint_url)
        for name in self._listening():
            self._await_port(self.ports.grpc[name], name)
        for name in (*options.services, *workers):
            self._await_port(self.ports.metrics_port(name), f"{name} (for its metrics)")
        self._joining = joining_environment(options, self.ports)
        self._keepalive_pipes.open()
        specs = child_specs(options, self.dsn, self.ports, self._keepalive_pipes)
        self.supervisor = Supervisor(specs, self._output, self._timing)
        self.supervisor.start()
        if options.elastic:
            self._keepers.append(asyncio.create_task(self._declare_pools(self.supervisor)))
        if options.reload:
            self._reload_workers(specs, self.supervisor)
        for name, program in self._programs.items():
            self._keepers.append(asyncio.create_task(keep_running(name, program, self._output)))
        return self.supervisor

    def _start_postgres(self) -> None:
        """Start the embedded one, with the cells that are in it."""
        folder = self.options.data_directory
        cells = CellsInFolder(folder, self.options.cells)
        postgres = EmbeddedPostgres(
            folder,
            settings=cells.postgres_settings,
            needed_for=self._keepalive_pipes.stay + _AFTER_SERVICES,
            tell=lambda text: self._output.write("postgres", f"[duly] {text}"),
            usual_port=cells.usual_port,
        )
        self._start_program("postgres", postgres)
        self._keepalive_pipes.of_postgres = postgres.keepalive
        self.dsn = postgres.socket_dsn
        self._cells = cells.prepare(
            postgres.place, postgres.port or 0, store_environment(self.options, self.dsn), self._tell_of_cells
        )
        self._reaching_cells = postgres.signing_in

    def _tell_of_cells(self, text: str) -> None:
        self._output.write("duly", text)

    async def _declare_pools(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.wait_until_ready()
        except DulyError:  # `run` raises it too
            return
        for name, application in self.options.pools.items():
            for line in await declare(name, application, self.frontend_address, self.options.max_workers):
                self._say(name, line)

    def _reload_workers(self, specs: Iterable[ChildSpec], supervisor: Supervisor) -> None:
        environments = {spec.name: spec.env for spec in specs}
        for name, application in self.options.workers.items():
            reloader = Reloader(
                application,
                partial(supervisor.restart, name),
                partial(self._say, name),
                partial(probe, application, environments[name]),
            )
            self._keepers.append(asyncio.create_task(reloader.run()))

    def _listening(self) -> tuple[str, ...]:
        """What has a port for gRPC, or the console's."""
        options = self.options
        console = (CONSOLE,) if options.console else ()
        return (*SERVICES, *console, *((AUTOSCALER,) if options.elastic else ()), *options.workers)

    def _say(self, name: str, text: str) -> None:
        self._output.write(name, f"[duly] {text}")

    def _await_port(self, port: int, owner: str) -> None:
        way_out = _FREE_PORTS if self.options.ports == "usual" else "choose another"
        await_free(
            port,
            owner,
            self._keepalive_pipes.stay + _AFTER_SERVICES,
            lambda text: self._output.write("duly", text),
            way_out,
        )

    async def stop(self) -> None:
        """Stop everything, the services before what they stand on."""
        if self.supervisor is not None:
            await self.supervisor.stop()
        self._keepalive_pipes.close()
        for keeper in self._keepers:
            keeper.cancel()
        for name in reversed(tuple(self._programs)):
            await asyncio.to_thread(self._programs.pop(name).stop)

    def _start_program(self, name: str, program: Program) -> None:
        self._programs[name] = program  # first, so that `stop` knows it whatever happens
        program.start()
        self._output.write(name, f"[duly] ready on port {program.port}")

    async def _announce(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.wait_until_ready()
        except DulyError:  # `run` raises it too
            return
        told = f"all is ready; clients connect to {self.frontend_address}"
        if self.options.ports != "usual":
            console = (
                f" DULY_CONSOLE_LISTEN={self.ports.address(CONSOLE)}" if self.options.console else ""
            )  # for `duly ui`
            told += f" (in their shells: export DULY_ADDRESS={self.frontend_address}{console})"
        self._output.write("duly", told)
        if not self.options.apps:
            self._output.write("duly", "no worker runs here: `duly up module:app` would start one")
        settings = [f"{name}={value}" for name, value in sorted(self._joining.items())]
        command = shlex.join(["env", *settings, "duly", "worker", "MODULE:APP"])
        self._output.write("duly", f"to add a worker: {command}")
        if self._cells is not None:
            self._announce_cells(self._cells)
        metrics = [
            f"http://{self.ports.metrics_address(name)}/metrics ({name})"
            for name in (*self.options.services, *self.options.workers)
        ]
        self._output.write("duly", f"metrics at {', '.join(metrics)}")
        if self.options.console:
            self._output.write("duly", f"console at {console_url(self.ports)}")

    def _announce_cells(self, cells: LocalCells) -> None:
        self._output.write(
            "duly",
            f"cells {', '.join(cells.names)}; a namespace lives in {cells.default}, unless it was assigned to another before it was used",
        )
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._reaching_cells.items())
        command = "duly cells assign NAMESPACE " + next(
            (name for name in cells.names if name != cells.default), cells.default
        )
        if settings:
            self._output.write("duly", f"for duly cells, in another shell: export {settings}")
            self._output.write("duly", f"to assign one: {command}")
        else:
            self._output.write(
                "duly", f"to assign one: {command} --dsn ADDRESS, with the address of this --dsn"
            )


def _check_dsn(dsn: str) -> None:
    """Before each of the services complains of it."""
    from psycopg.conninfo import (
        conninfo_to_dict,
    )  # only here: the drivers are large, and nothing else needs them
    from psycopg.errors import ProgrammingError

    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:  # its text quotes the DSN, password included
        raise SettingsError(
            "the DSN is not a Postgres address: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None


async def up(options: StackOptions) -> int:
    """Run a stack until Ctrl-C or SIGTERM (a second one kills); the exit code, having said why on stderr."""
    try:
        read_config()  # before anything starts
        with interruptible():
            check(options.apps)
        await LocalStack(options).run_forever()
    except StoppedWhileStartingError:
        return 0
    except DulyError as error:
        return _refuse(str(error), os.EX_CONFIG)
    except OSError as error:
        return _refuse(_in_words(error, options), os.EX_IOERR)
    return 0


def _refuse(reason: str, code: int) -> int:
    print(f"duly up: {reason}", file=sys.stderr, flush=True)  # noqa: T201 (for people, not for a log)
    return code


def _in_words(error: OSError, options: StackOptions) -> str:
    where = error.filename or options.data_directory
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(where)
    return f"{where}: {error.strerror or error}"
