"""A filled store, each service and the console as a process of its own, and hosts that report themselves."""

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

from benchmarks.scale.fill import Sizes, fill
from benchmarks.system import Program
from duly_core.postgres.schema.migrate import migrate
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import CONSOLE, FRONTEND, Ports, StackOptions
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.stack import LocalStack

_READY_WITHIN = timedelta(minutes=2)
_PATIENCE = timedelta(minutes=10)
"""A store that was just filled writes for minutes when it stops."""
_SETTINGS = {"fsync": "off", "max_wal_size": "8GB", "shared_buffers": "1GB"}
"""Nothing here is about the disk: fsync only takes time."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where its parts are."""

    frontend: str
    console: str
    dsn: str
    size: str
    """Of the database."""


@asynccontextmanager
async def installed(kept: Path | None, sizes: Sizes, hosts: int) -> AsyncIterator[Installation]:
    """Start it; stop it.

    Args:
        kept: the folder of a store that stays; it is filled if it is new. None: one that is removed.
        sizes: what it is filled with.
        hosts: that report themselves.
    """
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True))
        )
        folder.chmod(0o711)
        data = (kept or folder) / "postgres"
        is_new = not data.exists()
        postgres = stack.enter_context(
            EmbeddedPostgres(data, settings=_SETTINGS, ready_within=_PATIENCE, stop_within=_PATIENCE)
        )
        if is_new:
            migrate(postgres.dsn)
            fill(postgres.dsn, sizes)
        options = StackOptions(
            data_directory=folder / "duly",
            dsn=postgres.dsn,
            separate=True,
            console=True,
            ports=Ports.free(()),
        )
        log = stack.enter_context((folder / "duly.log").open("ab"))
        pace = SupervisionTiming(ready_within=_READY_WITHIN)
        async with LocalStack(options, MergedOutput(log), pace) as services:
            frontend = services.ports.address(FRONTEND)
            if hosts:
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.scale.hosts",
                    frontend,
                    str(hosts),
                    str(sizes.lambdas),
                ]
                reports = Program(command, {}, folder / "hosts.log")
                stack.callback(reports.stop)
            with psycopg.connect(postgres.dsn) as connection:
                ((size,),) = connection.execute("select pg_size_pretty(pg_database_size(current_database()))")
            yield Installation(frontend, f"http://{services.ports.address(CONSOLE)}", postgres.dsn, size)
