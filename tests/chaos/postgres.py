"""The run's Postgres: durable, started again whenever it ends, and held down for as long as a fault wants."""

import asyncio
import os
import shutil
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from duly_core.errors import DulyError
from duly_core.postgres.schema.migrate import migrate
from duly_local.ports import free_port
from duly_local.postgres import stale_server
from duly_local.postgres.embedded import EmbeddedPostgres
from tests.chaos import audit
from tests.fixtures.invariants import add_invariants
from tests.fixtures.standby import Standby

_LOOK_EVERY_S = 0.02
_DEPART = timedelta(seconds=20)
_DROPS_WITHIN = timedelta(seconds=3)
_ENDS_WITHIN = timedelta(seconds=15)

_SETTINGS = {
    "max_connections": "300",
    "shared_buffers": "32MB",
    "log_min_messages": "log",
    "log_line_prefix": "%m [%p] %a ",
}

SHARED_SETTINGS = {
    **_SETTINGS,
    "max_connections": "600",
    "shared_buffers": "64MB",
    "autovacuum": "off",  # databases live for a minute
    # no run that crashes Postgres is here
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}
TEMPLATE_DATABASE = "chaos_template"

# One row, whose value every statement of the product adds to the time.
_CLOCK = """
create table if not exists chaos_clock (ahead interval not null);
insert into chaos_clock select '0' where not exists (select from chaos_clock);
create or replace function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select clock_timestamp() + (select ahead from chaos_clock)';
"""


def make_template(folder: Path) -> None:
    """Leave a data directory there that a run can begin with: initdb, the schema, the clock, the audit.

    Blocks, main thread only.
    """
    postgres = ChaosPostgres(folder, free_port())
    try:
        postgres.start()
    finally:
        postgres._server.stop()


def prepare(dsn: str) -> None:
    """Give a database the schema, the clock and the audit."""
    migrate(dsn)
    add_invariants(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_CLOCK)
    audit.install(dsn)


def copy_owned(source: Path, target: Path) -> None:
    """Copy a data directory: Postgres insists on its files' owner as well as on their modes."""

    def copy(origin: str, destination: str) -> None:
        shutil.copy2(origin, destination)
        _give(origin, destination)

    shutil.copytree(source, target, copy_function=copy, ignore=shutil.ignore_patterns("*.log", "*.lock"))
    for folder, _, _ in os.walk(source):
        _give(folder, str(target / Path(folder).relative_to(source)))


def _give(origin: str, destination: str) -> None:
    status = Path(origin).stat()
    if status.st_uid != os.geteuid() or os.geteuid() == 0:
        os.chown(destination, status.st_uid, status.st_gid)


class ChaosPostgres:
    """One server with the schema and a clock that can be moved."""

    def __init__(self, folder: Path, port: int, template: Path | None = None) -> None:
        """Make one. `template`: a data directory as `make_template` left it, to begin with a copy of."""
        self._template = template
        self._files = folder / "postgres"
        self._server = EmbeddedPostgres(folder, port, settings=_SETTINGS)
        self._folder = folder
        self._standby: Standby | None = None
        self._down = 0
        self._keeper: asyncio.Task[None] | None = None
        self.lifecycle = asyncio.Lock()
        """Held by who stops it, or waits for it to be there."""

    @property
    def dsn(self) -> str:
        """Past all proxies."""
        return self._server.dsn

    @property
    def port(self) -> int:
        assert self._server.port is not None
        return self._server.port

    @property
    def log_file(self) -> Path:
        return self._server.log_file

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def start(self) -> None:
        """Blocks; main thread only."""
        if self._template is not None:
            copy_owned(self._template, self._folder)
        self._server.start()
        if self._template is None:
            prepare(self.dsn)

    def add_standby(self) -> None:
        """A second server, without which no commit is acknowledged; blocks, main thread only."""
        self._standby = Standby(self._server, self._folder.with_name("standby"), _SETTINGS)
        self._standby.start()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")

    async def fail_over(self, seconds: float) -> bool:
        """Cut the standby off, kill the primary so much later, and go on with the standby; False: there is none.

        What the primary commits meanwhile is acknowledged to nobody.
        """
        standby, self._standby = self._standby, None
        if standby is None:
            return False
        self.hold_down()
        try:
            await asyncio.to_thread(standby.cut_off)
            await asyncio.sleep(seconds)
            await self.end(signal.SIGKILL)
            await asyncio.to_thread(standby.promote)
            former, self._server = self._server, standby
            self._files = self._folder.with_name("standby") / "postgres"
            await asyncio.to_thread(former.stop)
        finally:
            self.let_up()
        return True

    def keep_running(self) -> None:
        """Start it again whenever it has ended, unless it is held down."""
        self._keeper = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        if self._standby is not None:
            await asyncio.to_thread(self._standby.stop)
        await asyncio.to_thread(self._server.stop)

    async def end(self, number: signal.Signals) -> None:
        """Signal the postmaster, and wait until it and its backends are gone. Hold it down meanwhile."""
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + _ENDS_WITHIN.total_seconds()
        while self.pid is not None:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGQUIT)
                deadline += _ENDS_WITHIN.total_seconds()
            await asyncio.sleep(_LOOK_EVERY_S)

    def hold_down(self) -> None:
        self._down += 1

    def let_up(self) -> None:
        self._down -= 1

    async def wait_until_up(self, within: timedelta = timedelta(seconds=30)) -> None:
        """Until it answers a query.

        Raises:
            TimeoutError: it does not.
        """
        async with asyncio.timeout(within.total_seconds()):
            while True:
                with suppress(psycopg.Error, OSError):
                    async with await self.connect() as connection:
                        await connection.execute("select 1")
                        return
                await asyncio.sleep(0.1)

    async def connect(self) -> psycopg.AsyncConnection:
        """A connection of the run's own, past all proxies, that waits for nothing for long."""
        return await psycopg.AsyncConnection.connect(
            self.dsn,
            autocommit=True,
            connect_timeout=5,
            application_name="chaos",
            options="-c statement_timeout=10000",
        )

    def processes(self) -> list[int]:
        """The postmaster and its backends."""
        return stale_server._processes_of(self._files)

    async def _keep_running(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self.pid is not None or self._down:
                continue
            # In a thread, for it may wait; `launch` then finds nobody, and it has to be called here.
            await asyncio.to_thread(stale_server.await_exit, self._files, _DEPART)
            if self._down:
                continue
            self._server.launch()
            with suppress(DulyError):  # it ended again, or takes long: the next round sees to it
                await asyncio.to_thread(self._server.wait_until_ready)


class SharedPostgres(ChaosPostgres):
    """A database of its own on a server that others use as well; nothing may be done to the server."""

    def __init__(self, server_dsn: str, database: str) -> None:
        self._server_dsn = server_dsn
        self._database = database
        self.lifecycle = asyncio.Lock()

    @property
    def dsn(self) -> str:
        return self._server_dsn.rpartition("/")[0] + f"/{self._database}"

    @property
    def port(self) -> int:
        return int(conninfo_to_dict(self._server_dsn)["port"] or 0)

    def start(self) -> None:
        """Copy the template."""
        self._tell(f"create database {self._database} template {TEMPLATE_DATABASE}")

    def keep_running(self) -> None:
        """It is kept by the campaign."""

    async def stop(self) -> None:
        """Drop it, unless that takes long: a session of another run that cannot be written to holds it up."""
        with suppress(psycopg.Error):
            await asyncio.to_thread(self._tell, f"drop database {self._database} with (force)", _DROPS_WITHIN)

    def _tell(self, statement: str, within: timedelta = timedelta(minutes=1)) -> None:
        milliseconds = within // timedelta(milliseconds=1)
        with psycopg.connect(
            self._server_dsn,
            autocommit=True,
            connect_timeout=10,
            options=f"-c statement_timeout={milliseconds}",
        ) as connection:
            connection.execute(statement)
