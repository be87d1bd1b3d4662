"""What one test has: the services, its workers, the clock, and how they take turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duly
from duly_local.testing.client import TestClient
from duly_local.testing.clock import DulyClock
from duly_local.testing.database import TestDatabase, database_of_tests
from duly_local.testing.errors import DulyTestError, check_type
from duly_local.testing.loop_thread import LoopThread
from duly_local.testing.service_logs import to_standard_logging
from duly_local.testing.worker import MOST_RUNS, DulyWorker, Run, too_many
from duly_server.stepped.clock import Look, SteppedClock
from duly_server.stepped.server import Pools, SteppedServer, open_pools

if TYPE_CHECKING:
    from duly_wire.v1 import hsc_pb2

ADDRESS = "DULY_ADDRESS"
"""Names the Frontend to clients that are made without an address."""

_PATIENCE = timedelta(days=366)
"""How far a wait without a timeout steps: no task is scheduled later."""
_SLACK = timedelta(minutes=10)
"""Of an instant that was now, when it was chosen."""


class TestSession:
    """What all tests of a pytest process share: Postgres, the connections, the thread of the services. For a `with`."""

    __test__ = False  # to pytest

    def __init__(self, dsn: str = "") -> None:
        """Make one on a database of the server at `dsn`; empty: on a Postgres of its own."""
        self._given = dsn
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        with _without_configuration():
            self.database: TestDatabase = self._closing.enter_context(database_of_tests(self._given))
            self.thread = self._closing.enter_context(LoopThread())
            pools = open_pools(self.database.dsn)
            self.pools: Pools = self.thread.enter(pools)
            self._closing.callback(self.thread.leave, pools)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


class TestStack:
    """One test's. For a `with`."""

    __test__ = False  # to pytest

    def __init__(self, session: TestSession, attachments: Path, begins_at: datetime | None = None) -> None:
        """Make one whose clock begins at an instant; None: now.

        Raises:
            DulyTestError: the instant is in the past, where Frontends, by the clock of their host, refuse what expires.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        self.began_at = now if begins_at is None else begins_at
        check_type("duly_begins_at", self.began_at, datetime, "datetime(2038, 3, 27, tzinfo=UTC)")
        if self.began_at.tzinfo is None:
            raise DulyTestError(f"{begins_at!r} has no time zone: write datetime(..., tzinfo=UTC)")
        if self.began_at < now - _SLACK:
            raise DulyTestError(f"the clock of a test cannot begin in the past: {self.began_at.isoformat()}")
        self._session = session
        self._thread = session.thread
        self._clock = SteppedClock(session.pools.consumer)
        self._server = SteppedServer(session.pools, self._clock, attachments)
        self._closing = ExitStack()
        self.workers: list[DulyWorker] = []
        self.clock = DulyClock(self)

    def __enter__(self) -> Self:
        self._session.database.reset(self.began_at)
        self._closing.enter_context(to_standard_logging())
        self._thread.run(self._clock.begin_at(self.began_at))
        with _without_configuration():
            self._thread.enter(self._server)
        self._closing.callback(self._thread.leave, self._server)
        self._closing.enter_context(_environment({ADDRESS: self.address}))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()
        self._closing.close()

    @property
    def address(self) -> str:
        """Where the Frontend is."""
        return self._server.address

    @property
    def dsn(self) -> str:
        """Where the database is."""
        return self._session.database.dsn

    def client(self, app: duly.App | None = None) -> TestClient:
        """Open a client, with the codec of an application."""
        return TestClient(self, app.codec if app is not None else None)

    def add_worker(self, app: duly.App) -> DulyWorker:
        """Register the lambdas of an application, and make a worker of it."""
        with self.client(app) as client:
            client.register(app)
        worker = DulyWorker(self, app, f"worker-{len(self.workers) + 1}")
        self.workers.append(worker)
        return worker

    @property
    def is_running(self) -> bool:
        """Whether a callback runs now."""
        return any(worker.is_running for worker in self.workers)

    # ---- for workers -------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The instant at which the clock stands."""
        return self._clock.now

    def nanoseconds(self) -> int:
        """Return the same in nanoseconds since 1970."""
        return self._clock.nanoseconds()

    @property
    def queues(self) -> list[str]:
        """The names of all queues."""
        return self._server.queues

    def claim(self, holder: str, queues: Sequence[str], most: int = 1) -> list[hsc_pb2.ClaimedTask]:
        """Claim tasks that are due; none if none is."""
        return self._thread.run(self._server.claim(holder, queues, most)) if queues else []

    def report(self, results: Sequence[hsc_pb2.TaskResult]) -> None:
        """Write how runs ended."""
        self._thread.run(self._server.report(results))

    def beat(self, holder: str, item: hsc_pb2.HeartbeatItem) -> hsc_pb2.HeartbeatVerdict.ValueType:
        """Renew a claim."""
        return self._thread.run(self._server.beat(holder, item))

    def call_frontend(self, method: str, request: Any) -> Any:
        """Make a call that a callback may make."""

        async def call() -> Any:
            server = self._server
            stub = server.event_addresses if method == "CreateEventAddresses" else server.attachments
            return await getattr(stub, method)(request)

        return self._thread.run(call())

    # ---- turns -------------------------------------------------------------------------------------------

    def run_due(self, workers: Sequence[DulyWorker], most: int, *, stops: bool = False) -> list[Run]:
        """Run what is due now. After `most` runs it `stops`, or raises."""
        turns = _Turns(workers, most, self.now, stops=stops)
        self._run_due(turns)
        return turns.runs

    def advance_to(self, instant: datetime, most: int) -> list[Run]:
        """Step to `instant`, and run what is due on the way."""
        turns = _Turns(self.workers, most, self.now)
        look = self._run_due(turns, until=instant)
        while look.next is not None and look.next <= instant:
            look = self._run_due(turns, look.next, until=instant)
        if self.now < instant:
            self._run_due(turns, instant)
        return turns.runs

    def step_until(self, has_ended: Callable[[], bool], timeout: timedelta | None) -> bool:
        """Step to what is due, until something has ended; return whether it has.

        False: no task waits for a time any more, or the timeout is over.
        """
        turns = _Turns(self.workers, MOST_RUNS, self.now)
        end = turns.since + (_PATIENCE if timeout is None else timeout)
        look = self._run_due(turns)
        while not has_ended():
            if timeout is None and look.waits_until is None:
                return False
            if look.next is None or look.next > end:
                self._run_due(turns, end)
                return has_ended()
            look = self._run_due(turns, look.next)
        return True

    def run_until_idle(self, within: timedelta, most: int) -> list[Run]:
        """Step until no task waits for a time, and run what is due on the way."""
        turns = _Turns(self.workers, most, self.now)
        look = self._run_due(turns)
        while look.waits_until is not None and look.next is not None:
            if look.next > turns.since + within:
                raise DulyTestError(
                    f"after {within} of the stepped clock there are still tasks that wait, the next until {look.waits_until.isoformat()}: "
                    "pass within=... if they are to wait for longer"
                )
            look = self._run_due(turns, look.next)
        return turns.runs

    def _run_due(self, turns: _Turns, instant: datetime | None = None, until: datetime | None = None) -> Look:
        """Move the clock to an instant (None: not at all), and run what is due then; return what is left.

        Go on `until` a later instant, while what is due can be run.
        """
        if self.is_running:
            raise DulyTestError(
                "a callback cannot run other tasks, nor move the clock: its own run has not ended"
            )
        if instant is None:
            self._thread.run(self._server.refresh())
        while True:
            look = self._thread.run(self._server.step(instant, until))
            instant = None
            before = len(turns.runs)
            for worker in turns.workers if look.tasks else ():
                while turns.may_go_on(self.now) and (runs := worker.claim_and_run()):
                    turns.runs += runs
                    if look.tasks == 1:
                        break  # most likely there is no other: the next look is cheaper than to ask for one
            if turns.is_over or len(turns.runs) == before:
                return look


@dataclass(slots=True)
class _Turns:
    """The runs of one call, and how many there may be."""

    workers: Sequence[DulyWorker]
    most: int
    since: datetime
    stops: bool = False
    """After `most` runs, in place of an error."""
    runs: list[Run] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.stops and len(self.runs) >= self.most

    def may_go_on(self, now: datetime) -> bool:
        if len(self.runs) < self.most:
            return True
        if self.stops:
            return False
        raise too_many(self.runs, self.since, now, self.most)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_configuration() -> Iterator[None]:
    """Leave out what the machine of the test says of Duly: a test finds the same everywhere."""
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("DULY_")}
    os.environ["DULY_CONFIG"] = os.devnull
    try:
        yield
    finally:
        del os.environ["DULY_CONFIG"]
        os.environ.update(hidden)
