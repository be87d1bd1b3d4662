"""The parts of a run by name: versions, and processes with their pids and ports."""

import asyncio
import os
import platform
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version

import psycopg
from psycopg.conninfo import conninfo_to_dict

from duly_core.errors import DulyError
from duly_local.demo.processes import callback_processes_of, children_of, executors_of
from duly_local.options import SERVICES
from duly_local.stack import LocalStack

WORKER = "worker"

_READY_WITHIN = timedelta(seconds=30)
_LOOK_EVERY = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class Part:
    """One process."""

    name: str
    pid: int
    port: int | None = None
    depth: int = 0
    """How many parts started each other before it."""


async def all_executors_run(worker: int, count: int) -> None:
    """Wait until so many of a host's Executors can run callbacks: the host itself is ready with the first.

    Raises:
        DulyError: they do not come.
    """
    try:
        async with asyncio.timeout(_READY_WITHIN.total_seconds()):
            while _executors_running(worker) < count:  # noqa: ASYNC110 (the event is in other processes)
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
    except TimeoutError:
        raise DulyError(f"{count} Executors do not run after {_READY_WITHIN.total_seconds():g} s") from None


def _executors_running(worker: int) -> int:
    return sum(bool(callback_processes_of(executor.pid)) for executor in executors_of(worker))


def versions(stack: LocalStack) -> dict[str, str]:
    """What runs, by name; Postgres is asked."""
    with psycopg.connect(stack.dsn, connect_timeout=10) as connection:
        postgres = connection.execute("SHOW server_version").fetchone()
    found = {
        "Duly": version("duly"),
        "Python": platform.python_version(),
        "Postgres": str(postgres[0]) if postgres else "unknown",
        "gRPC": version("grpcio"),
    }
    if stack.options.queue == "sqs":
        found |= {"boto3": version("boto3"), "moto": version("moto")}
    return found


def parts(stack: LocalStack) -> list[Part]:
    """Every process that runs now, with the port that others reach it on."""
    found = []
    for process in children_of(os.getpid()):
        if process.runs("postgres"):
            found.append(Part("Postgres", process.pid, int(str(conninfo_to_dict(stack.dsn)["port"]))))
        elif stack.ports.sqs and str(stack.ports.sqs) in process.arguments:
            found.append(Part("SQS (moto's server)", process.pid, stack.ports.sqs))
    pids = stack.supervisor.pids() if stack.supervisor else {}
    names = dict(zip(SERVICES, ("Frontend", "Store Consumer", "HSC"), strict=True)) | {WORKER: "Controller"}
    for name, shown in names.items():
        if name in pids:
            found.append(Part(shown, pids[name], stack.ports.grpc[name]))
    for executor in executors_of(pids[WORKER]) if WORKER in pids else ():
        found.append(Part("Executor", executor.pid, depth=1))
        found += [Part("callback process", each.pid, depth=2) for each in callback_processes_of(executor.pid)]
    return found
