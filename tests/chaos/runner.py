"""One run: start, traffic with faults, heal, wait until all is done, stop, look for leftovers, and judge."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from duly_core.errors import DulyError
from duly_core.process.clock import since_boot_ns
from tests.chaos.access import CLIENT
from tests.chaos.calls import Calls
from tests.chaos.collect import Collected, collect, limits_of
from tests.chaos.events import LateEvents
from tests.chaos.faults import inject
from tests.chaos.file_clients import FileClients
from tests.chaos.fork_client import ForkServer
from tests.chaos.history import SECOND, Fault, History, Leftover
from tests.chaos.intruders import Intruders
from tests.chaos.plan import Fault as Planned
from tests.chaos.plan import Plan
from tests.chaos.process_tree import command, descendants, is_running, marked
from tests.chaos.replay import Replayer
from tests.chaos.shared import Shared
from tests.chaos.stack import System
from tests.chaos.stored_files import fetch_uses, wait_until_swept
from tests.chaos.watch import Watch
from tests.chaos.watcher import Watcher
from tests.chaos.workload import Workload

_REGISTERED_WITHIN = timedelta(seconds=60)
_FAULTS_END_WITHIN = timedelta(seconds=90)
_CALLS_END_WITHIN = timedelta(seconds=20)
_SETTLE_EVERY_S = 0.1
_BEYOND_NS = 5 * 10**9
"""How long the run looks on when it is too late: to tell late from never."""
_STARVED_NS = 2 * SECOND
"""In a run without faults a busy machine counts if a process waits for so long: heartbeats miss their deadline then."""
_IN_PART = "?"
"""Ends the kind of a fault of which nobody knows how much of it was done."""
_LIVE = """
select count(*), coalesce(array_agg(task_id::text) filter (where parked_on = 'event:'), '{}') from task_assoc
"""
"""How many tasks live, and which of them wait for an event."""
_GONE_WITHIN = timedelta(seconds=5)
_SWEPT_WITHIN = timedelta(seconds=30)
"""Two graces, and several sweeps on a busy machine."""
_WATCHED_WITHIN = timedelta(seconds=60)
_FETCHED_WITHIN = timedelta(seconds=60)


class RunFailedError(DulyError):
    """The run could not be carried out, so nothing is known of what it was for."""


@dataclass(slots=True)
class Outcome:
    """A run that is over."""

    history: History
    plan: Plan
    problems: list[str]
    """What clients and stale holders were told and should not have been."""
    sent: int
    missed: list[str]
    """Faults that found nothing to break."""
    replayed: dict[str, int] = field(default_factory=dict)
    """Calls with tokens whose claims were over, of tasks that another claim held; by kind."""
    intrusions: dict[str, int] = field(default_factory=dict)
    """Calls that nobody may make, by who made them."""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run, and how it is broken; `tests/zones` has another."""

    make_system: Callable[[Path, Plan, ForkServer, Shared], Any] = System
    inject: Callable[[Any, Planned], Awaitable[str]] = inject
    calm: Callable[[Any], Awaitable[None]] | None = None
    """Waits until the fault before is over; with it they come one at a time."""


class Run:
    """One seed."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        rate: float,
        fork_server: ForkServer,
        shared: Shared,
        setup: Setup = Setup(),
    ) -> None:
        """Make one.

        Args:
            plan: what is done.
            folder: where its files go.
            rate: tasks a second.
            fork_server: forks its processes.
            shared: what other runs use, too.
            setup: what is run.
        """
        self._setup = setup
        self._plan = plan
        self._folder = folder
        self._rate = rate
        self._fork_server = fork_server
        self._shared = shared
        self._faults: list[Fault] = []
        self._missed: list[str] = []
        self._phases: dict[str, float] = {}
        self._fault_log = (folder / "faults.log").open("a", buffering=1, encoding="utf-8")
        self._busy: dict[str, asyncio.Lock] = {}

    async def execute(self) -> Outcome:
        """All of it; whatever happens, no process is left.

        Raises:
            RunFailedError: it could not be carried out.
        """
        started, cpu = time.monotonic(), _cpu_seconds()
        system = self._setup.make_system(self._folder, self._plan, self._fork_server, self._shared)
        try:
            outcome = await self._execute(system)
        except (DulyError, psycopg.Error, TimeoutError, OSError) as error:
            raise RunFailedError(f"{type(error).__name__}: {error}") from error
        finally:
            self._wake_everybody()
            await system.stop()
            self._fork_server.close()
            await system.stop_postgres()
        outcome.cpu_s, outcome.wall_s = _cpu_seconds() - cpu, time.monotonic() - started
        return outcome

    async def _execute(self, system: System) -> Outcome:
        with self._phase("start"):
            await system.start()
            workload = Workload(
                system.frontends(),
                self._random("workload"),
                self._rate,
                peaceful=self._plan.peaceful,
                harmless=self._plan.harmless,
                contained=self._plan.contained,
                bursts=self._plan.bursts,
                tokens=system.tokens,
                topology=self._plan.topology,
            )
            file_clients = FileClients(
                self._calls(system, "files"),
                self._random("files"),
                system.files,
                peaceful=self._plan.peaceful,
            )
            await workload.wait_until_registered(_REGISTERED_WITHIN)
            await workload.declare()
        started_ns = since_boot_ns()
        watch, replayer = Watch(system), Replayer(system, self._random("replay"))
        intruders = Intruders(system, workload.some_task, self._random("intruders"))
        watcher = Watcher(self._calls(system, "watcher"), self._random("watcher"))
        for each in (watch, replayer, intruders, watcher):
            each.start()
        with self._phase("traffic"):
            breaking = asyncio.create_task(self._break(system))
            await asyncio.gather(workload.run(self._plan.seconds), file_clients.run(self._plan.seconds))
        with self._phase("heal"):
            await asyncio.wait_for(breaking, _FAULTS_END_WITHIN.total_seconds())
            await system.links.heal()
            await system.postgres.wait_until_up()
            await asyncio.gather(workload.finish(_CALLS_END_WITHIN), file_clients.finish(_CALLS_END_WITHIN))
            await system.wait_until_ready()
        healed_ns, starved_ns = since_boot_ns(), watch.starved_ns
        limits = limits_of(self._plan, self._rate)

        def starved() -> int:
            """What the machine had no time for is not what the system is late with; up to a point."""
            return min(watch.starved_ns - starved_ns, limits.most_starved_ns)

        calls = self._calls(system, "late events")
        late = LateEvents(calls, workload.told)
        with self._phase("settle"):
            if self._plan.mutation:  # what it breaks may never end, and is found without that
                await self._settle(system, late, lambda: healed_ns + _BEYOND_NS)
            else:
                await self._settle(
                    system, late, lambda: healed_ns + limits.liveness_ns + starved() + _BEYOND_NS
                )
        await calls.close()
        for each in (replayer, intruders, watch):
            await each.stop()
        await watcher.stop(_WATCHED_WITHIN)
        with self._phase("files"):
            files_left = await wait_until_swept(
                system.postgres.dsn, system.files, int(_SWEPT_WITHIN.total_seconds() * SECOND)
            )
            calls = self._calls(system, "fetch")
            async with asyncio.timeout(_FETCHED_WITHIN.total_seconds()):
                file_uses = await fetch_uses(system.postgres.dsn, calls)
            await calls.close()
        faults = (*self._faults, *watch.busy(_STARVED_NS if self._plan.peaceful else 0))
        limits = replace(
            limits,
            liveness_ns=limits.liveness_ns + starved(),
            starved_ns=watch.starved_ns - starved_ns,
            start_ns=limits.start_ns and limits.start_ns + watch.starved_ns,
            least_faults={"": limits.least_faults[""] + len(faults) - self._whole_faults()},
        )
        with self._phase("stop"):
            await system.stop()
        leftovers = await self._leftovers(system)
        with self._phase("collect"):
            collected: Collected = await collect(system)
        history = History(
            seed=self._plan.seed,
            limits=limits,
            started_ns=started_ns,
            healed_ns=healed_ns,
            finished_ns=since_boot_ns(),
            acked=(*workload.acked(), *file_clients.acked()),
            executions=collected.executions,
            transitions=collected.transitions,
            final=collected.final,
            sessions=collected.sessions,
            changes=workload.changes(),
            graphs=collected.graphs,
            nodes=collected.nodes,
            edges=collected.edges,
            time_tables=collected.time_tables,
            ticks=collected.ticks,
            uses=collected.uses,
            passed_over=collected.passed_over,
            faults=faults,
            seen=watch.seen(),
            samples=watch.samples(),
            stale_writes=collected.stale_writes,
            leftovers=leftovers,
            file_reads=collected.file_reads,
            files_sent=collected.files_sent,
            file_uses=file_uses,
            files_left=files_left,
            watches=watcher.stretches(),
            told=watcher.told(),
            address_uses=tuple(workload.address_uses),
            events=collected.events,
            unreadable=collected.unreadable,
            queue=self._plan.queue,
            clock_moves=tuple(system.clock_moves),
        )
        return Outcome(
            history,
            self._plan,
            [
                *(*workload.problems, *file_clients.problems),
                *(*replayer.problems, *intruders.problems, *watcher.problems),
            ],
            workload.sent,
            self._missed,
            dict(replayer.replayed),
            dict(intruders.tried),
            phases=self._phases,
        )

    def _calls(self, system: System, what: str) -> Calls:
        """Return calls of a client."""
        return Calls(system.frontends(), self._random(f"{what} calls"), system.tokens.token(CLIENT))

    def _random(self, what: str) -> Random:
        return Random(f"duly-chaos/{self._plan.seed}/{what}")

    # ---- faults ----------------------------------------------------------------------------------------

    async def _break(self, system: System) -> None:
        """Every fault at its time; those of one target one after the other."""
        origin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for planned in self._plan.faults:
                await asyncio.sleep(max(0.0, origin + planned.at_s - time.monotonic()))
                group.create_task(self._inject(system, planned, origin))

    async def _inject(self, system: System, planned: Planned, origin: float) -> None:
        calm = self._setup.calm
        async with self._busy.setdefault(planned.target if calm is None else "", asyncio.Lock()):
            if calm is not None:
                await calm(system)
            if time.monotonic() - origin > self._plan.seconds:
                self._miss(planned, "no time was left")
                return
            from_ns = since_boot_ns()
            began = time.monotonic() - origin
            try:
                done = await self._setup.inject(system, planned)
            except (psycopg.Error, OSError, TimeoutError, AssertionError) as error:
                done = ""
                self._say(f"{planned}: {type(error).__name__}: {error}")
            until_ns = since_boot_ns()
        if not done:
            self._miss(planned, "found nothing to break")
            # It may have done a part: what follows from that is explained by it all the same.
            self._faults.append(Fault(planned.kind + _IN_PART, planned.target, from_ns, until_ns, "in part"))
            return
        self._faults.append(Fault(planned.kind, planned.target, from_ns, until_ns, done))
        self._say(f"{planned}: began {began:.2f}, healed {time.monotonic() - origin:.2f}: {done}")

    def _miss(self, planned: Planned, why: str) -> None:
        self._missed.append(f"{planned}: {why}")
        self._say(f"{planned}: {why}")

    def _say(self, line: str) -> None:
        self._fault_log.write(f"{line}\n")

    # ---- the end ---------------------------------------------------------------------------------------

    def _whole_faults(self) -> int:
        return sum(not fault.kind.endswith(_IN_PART) for fault in self._faults)

    async def _settle(self, system: System, late: LateEvents, until_ns: Callable[[], int]) -> None:
        """Until no task lives, or the checker would call those that do late."""
        while since_boot_ns() < until_ns():
            async with await system.postgres.connect() as connection:
                while since_boot_ns() < until_ns():
                    cursor = await connection.execute(_LIVE)
                    live, waiting = await cursor.fetchone() or (1, [])
                    if not live:
                        return
                    await late.send(waiting)
                    await asyncio.sleep(_SETTLE_EVERY_S)

    async def _leftovers(self, system: System) -> tuple[Leftover, ...]:
        """Processes, and sessions on Postgres, that outlive a graceful stop."""
        deadline = time.monotonic() + _GONE_WITHIN.total_seconds()
        while True:
            processes = self._processes(system)
            async with await system.postgres.connect() as connection:
                cursor = await connection.execute(
                    "select pid, application_name, state from pg_stat_activity "
                    "where datname = current_database() and application_name <> 'chaos'"
                )
                sessions = await cursor.fetchall()
            if not (processes or sessions) or time.monotonic() > deadline:
                break
            await asyncio.sleep(_SETTLE_EVERY_S)
        return (
            *(Leftover("process", f"{pid}: {command}") for pid, command in processes.items()),
            *(Leftover("connection", " ".join(map(str, session))) for session in sessions),
        )

    def _processes(self, system: System) -> dict[int, str]:
        """Whatever the run has started and still runs: below the fork server, or with its mark."""
        below = {pid: command(pid) for pid in descendants(self._fork_server.pid) if is_running(pid)}
        return below | marked(system.run_id)

    def _wake_everybody(self) -> None:
        """After a failure: what is stopped by SIGSTOP does not end when it is told to."""
        for pid in descendants(self._fork_server.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = round(time.monotonic() - started, 2)


def _cpu_seconds() -> float:
    """Of this process and of all that it waited for."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
