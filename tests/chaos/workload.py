"""Clients: they schedule at a steady rate, repeat what was not answered, cancel some, and remember what was acknowledged."""

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duly
from duly.tasks.update import TaskUpdate
from duly_core.process.clock import since_boot_ns
from duly_wire.v1 import frontend_pb2, graphs_pb2, registry_pb2, task_pb2, time_tables_pb2
from tests.chaos.access import CLIENT, OPERATOR, Tokens
from tests.chaos.calls import Calls
from tests.chaos.events import Addresses, sent_to
from tests.chaos.history import SECOND, AckedTask, AddressUse, Change
from tests.chaos.kinds import BY_NAME, CHANGED, IN_SESSIONS, KINDS, choose
from tests.chaos.random_graphs import calendars, random_graph, time_tables
from tests.chaos.scarce import CAPACITIES, PER_KEY, RATES, choose_needs, choose_session, told, told_of
from tests.chaos.scheduled import Scheduled, acked_task
from tests.chaos.topology import SLOTS, Topology
from tests.chaos.turns import AFTER_S, KEYS, LAMBDA, MOST_WEIGHT, choose_burst, choose_weights

_BATCH_EVERY_S = 0.1
_PAUSE_S = 0.1
_EXPIRES = (0.5, 4.0)
_AHEAD_S = (0.5, 10.0)
_ONE_IN_AHEAD = 8
_ONE_IN_KEYED = 3
_ONE_IN_REPEATED = 20
"""Of the keyed ones: scheduled once more, though the first answer came."""
_ONE_IN_SESSION = 8
_ONE_IN_UNIQUE = 10
"""Of those whose kind is in CHANGED, and that have no session."""
_UNIQUE_KEYS = tuple(f"unique-{number}" for number in range(3))
_CANCEL_AFTER_S = (0.0, 3.0)
_ONE_IN_ADDRESSED = 2
"""Events."""
_ONE_IN_CHANGED = 8
"""Of those that write down which payload they were given, and are due at once; of the others all are changed."""
_MOST_CHANGES = 3
_CHANGE_AFTER_S = (0.0, 1.5)
_NEWEST = 50
_MOST_TRIES = 1_000
_ONE_IN_MOVED = 3
"""Of the changes: the due time, too."""
_MOVED_S = 2.0
_ONE_IN_WEIGHED = 2
"""Bursts of tasks with fair keys."""
_ONE_IN_PURGED = 20
"""Batches whose plain tasks are deleted when they have ended."""
_PURGE_AFTER_S = 2.0
_GRAPH_EVERY_S = 1.0
_ONE_IN_CANCELLED, _ONE_IN_TWICE = 5, 5
"""Graphs."""
_REQUESTED = (task_pb2.TASK_STATUS_CLAIMED, task_pb2.TASK_STATUS_PROCESSING)


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
        bursts: Sequence[float] = (),
        tokens: Tokens,
        topology: Topology,
    ) -> None:
        self._client = Calls(addresses, random, tokens.token(CLIENT))
        self._tokens = tokens
        self._random = random
        self._rate = rate
        self._peaceful = peaceful
        self._harmless = harmless
        self._contained = contained
        self._bursts = bursts
        self._topology = topology
        self._scheduled: list[Scheduled] = []
        self._changes: list[Change] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._sent = 0
        self.problems: list[str] = []
        """Answers that must not be: refusals of what is right."""
        self.address_uses: list[AddressUse] = []
        self.told: set[str] = set()
        """Tasks whose event was acknowledged."""

    async def wait_until_registered(self, within: timedelta) -> None:
        """Until every kind can be scheduled.

        Raises:
            TimeoutError: it cannot.
        """
        wanted = {kind.lambda_name for kind in KINDS}
        async with (
            asyncio.timeout(within.total_seconds()),
            duly.AsyncClient(self._client.address, token=self._tokens.token(CLIENT)) as client,
        ):
            while not wanted <= {each.name for each in await client.lambdas()}:
                await asyncio.sleep(_PAUSE_S)

    async def declare(self) -> None:
        """Resources and calendars, as an operator would, before anything is broken."""
        async with duly.AsyncClient(self._client.address, token=self._tokens.token(OPERATOR)) as client:
            for name, capacity in CAPACITIES.items():
                await client.put_resource(name, capacity, rate=RATES.get(name), per_key=name in PER_KEY)
            for name, calendar in calendars(datetime.now(UTC)).items():
                await client.put_calendar(name, **calendar)

    async def run(self, seconds: float) -> None:
        """Schedule for so long; calls may go on beyond."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        graphs = bursts = 0
        for new in time_tables():  # each by itself: one after the other they may take longer than a call
            self._start(self._make_time_table(new))
        while (passed := loop.time() - started) < seconds:
            batch = [self._next() for _ in range(int(passed * self._rate) - self._sent)]
            self._sent += len(batch)
            if batch:
                self._start(self._schedule(batch))
            if passed >= graphs * _GRAPH_EVERY_S:
                graphs += 1
                self._start(self._schedule_graph())
            if bursts < len(self._bursts) and passed >= self._bursts[bursts]:
                bursts += 1
                self._start(self._schedule_burst(is_first=bursts == 1))
            await asyncio.sleep(_BATCH_EVERY_S)

    async def finish(self, within: timedelta) -> None:
        """Wait for the calls under way; those that last longer stay unanswered. No tick follows."""
        self._start(self._pause_time_tables())
        if self._calls:
            await asyncio.wait(self._calls, timeout=within.total_seconds())
        self._client.stop()
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._client.close()

    @property
    def sent(self) -> int:
        return self._sent

    def acked(self) -> tuple[AckedTask, ...]:
        """What was acknowledged."""
        return tuple(acked_task(scheduled) for scheduled in self._scheduled)

    def some_task(self) -> tuple[str, str]:
        """Return the ids of a task, and of the graph that it is in; none: nothing is acknowledged yet."""
        if not self._scheduled:
            return "", ""
        # no random number of the plan's: the caller is not part of it
        newest = self._scheduled[-1 - since_boot_ns() % min(len(self._scheduled), _NEWEST)]
        return newest.task_id, newest.graph_id

    def changes(self) -> tuple[Change, ...]:
        """What was asked to be changed."""
        return tuple(self._changes)

    def _start(self, call: "asyncio.Future[None] | object") -> None:
        task = asyncio.ensure_future(call)  # type: ignore[call-overload]
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, call: "asyncio.Task[None]") -> None:
        """Whatever a client was told that is no answer is a finding: unavailable is tried again."""
        self._calls.discard(call)
        if not call.cancelled() and (error := call.exception()) is not None:
            *_, last = traceback.extract_tb(error.__traceback__)
            place = f"{Path(last.filename).name}:{last.lineno}"
            self.problems.append(f"a client failed: {type(error).__name__}: {error} ({place})")

    def _next(self) -> Scheduled:
        random = self._random
        kind = choose(random, peaceful=self._peaceful, harmless=self._harmless, contained=self._contained)
        session = None
        if random.randrange(_ONE_IN_SESSION) == 0:
            kind = BY_NAME[random.choice(IN_SESSIONS)]
            session = choose_session(random)
        ahead = random.uniform(*_AHEAD_S) if random.randrange(_ONE_IN_AHEAD) == 0 else 0.0
        expires = random.uniform(*_EXPIRES) + ahead if kind.name == "expiring" else 0.0
        needs = choose_needs(random)
        unique = None
        if session is None and kind.name in CHANGED and random.randrange(_ONE_IN_UNIQUE) == 0:
            unique = duly.Unique(random.choice(_UNIQUE_KEYS), held_while=duly.HeldWhile.LIVE)
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
            unique=unique,
        )
        return Scheduled(
            kind,
            new.to_proto(),
            due_ns=now_ns + int(ahead * SECOND) if ahead else 0,
            expires_ns=now_ns + int(expires * SECOND) if expires else 0,
            resources=told(needs),
        )

    async def _schedule(self, batch: list[Scheduled]) -> None:
        """Until every Frontend's silence is over: the same request, so that nothing is written twice."""
        purged = self._choose_purged(batch)
        request = frontend_pb2.ScheduleRequest(tasks=[scheduled.task for scheduled in batch])
        answer, tries = await self._client.call("Schedule", request)
        acked_ns = since_boot_ns()
        if purged and tries == 1:  # else a late try might write anew what was purged
            self._start(self._purge(purged))
        for scheduled, result in zip(batch, answer.results, strict=True):
            if result.error.field == "expires_at":
                continue  # no Frontend answered before it expired
            if result.HasField("error"):
                self.problems.append(f"Schedule of {scheduled.kind.name} refused: {result.error.message}")
                continue
            if result.conflict:
                continue  # another task has its key, and it was not written
            scheduled.task_id, scheduled.acked_ns = result.task_id, acked_ns
            self._scheduled.append(scheduled)
            if scheduled.kind.cancelled:
                self._start(self._cancel(scheduled))
            if scheduled.kind.name == "waits":
                self._start(self._send(scheduled))
            if self._is_changed(scheduled):
                self._start(self._change(scheduled))
            key = scheduled.task.idempotency_key
            if key and self._random.randrange(_ONE_IN_REPEATED) == 0:
                self._start(self._repeat(scheduled))

    async def _repeat(self, scheduled: Scheduled) -> None:
        answer, _ = await self._client.call("Schedule", frontend_pb2.ScheduleRequest(tasks=[scheduled.task]))
        (result,) = answer.results
        if result.task_id != scheduled.task_id or result.created:
            self.problems.append(f"the key of {scheduled.task_id} made another task: {result.task_id}")

    async def _cancel(self, scheduled: Scheduled) -> None:
        await asyncio.sleep(self._random.uniform(*_CANCEL_AFTER_S))
        scheduled.cancel_asked = True
        request = frontend_pb2.CancelTaskRequest(task_ids=[scheduled.task_id])
        answer, _ = await self._client.call("CancelTask", request)
        (result,) = answer.results
        if result.error.code == task_pb2.ERROR_CODE_ALREADY_FINAL or _is_purged(scheduled, result.error):
            # An earlier try of the same request may have been the one that cancelled it.
            scheduled.cancel_answered = "final"
        elif result.HasField("error"):
            self.problems.append(f"cancel of {scheduled.task_id}: {result.error.message}")
        else:
            scheduled.cancel_answered = "requested" if result.status in _REQUESTED else "cancelled"

    async def _send(self, scheduled: Scheduled) -> None:
        """Send the event that a task waits for, and sometimes again; or by an address of one use."""
        if self._random.randrange(_ONE_IN_ADDRESSED) == 0:
            addresses = Addresses(self._client, self._random, self.address_uses)
            await asyncio.sleep(self._random.uniform(*_CANCEL_AFTER_S))
            self.problems += await addresses.use(scheduled.task_id)
            self.told.add(scheduled.task_id)
            return
        request = sent_to([scheduled.task_id])
        for _ in range(self._random.randint(1, 2)):
            await asyncio.sleep(self._random.uniform(*_CANCEL_AFTER_S))
            answer, _tries = await self._client.call("SendEvents", request, "events")
            (result,) = answer.results
            self.told.add(scheduled.task_id)
            if result.HasField("error"):
                self.problems.append(f"event for {scheduled.task_id}: {result.error.message}")

    # ---- changes ---------------------------------------------------------------------------------------

    def _is_changed(self, scheduled: Scheduled) -> bool:
        if scheduled.kind.name not in CHANGED:
            return False
        waits = scheduled.due_ns or scheduled.task.HasField("session")
        return bool(waits) or self._random.randrange(_ONE_IN_CHANGED) == 0

    async def _change(self, scheduled: Scheduled) -> None:
        """Change payload and priority, one change after the other, until somebody runs it."""
        for edit in range(1, 1 + self._random.randint(1, _MOST_CHANGES)):
            await asyncio.sleep(self._random.uniform(*_CHANGE_AFTER_S) if edit > 1 or scheduled.due_ns else 0)
            priority = self._random.choice(list(duly.Priority))
            payload = scheduled.kind.payload(self._random, shares=self._contained) | {"edit": edit}
            moved = self._random.randrange(_ONE_IN_MOVED) == 0
            delay = timedelta(seconds=self._random.uniform(0, _MOVED_S)) if moved else None
            update = TaskUpdate(scheduled.task_id, delay=delay, priority=priority, payload=payload).to_proto()
            change = Change(scheduled.task_id, edit, int(priority), since_boot_ns())
            place = len(self._changes)
            self._changes.append(replace(change, tries=_MOST_TRIES))  # as long as there is no answer
            request = frontend_pb2.UpdateTaskRequest(updates=[update])
            answer, tries = await self._client.call("UpdateTask", request)
            (result,) = answer.results
            acked_ns = since_boot_ns()
            if delay is not None:
                latest_ns = acked_ns + int(delay.total_seconds() * SECOND)
                scheduled.due_ns = max(scheduled.due_ns, latest_ns)
            refused = (
                _is_purged(scheduled, result.error) or result.error.code == task_pb2.ERROR_CODE_NOT_PENDING
            )
            self._changes[place] = replace(change, acked_ns=0 if refused else acked_ns, tries=tries)
            if refused:
                return
            if result.HasField("error"):
                self.problems.append(f"update of {scheduled.task_id}: {result.error.message}")
                return

    def _choose_purged(self, batch: list[Scheduled]) -> list[Scheduled]:
        """Put the plain tasks of some batches into a collection of their own."""
        if self._random.randrange(_ONE_IN_PURGED) != 0:
            return []
        chosen = [
            each for each in batch if not each.task.idempotency_key and not each.task.HasField("session")
        ]
        collection = f"purged-{self._random.getrandbits(64):x}"
        for each in chosen:
            each.task.collection = collection
        return chosen

    async def _purge(self, chosen: list[Scheduled]) -> None:
        """Delete what has ended of a collection."""
        await asyncio.sleep(_PURGE_AFTER_S)
        for each in chosen:
            each.purge_asked = True
        request = frontend_pb2.PurgeTasksRequest(collection=chosen[0].task.collection)
        await self._client.call("PurgeTasks", request)

    # ---- turns -----------------------------------------------------------------------------------------

    async def _schedule_burst(self, *, is_first: bool) -> None:
        """One key floods its lambda, then the others come; some weights are set in between."""
        flood, few = choose_burst(self._random, self._slots)
        if is_first:  # turns begin with the first task that has a key
            await self._schedule([self._with_key(new) for new in few])
            return
        await self._schedule([self._with_key(new) for new in flood])
        if self._random.randrange(_ONE_IN_WEIGHED) == 0:
            self._start(self._set_weights(choose_weights(self._random)))
        await asyncio.sleep(self._random.uniform(*AFTER_S))
        await self._schedule([self._with_key(new) for new in few])

    def _with_key(self, new: duly.NewTask) -> Scheduled:
        pickers = len(
            self._topology.store_consumer_names() if self._topology.has_queue else self._topology.hsc_names()
        )
        return Scheduled(
            BY_NAME["fair"],
            new.to_proto(),
            fair_round=pickers * MOST_WEIGHT * (len(KEYS) - 1),
            fair_room=pickers * self._slots,
        )

    @property
    def _slots(self) -> int:
        return self._topology.hosts * self._topology.executors * SLOTS

    async def _set_weights(self, weights: dict[str, int | None]) -> None:
        request = registry_pb2.SetFairWeightsRequest(
            name=LAMBDA,
            weights=[
                registry_pb2.FairWeight(fair_key=key, weight=weight)
                for key, weight in weights.items()
                if weight is not None
            ],
            removed_keys=[key for key, weight in weights.items() if weight is None],
        )
        answer, _ = await self._client.call("SetFairWeights", request, "registry")
        if answer.HasField("error"):
            self.problems.append(f"weights are refused: {answer.error.message}")

    # ---- graphs and time tables ------------------------------------------------------------------------

    async def _schedule_graph(self) -> None:
        """Schedule a graph; some twice, some to be cancelled."""
        graph, kinds = random_graph(self._random)
        request = graph.to_proto()
        twice = self._random.randrange(_ONE_IN_TWICE) == 0
        cancelled = self._random.randrange(_ONE_IN_CANCELLED) == 0
        answer, _ = await self._client.call("ScheduleGraph", request, "graphs")
        if answer.HasField("error"):
            self.problems.append(f"ScheduleGraph refused: {answer.error.message}")
            return
        now_ns = since_boot_ns()
        nodes = [
            Scheduled(
                kinds[node.label],
                node.task,
                task_id=task_id,
                acked_ns=now_ns,
                graph_id=answer.graph_id,
                resources=told_of(node.task),
            )
            for node, task_id in zip(request.nodes, answer.task_ids, strict=True)
        ]
        self._scheduled += nodes
        for node in nodes:
            if self._is_changed(node):
                self._start(self._change(node))
        if twice:
            again, _ = await self._client.call("ScheduleGraph", request, "graphs")
            if again.created or list(again.task_ids) != list(answer.task_ids):
                self.problems.append(f"graph {answer.graph_id} was made twice: {again.error.message}")
        if cancelled:
            await asyncio.sleep(self._random.uniform(*_CANCEL_AFTER_S))
            for node in nodes:
                node.cancel_asked = True
            await self._client.call(
                "CancelGraph", graphs_pb2.CancelGraphRequest(graph_id=answer.graph_id), "graphs"
            )

    async def _make_time_table(self, new: time_tables_pb2.NewTimeTable) -> None:
        request = time_tables_pb2.PutTimeTablesRequest(tables=[new])
        answer, _ = await self._client.call("PutTimeTables", request, "time_tables")
        self.problems += [
            f"a time table is refused: {result.error.message}"
            for result in answer.results
            if result.HasField("error")
        ]

    async def _pause_time_tables(self) -> None:
        names = [new.table.name for new in time_tables()]
        await self._client.call(
            "PauseTimeTables", time_tables_pb2.PauseTimeTablesRequest(names=names), "time_tables"
        )


def _is_purged(scheduled: Scheduled, error: task_pb2.ItemError) -> bool:
    """Whether the task is not there because the run has purged it, which it does to what has ended."""
    return scheduled.purge_asked and error.code == task_pb2.ERROR_CODE_NOT_FOUND
