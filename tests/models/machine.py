"""The machine: random calls of the store's functions, each answer and all rows held against the model."""

import hashlib
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly_core.lifecycle import FINAL, HELD, LIVE, READY, Status
from duly_core.routing import Priority, QueueKey
from duly_core.store import claims, dead_letters, lambdas, results, schedule, tasks, trigger
from duly_core.store.dead_letters import Answer, Verdict
from duly_core.store.lambdas import LambdaPolicy
from duly_core.task import (
    Beat,
    FailureKind,
    Kept,
    NewTask,
    Outcome,
    Proposal,
    Result,
    Scheduled,
    Scheduling,
    Token,
)
from tests.models import told
from tests.models.model import WAITING, Between, Model, ModelTask
from tests.models.world import EPOCH, World

LAMBDAS = ("model.one", "model.two")
PRIORITIES = (Priority.URGENT, Priority.NORMAL)
QUEUES = [QueueKey(name, priority) for name in LAMBDAS for priority in PRIORITIES]
SECOND = timedelta(seconds=1)
ENQUEUE_TIMEOUT = 60 * SECOND
CLAIM_TIMEOUT = 15 * SECOND
HEARTBEAT_TIMEOUT = 20 * SECOND
LIMIT = 100

PICKS = st.integers(0, 9)
"""Which of the tasks: see `StoreMachine._pick`."""
SPANS = st.sampled_from([timedelta(0), timedelta(0), SECOND, 16 * SECOND, 90 * SECOND])
LIVES = st.sampled_from([None, None, None, 40 * SECOND, 5 * SECOND, -SECOND])
OWNERSHIPS = st.sampled_from(["current", "current", "current", "last", "stale", "foreign"])
"""Whose token a write carries: the holder's, the one that ended, an older one's, nobody's."""
ROOMS = st.lists(st.sampled_from([3, 3, 3, 1, 0]), min_size=len(QUEUES), max_size=len(QUEUES))


class StoreMachine(RuleBasedStateMachine):
    """`world` is set by the test, in a subclass."""

    world: World

    @initialize(max_attempts=st.integers(1, 3), max_crashes=st.integers(1, 3), held=st.integers(1, 3))
    def begin(self, max_attempts: int, max_crashes: int, held: int) -> None:
        self.world.reset()
        self.model = Model(EPOCH)
        self.chance = 0.5
        self._made = 0
        for name in LAMBDAS:
            self._register(name, max_attempts, max_crashes)
            self.hold(1, held, name)
            self.schedule_new([(name, PRIORITIES[1], timedelta(0), life, None) for life in (None, 40 * SECOND)], by_delay=True)
            self.enqueue([1] * len(QUEUES))

    # ---- what the rules stand on ----

    def _bytes(self) -> bytes:
        """16 bytes that no example shares with itself; their order is no order of time."""
        self._made += 1
        return hashlib.blake2b(self._made.to_bytes(4, "big"), digest_size=16).digest()

    def _register(self, name: str, max_attempts: int, max_crashes: int) -> None:
        policy = LambdaPolicy(
            name, max_attempts=max_attempts, max_crashes=max_crashes, backoff_initial=2 * SECOND, backoff_max=30 * SECOND,
            crash_window=40 * SECOND,
        )
        self.world.run(lambdas.register(self.world.store, [policy]))
        self.model.lambdas[name] = policy

    def _pick(self, number: int, *preferred: Status) -> ModelTask:
        """One of the tasks; mostly one that stands where it is preferred, or the machine would get nowhere."""
        every = list(self.model.tasks.values())
        good = self.model.in_status(preferred) if number % 5 else []
        return (good or every)[number % len(good or every)]

    def _token(self, task: ModelTask, whose: str) -> Token:
        row = task.row
        if whose == "current" and row.token:
            return row.token
        if whose == "last" and row.last_token:
            return row.last_token
        if whose == "stale" and task.tokens:
            return task.tokens[0]
        return self._bytes()

    def _holds(self, task: ModelTask, token: Token) -> bool:
        return task.row.status in HELD and task.row.token == token

    @invariant()
    def rows_are_the_models(self) -> None:
        if hasattr(self, "model"):
            self.model.compare(self.world.rows(), self.world.attempts(), self.world.dead_letters())

    # ---- time and policy ----

    @rule(chance=st.sampled_from([0.0, 0.25, 0.999999]))
    def draw_lots(self, chance: float) -> None:
        """What the store will choose when it chooses at random."""
        self.chance = chance
        self.world.fix(self.model.now, chance)

    @rule(seconds=st.sampled_from([1, 5, 15, 20, 21, 61, 3600, -3, -30]))
    def tick(self, seconds: int) -> None:
        self._move_to(self.model.now + timedelta(seconds=seconds), 1)

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule(number=PICKS, beside=st.sampled_from([0, 1, -1]), expiry=st.booleans(), then=st.sampled_from(["", "look", "claim"]))
    def tick_to_an_instant(self, number: int, beside: int, then: str, *, expiry: bool) -> None:
        """Just before, at, or just after the instant at which a task is looked at again, or expires."""
        row = self._pick(number, *(WAITING if expiry else HELD)).row
        instant = row.expires_at if expiry else row.next_trigger_at
        self._move_to(instant or row.next_trigger_at or self.model.now, beside)
        if then == "look":
            self.end_silence([LIMIT] * len(QUEUES))
        elif then == "claim":
            self.claim([(number, "new")], 1)

    @rule(number=PICKS, count=st.integers(1, 3), name=st.sampled_from(LAMBDAS))
    def hold(self, number: int, count: int, name: str) -> None:
        """What begins most lives, in one step: new tasks are enqueued and claimed."""
        asked = [(name, PRIORITIES[0], timedelta(0), None, None) for _ in range(count)]
        self.schedule_new(asked, by_delay=True)
        self.enqueue([LIMIT] * len(QUEUES))
        self.claim([(each, "new") for each in range(number, number + count + 1)], 1)

    def _move_to(self, instant: datetime, beside: int) -> None:
        self.model.now = instant + timedelta(microseconds=beside)
        self.world.fix(self.model.now, self.chance)

    @rule(name=st.sampled_from(LAMBDAS), max_attempts=st.integers(1, 3), max_crashes=st.integers(1, 3))
    def change_the_policy(self, name: str, max_attempts: int, max_crashes: int) -> None:
        self._register(name, max_attempts, max_crashes)

    # ---- Frontend ----

    @rule(
        asked=st.lists(
            st.tuples(
                st.sampled_from((*LAMBDAS, *LAMBDAS, "model.unknown")),
                st.sampled_from(PRIORITIES),
                SPANS,
                LIVES,
                st.sampled_from([None, None, None, "a", "b"]),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda each: (each[0], each[4] or object()),
        ),
        by_delay=st.booleans(),
    )
    def schedule_new(self, asked: list[tuple[str, Priority, timedelta, timedelta | None, str | None]], *, by_delay: bool) -> None:
        now = self.model.now
        batch = [
            NewTask(
                self._bytes(),
                name,
                b"%d" % self._made,
                priority=priority,
                delay=ahead if by_delay else None,
                scheduled_at=None if by_delay else now + ahead - 5 * SECOND,
                expires_at=None if life is None else now + life,
                idempotency_key=key,
            )
            for name, priority, ahead, life, key in asked
        ]
        answers = self.world.run(schedule.schedule(self.world.store, batch))
        assert answers == [self._scheduled(task) for task in batch]

    @precondition(lambda self: self.model.tasks)
    @rule(number=PICKS, otherwise=st.booleans(), twice=st.booleans())
    def schedule_again(self, number: int, *, otherwise: bool, twice: bool) -> None:
        asked = self._pick(number).asked
        again = NewTask(asked.task_id, asked.lambda_name, b"other" if otherwise else asked.payload, priority=asked.priority)
        batch = [again, again] if twice else [again]
        answers = self.world.run(schedule.schedule(self.world.store, batch))
        assert answers == [self._scheduled(task) for task in batch]

    def _scheduled(self, asked: NewTask) -> Scheduled:
        """Say what the store must answer, and write the task."""
        if asked.lambda_name not in self.model.lambdas:
            return Scheduled(Scheduling.UNKNOWN_LAMBDA, asked.task_id)
        holder = self.model.keys.get((asked.lambda_name, asked.idempotency_key or ""), asked.task_id)
        there = self.model.tasks.get(holder)
        if there is None:
            made = self.model.schedule(asked)
            return Scheduled(Scheduling.CREATED, asked.task_id, due_in=made.row.due_at - self.model.now)
        same = (there.asked.payload, there.asked.priority) == (asked.payload, asked.priority)
        return Scheduled(Scheduling.REPEATED if same else Scheduling.CONFLICT, holder)

    @precondition(lambda self: self.model.tasks)
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def cancel(self, numbers: list[int]) -> None:
        asked = {task.asked.task_id: task for task in map(self._pick, numbers)}
        answers = self.world.run(tasks.cancel_tasks(self.world.store, [*asked, self._bytes()]))
        expected = {}
        for task_id, task in asked.items():
            if task.row.status in WAITING:
                self.model.end(task, Status.CANCELLED)
                expected[task_id] = Status.CANCELLED
            elif task.row.status in HELD:
                task.row.cancel_requested = True
                expected[task_id] = task.row.status
        assert answers == expected

    @precondition(lambda self: self.model.in_status(FINAL))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def redrive(self, numbers: list[int]) -> None:
        picked = [self._pick(number, Status.FATAL_FAILURE) for number in numbers]
        asked = {task.asked.task_id: task for task in picked}
        answers = self.world.run(dead_letters.redrive(self.world.store, [*asked, self._bytes()]))
        expected = {}
        for task_id, task in asked.items():
            verdict = Verdict.NOT_DEAD
            if task.row.status is Status.FATAL_FAILURE:
                self.model.redrive(task)
                verdict = Verdict.REDRIVEN
            expected[task_id] = Answer(verdict, task.row.status)
        assert answers == expected

    # ---- Store Consumer ----

    @precondition(lambda self: self.model.in_status(READY))
    @rule(sizes=ROOMS)
    def enqueue(self, sizes: list[int]) -> None:
        room = dict(zip(QUEUES, sizes, strict=True))
        taken = self.world.run(trigger.enqueue(self.world.store, room, ENQUEUE_TIMEOUT))
        assert len({each.task_id for each in taken}) == len(taken), "one task is sent twice"
        for queue, size in room.items():
            chosen = [self.model.tasks[each.task_id] for each in taken if each.queue == queue]
            told.chose(chosen, self.model.due(queue.lambda_name, queue.priority), size)
            for task in chosen:
                task.row.status, task.row.next_trigger_at = Status.ENQUEUED, self.model.now + ENQUEUE_TIMEOUT

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3), delay=SPANS)
    def put_back(self, numbers: list[int], delay: timedelta) -> None:
        picked = [self._pick(number, Status.ENQUEUED) for number in numbers]
        asked = {task.asked.task_id: task for task in picked}
        self.world.run(trigger.put_back(self.world.store, list(asked), delay))
        for task in asked.values():
            if task.row.status is Status.ENQUEUED:
                task.row.status = Status.NEW
                task.row.next_trigger_at = Between(self.model.now, self.model.now + delay)

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule(sizes=ROOMS)
    def end_silence(self, sizes: list[int]) -> None:
        room = dict(zip(QUEUES, sizes, strict=True))
        silence = self.world.run(trigger.end_silence(self.world.store, room, ENQUEUE_TIMEOUT, LIMIT))
        told.silence(self.model, silence, room, self.model.now + ENQUEUE_TIMEOUT)

    @precondition(lambda self: self.model.in_status({Status.ENQUEUED}))
    @rule(within=st.sampled_from([SECOND, 30 * SECOND]))
    def enqueue_sooner(self, within: timedelta) -> None:
        far = [task for task in self.model.in_status({Status.ENQUEUED}) if task.row.next_trigger_at > self.model.now + within]
        assert self.world.run(trigger.enqueue_sooner(self.world.store, within, LIMIT)) == len(far)
        for task in far:
            task.row.next_trigger_at = Between(self.model.now, self.model.now + within)

    # ---- HSC ----

    @precondition(lambda self: self.model.in_status({Status.ENQUEUED, *HELD}))
    @rule(
        asked=st.lists(st.tuples(PICKS, st.sampled_from(["new", "new", "new", "current", "last"])), min_size=1, max_size=4),
        wrong_lambda=st.integers(0, 9),
    )
    def claim(self, asked: list[tuple[int, str]], wrong_lambda: int) -> None:
        proposals = []
        for number, whose in asked:
            task = self._pick(number, Status.ENQUEUED)
            other = LAMBDAS[task.asked.lambda_name == LAMBDAS[0]]
            name = other if wrong_lambda == 0 else task.asked.lambda_name
            proposals.append(Proposal(task.asked.task_id, self._token(task, whose), name))
        proposals = list({proposal.token: proposal for proposal in proposals}.values())
        before = {task_id: task.row.token for task_id, task in self.model.tasks.items()}
        call = claims.claim(self.world.store, [(each, "host") for each in proposals], CLAIM_TIMEOUT)
        answers = self.world.run(call)
        told.claimed(self.model, proposals, answers, before, CLAIM_TIMEOUT)

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(
        asked=st.lists(
            st.tuples(PICKS, OWNERSHIPS, st.sampled_from([None, 0.0, 0.25, 1.0]), st.sampled_from([None, "far"])),
            min_size=1,
            max_size=4,
        )
    )
    def heartbeat(self, asked: list[tuple[int, str, float | None, str | None]]) -> None:
        beats = {}
        for number, whose, progress, note in asked:
            task = self._pick(number, *HELD)
            token = self._token(task, whose)
            beats.setdefault(token, Beat(task.asked.task_id, token, progress, note))
        batch = list(beats.values())
        expected = []
        for beat in batch:
            task = self.model.tasks[beat.task_id]
            if not self._holds(task, beat.token):
                expected.append(Kept.LOST)
                continue
            row = task.row
            row.status, row.next_trigger_at = Status.PROCESSING, self.model.now + HEARTBEAT_TIMEOUT
            row.progress = row.progress if beat.progress is None else beat.progress
            row.note = row.note if beat.note is None else beat.note
            expected.append(Kept.CANCEL_REQUESTED if row.cancel_requested else Kept.KEPT)
        assert self.world.run(claims.heartbeat(self.world.store, batch, HEARTBEAT_TIMEOUT)) == expected

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(
        asked=st.lists(
            st.tuples(PICKS, OWNERSHIPS, st.sampled_from(list(Outcome)), SPANS, st.booleans()), min_size=1, max_size=4
        ),
        repeated=st.booleans(),
        hold_back=st.sampled_from([{}, {}, {LAMBDAS[0]: 25 * SECOND}]),
    )
    def set_results(
        self,
        asked: list[tuple[int, str, Outcome, timedelta, bool]],
        hold_back: dict[str, timedelta],
        *,
        repeated: bool,
    ) -> None:
        batch = {}
        for number, whose, outcome, span, says_when in asked:
            task = self._pick(number, *HELD)
            token = self._token(task, whose)
            batch.setdefault(token, self._result(task, token, outcome, span if says_when else None))
        given = [*batch.values()] + ([*batch.values()][:1] if repeated else [])
        written = self.world.run(results.set_results(self.world.store, given, hold_back))
        told.results(self.model, given, hold_back, written, self._holds)

    def _result(self, task: ModelTask, token: Token, outcome: Outcome, span: timedelta | None) -> Result:
        failed = outcome in (Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.CRASHED)
        kind = FailureKind.CRASH if outcome is Outcome.CRASHED else FailureKind.CALLBACK
        return Result(
            task.asked.task_id,
            token,
            outcome,
            result=b"done" if outcome is Outcome.SUCCESS else None,
            failure_kind=kind if failed else None,
            failure_message="why" if failed else "",
            retry_after=(span or SECOND) if outcome is Outcome.SNOOZED else span,
            started_at=self.model.now - SECOND,
        )

    @precondition(lambda self: self.model.in_status(HELD))
    @rule(asked=st.lists(st.tuples(PICKS, OWNERSHIPS), min_size=1, max_size=3))
    def release(self, asked: list[tuple[int, str]]) -> None:
        pairs = {}
        for number, whose in asked:
            task = self._pick(number, *HELD)
            pairs.setdefault(self._token(task, whose), task)
        written = {token for token, task in pairs.items() if self._holds(task, token)}
        for token in written:
            self.model.let_go(pairs[token], Status.NEW, self.model.now)
        verdicts, ahead = self.world.run(
            claims.release(self.world.store, [(task.asked.task_id, token) for token, task in pairs.items()])
        )
        assert verdicts == [told.verdict(task, token, written) for token, task in pairs.items()]
        assert ahead == (timedelta(0) if written else None)


