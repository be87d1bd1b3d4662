"""One local stack under measurement: its processes, and what its callbacks noted."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

import duly
from benchmarks import CALLBACK_ENVIRONMENT
from benchmarks.recovery.app import STARTS
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import StackOptions
from duly_local.ports import free_port
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.stack import LocalStack

Profile = Literal["embedded", "production"]

LOG = "DULY_BENCH_LOG"
"""Names a file to which the stack's log is appended."""

_LOOK_EVERY = 0.01
_READY_WITHIN = timedelta(minutes=3)
_METRICS = "DULY_CONTROLLER_EXECUTOR_METRICS_PORT"


@dataclass(frozen=True, slots=True)
class Start:
    """One execution began."""

    at: float
    """Seconds of the wall clock: everything runs on this machine."""
    pid: int


@dataclass
class Bench:
    """A stack that runs, a client of it, and the file in which callbacks note their starts."""

    stack: LocalStack
    client: duly.AsyncClient
    folder: Path
    metrics_port: int
    """Of the Executor, where there is one host."""
    _read: int = 0
    _starts: dict[str, list[Start]] = field(default_factory=dict)

    def starts_of(self, task: str) -> list[Start]:
        """All starts of a task so far."""
        file = self.folder / "starts"
        if file.exists():
            with file.open("rb") as noted:
                noted.seek(self._read)
                for line in noted:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    task_id, nanoseconds, pid = line.decode().split()
                    start = Start(int(nanoseconds) / 1e9, int(pid))
                    self._starts.setdefault(task_id, []).append(start)
        return self._starts.get(task, [])

    async def started(self, tasks: Collection[str], after: float, within: float) -> dict[str, Start]:
        """Wait until each has started after that instant; the first such start of each."""
        deadline = time.monotonic() + within
        found: dict[str, Start] = {}
        while missing := [task for task in tasks if task not in found]:
            for task in missing:
                start = next((each for each in self.starts_of(task) if each.at > after), None)
                if start is not None:
                    found[task] = start
            if time.monotonic() > deadline:
                message = f"{len(missing)} of {len(tasks)} tasks did not start within {within:g} s"
                raise TimeoutError(message)
            await asyncio.sleep(_LOOK_EVERY)
        return found

    def until_file(self, name: str) -> Path:
        """A file that lets callbacks go when it is made."""
        return self.folder / f"go-{name}"

    def pid_of(self, child: str) -> int:
        """The process of a service or a worker."""
        supervisor = self.stack.supervisor
        if supervisor is None or child not in supervisor.pids():
            message = f"{child} does not run now"
            raise RuntimeError(message)
        return supervisor.pids()[child]

    async def ready(self) -> None:
        """Wait until every part runs and is ready."""
        if self.stack.supervisor is not None:
            await self.stack.supervisor.wait_until_ready(None)


def parent_of(pid: int) -> int:
    """The process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    """Of its main thread, and theirs, the nearest first."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    children = [int(child) for child in listed]
    return children + [below for child in children for below in children_of(child)]


def kill(pids: Iterable[int]) -> float:
    """SIGKILL to all of these at once; the instant before."""
    before = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return before


@asynccontextmanager
async def running(
    *,
    apps: tuple[str, ...],
    profile: Profile,
    executors: int = 1,
    processes: int = 2,
    slots: int = 4,
    postgres: EmbeddedPostgres | None = None,
) -> AsyncIterator[Bench]:
    """A stack without a queue beside the store. `postgres`: one that the caller stops and starts; else the stack's own."""
    with tempfile.TemporaryDirectory(prefix="duly-recovery-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        port = free_port()
        os.environ |= CALLBACK_ENVIRONMENT | {
            STARTS: str(folder / "starts"),
            _METRICS: str(port if len(apps) == 1 else 0),
        }
        options = StackOptions(
            separate=True,  # each service is killed by itself
            data_directory=folder / "data",
            dsn=postgres.dsn if postgres else None,
            apps=apps,
            executors=executors,
            processes=processes,
            slots=slots,
            profile=profile,
            ports="free",
        )
        with Path(os.environ.get(LOG, os.devnull)).open("ab") as log:  # noqa: ASYNC230 (once, before anything runs)
            async with (
                LocalStack(
                    options, MergedOutput(log), SupervisionTiming(ready_within=_READY_WITHIN)
                ) as stack,
                duly.AsyncClient(stack.frontend_address) as client,
            ):
                yield Bench(stack, client, folder, port)
