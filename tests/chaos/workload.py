"""Clients: they schedule at a steady rate, repeat what was not answered, cancel some, and remember what was acknowledged."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import duly
from duly.caller import Caller
from duly.v1 import frontend_pb2, task_pb2
from duly_core.clock import since_boot_ns
from tests.chaos.history import SECOND, AckedTask
from tests.chaos.kinds import BY_NAME, IN_SESSIONS, KINDS, TaskKind, choose
from tests.chaos.scarce import CAPACITIES, PER_KEY, RATES, choose_needs, told

_BATCH_EVERY_S = 0.1
_ONE_CALL = timedelta(seconds=4)
_PAUSE_S = 0.1
_EXPIRES = (0.5, 4.0)
_AHEAD_S = (0.5, 10.0)
_ONE_IN_AHEAD = 8
_ONE_IN_KEYED = 3
_ONE_IN_REPEATED = 20
"""Of the keyed ones: scheduled once more, though the first answer came."""
_ONE_IN_SESSION = 8
_SESSIONS = tuple(f"chaos-{number}" for number in range(6))
_POLICIES = (*[duly.SessionPolicy.SKIP] * 2, duly.SessionPolicy.FAIL_REST)
"""None blocks its session: nobody would unblock it."""
_CANCEL_AFTER_S = (0.0, 3.0)
_REQUESTED = (task_pb2.TASK_STATUS_CLAIMED, task_pb2.TASK_STATUS_PROCESSING)


@dataclass(slots=True)
class _Scheduled:
    """One task on its way."""

    kind: TaskKind
    task: frontend_pb2.NewTask
    due_ns: int = 0
    expires_ns: int = 0
    task_id: str = ""
    acked_ns: int = 0
    cancel_asked: bool = False
    cancel_answered: str = ""
    resources: str = ""


class Workload:
    """All clients of a run, each with every Frontend at hand."""

    def __init__(
        self,
        addresses: list[str],
        random: Random,
        rate: float,
        *,
        peaceful: bool,
        harmless: bool = False,
        contained: bool = False,
    ) -> None:
        self._callers = [Caller(address) for address in addresses]
        self._random = random
        self._rate = rate
        self._peaceful = peaceful
        self._harmless = harmless
        self._contained = contained
        self._scheduled: list[_Scheduled] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._sent = 0
        self.problems: list[str] = []
        """Answers that must not be: refusals of what is right."""

    async def wait_until_registered(self, within: timedelta) -> None:
        """Until every kind can be scheduled.

        Raises:
            TimeoutError: it cannot.
        """
        wanted = {kind.lambda_name for kind in KINDS}
        async with (
            asyncio.timeout(within.total_seconds()),
            duly.AsyncClient(self._callers[0].address) as client,
        ):
            while not wanted <= {each.name for each in await client.lambdas()}:
                await asyncio.sleep(_PAUSE_S)

    async def declare_resources(self) -> None:
        """As an operator would, before anything is broken."""
        async with duly.AsyncClient(self._callers[0].address) as client:
            for name, capacity in CAPACITIES.items():
                await client.put_resource(name, capacity, rate=RATES.get(name), per_key=name in PER_KEY)

    async def run(self, seconds: float) -> None:
        """Schedule for so long; calls may go on beyond."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while (passed := loop.time() - started) < seconds:
            batch = [self._next() for _ in range(int(passed * self._rate) - self._sent)]
            self._sent += len(batch)
            if batch:
                self._start(self._schedule(batch))
            await asyncio.sleep(_BATCH_EVERY_S)

    async def finish(self, within: timedelta) -> None:
        """Wait for the calls under way; those that last longer stay unanswered."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=within.total_seconds())
        self._stopped.set()
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        for caller in self._callers:
            await caller.close()

    @property
    def sent(self) -> int:
        return self._sent

    def acked(self) -> tuple[AckedTask, ...]:
        """What was acknowledged."""
        return tuple(_acked(scheduled) for scheduled in self._scheduled)

    def _start(self, call: "asyncio.Future[None] | object") -> None:
        task = asyncio.ensure_future(call)  # type: ignore[call-overload]
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, call: "asyncio.Task[None]") -> None:
        """Whatever a client was told that is no answer is a finding: unavailable is tried again."""
        self._calls.discard(call)
        if not call.cancelled() and (error := call.exception()) is not None:
            self.problems.append(f"a client failed: {type(error).__name__}: {error}")

    def _next(self) -> _Scheduled:
        random = self._random
        kind = choose(random, peaceful=self._peaceful, harmless=self._harmless, contained=self._contained)
        session = None
        if random.randrange(_ONE_IN_SESSION) == 0:
            kind = BY_NAME[random.choice(IN_SESSIONS)]
            session = duly.Session(random.choice(_SESSIONS), on_failure=random.choice(_POLICIES))
        ahead = random.uniform(*_AHEAD_S) if random.randrange(_ONE_IN_AHEAD) == 0 else 0.0
        expires = random.uniform(*_EXPIRES) + ahead if kind.name == "expiring" else 0.0
        needs = choose_needs(random)
        now_ns = since_boot_ns()
        new = duly.NewTask(
            kind.lambda_name,
            kind.payload(random, shares=self._contained),
            random.choice(list(duly.Priority)),
            delay=timedelta(seconds=ahead) if ahead else None,
            expires_at=datetime.now(UTC) + timedelta(seconds=expires) if expires else None,
            idempotency_key=f"{random.getrandbits(64):x}" if random.randrange(_ONE_IN_KEYED) == 0 else None,
            session=session,
            resources=needs,
        )
        return _Scheduled(
            kind,
            new.to_proto(),
            due_ns=now_ns + int(ahead * SECOND) if ahead else 0,
            expires_ns=now_ns + int(expires * SECOND) if expires else 0,
            resources=told(needs),
        )

    async def _schedule(self, batch: list[_Scheduled]) -> None:
        """Until every Frontend's silence is over: the same request, so that nothing is written twice."""
        request = frontend_pb2.ScheduleRequest(tasks=[scheduled.task for scheduled in batch])
        answer = await self._call("Schedule", request)
        acked_ns = since_boot_ns()
        for scheduled, result in zip(batch, answer.results, strict=True):
            if result.error.field == "expires_at":
                continue  # no Frontend answered before it expired
            if result.HasField("error"):
                self.problems.append(f"Schedule of {scheduled.kind.name} refused: {result.error.message}")
                continue
            scheduled.task_id, scheduled.acked_ns = result.task_id, acked_ns
            self._scheduled.append(scheduled)
            if scheduled.kind.cancelled:
                self._start(self._cancel(scheduled))
            key = scheduled.task.idempotency_key
            if key and self._random.randrange(_ONE_IN_REPEATED) == 0:
                self._start(self._repeat(scheduled))

    async def _repeat(self, scheduled: _Scheduled) -> None:
        answer = await self._call("Schedule", frontend_pb2.ScheduleRequest(tasks=[scheduled.task]))
        (result,) = answer.results
        if result.task_id != scheduled.task_id or result.created:
            self.problems.append(f"the key of {scheduled.task_id} made another task: {result.task_id}")

    async def _cancel(self, scheduled: _Scheduled) -> None:
        await asyncio.sleep(self._random.uniform(*_CANCEL_AFTER_S))
        scheduled.cancel_asked = True
        answer = await self._call("CancelTask", frontend_pb2.CancelTaskRequest(task_ids=[scheduled.task_id]))
        (result,) = answer.results
        if result.error.code == task_pb2.ERROR_CODE_ALREADY_FINAL:
            # An earlier try of the same request may have been the one that cancelled it.
            scheduled.cancel_answered = "final"
        elif result.HasField("error"):
            self.problems.append(f"cancel of {scheduled.task_id}: {result.error.message}")
        else:
            scheduled.cancel_answered = "requested" if result.status in _REQUESTED else "cancelled"

    async def _call(self, method: str, request: object) -> object:
        """Of any Frontend, the one that comes first in turn."""
        turn = self._random.randrange(len(self._callers))
        while not self._stopped.is_set():
            caller = self._callers[turn % len(self._callers)]
            with suppress(duly.UnavailableError):
                return await caller.call(getattr(caller.frontend, method), request, _ONE_CALL)
            turn += 1
            await asyncio.sleep(_PAUSE_S)
        raise asyncio.CancelledError


def _acked(scheduled: _Scheduled) -> AckedTask:
    kind = scheduled.kind
    return AckedTask(
        task_id=scheduled.task_id,
        lambda_name=kind.lambda_name,
        kind=kind.name,
        acked_ns=scheduled.acked_ns,
        due_ns=scheduled.due_ns,
        legal=frozenset(kind.statuses),
        least_executions=kind.executions_least,
        plain=kind.name == "quick",
        crashes_itself=kind.crashes_itself,
        breaks_process=kind.breaks_its_process,
        poison=kind.name == "poison",
        max_crashes=kind.max_crashes,
        longest_ns=int(kind.longest.total_seconds() * SECOND),
        cancel_asked=scheduled.cancel_asked,
        cancel_answered=scheduled.cancel_answered,
        expires_ns=scheduled.expires_ns,
        session=scheduled.task.session.key,
        resources=scheduled.resources,
    )
