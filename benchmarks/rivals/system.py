"""The rivals: how each is run at its best, as far as was found, and what of it survives a crash."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks import marks
from benchmarks.rivals.redis_server import missing as redis_is_missing
from benchmarks.rivals.redis_server import redis_server
from benchmarks.rivals.venv import python
from benchmarks.system import Description, Driver, Program, Running, System, driving
from duly_local.postgres.embedded import EmbeddedPostgres

_POSTGRES = "Postgres, synchronous_commit on: an accepted task survives a server crash"
_REDIS = "Redis, AOF everysec: up to about 1 s of accepted tasks lost on a server crash"

_CELERY = ("-l", "WARNING", "-n", "w{number}@bench")
_CELERY += ("--without-gossip", "--without-mingle", "--without-heartbeat")  # talk among workers


@dataclass(frozen=True)
class Recipe:
    """One rival."""

    name: str
    module: str
    broker: Literal["postgres", "redis"]
    worker: tuple[str, ...]
    """What the venv's Python is told: `-m ...`."""
    description: Description
    commands: int = 1
    """How many of that command are started."""
    processes: int = 1
    """That run tasks, in all."""
    environment: Mapping[str, str] = field(default_factory=dict)


RECIPES = (
    Recipe(
        "procrastinate",
        "benchmarks.rivals.procrastinate_app",
        "postgres",
        ("-m", "benchmarks.rivals.procrastinate_app"),
        Description(
            "procrastinate",
            "2 workers of concurrency 8 on uvloop, LISTEN/NOTIFY, polling every 0.1 s, finished jobs deleted",
            _POSTGRES,
        ),
        commands=2,
        processes=2,
    ),
    Recipe(
        "pgqueuer",
        "benchmarks.rivals.pgqueuer_app",
        "postgres",
        ("-m", "benchmarks.rivals.pgqueuer_app"),
        Description(
            "pgqueuer",
            "1 worker (asyncpg, uvloop), batches of 500, polling every 0.1 s, durable tables; completions wait "
            "in memory for up to 500 jobs or 0.1 s",
            _POSTGRES,
        ),
    ),
    Recipe(
        "celery",
        "benchmarks.rivals.celery_app",
        "redis",
        (
            "-m",
            "celery",
            "-A",
            "benchmarks.rivals.celery_app",
            "worker",
            "-P",
            "threads",
            "-c",
            "4",
            *_CELERY,
        ),
        Description(
            "Celery on Redis",
            "2 workers of 4 threads, acks_late, reject_on_worker_lost, prefetch x 64, results ignored",
            _REDIS,
        ),
        commands=2,
        processes=2,
    ),
    Recipe(
        "dramatiq",
        "benchmarks.rivals.dramatiq_app",
        "redis",
        ("-m", "dramatiq", "benchmarks.rivals.dramatiq_app", "-p", "2", "-t", "4", "--skip-logging"),
        Description(
            "dramatiq on Redis",
            "2 processes of 4 threads, prefetch 128, worker timeout 100 ms, default middleware",
            _REDIS,
        ),
        processes=2,
        environment={"dramatiq_queue_prefetch": "128", "dramatiq_worker_timeout": "100"},
    ),
)


class RunningRival(Running):
    """A rival with its server up."""

    def __init__(
        self, driver: Driver, noted: marks.Marks, recipe: Recipe, environment: Mapping[str, str], folder: Path
    ) -> None:
        super().__init__(driver, noted)
        self._recipe = recipe
        self._environment = environment
        self._folder = folder
        self._programs: list[Program] = []

    async def start_workers(self) -> None:
        for number in range(self._recipe.commands):
            command = [python(), *(part.format(number=number) for part in self._recipe.worker)]
            log = self._folder / f"worker-{number}.log"
            self._programs.append(Program(command, self._environment, log))

    async def stop_workers(self) -> None:
        programs, self._programs = self._programs, []
        await asyncio.gather(*(asyncio.to_thread(program.stop) for program in programs))


class Rival(System):
    """One rival, by its recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.name = recipe.name
        self.description = recipe.description
        self.processes = recipe.processes
        self._recipe = recipe

    def missing(self) -> str:
        return redis_is_missing() if self._recipe.broker == "redis" else ""

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[RunningRival]:
        noted = folder / "marks"
        noted.mkdir()
        with ExitStack() as services:
            environment = {marks.FOLDER: str(noted), **self._recipe.environment}
            if self._recipe.broker == "redis":
                environment["DULY_BENCH_REDIS"] = services.enter_context(redis_server(folder))
            else:
                # the very server and settings that Duly gets
                postgres = services.enter_context(EmbeddedPostgres(folder / "data"))
                environment["DULY_BENCH_DSN"] = postgres.socket_dsn
            async with driving(python(), self._recipe.module, environment, folder) as driver:
                await driver.ask("call", method="install")
                rival = RunningRival(driver, marks.Marks(noted), self._recipe, environment, folder)
                try:
                    yield rival
                finally:
                    await rival.stop_workers()
