"""What the rules of the machine stand on: its beginning, time, policies, and how a task is picked."""

import hashlib
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.tasks.lifecycle import HELD, LIVE, Status
from duly_core.tasks.task import Token
from duly_wire.enums import Priority
from tests.models.model import WAITING, Model, ModelTask
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


class MachineBase(RuleBasedStateMachine):
    """`world` is set by the test, in a subclass."""

    world: World

    @initialize(max_attempts=st.integers(1, 3), max_crashes=st.integers(1, 3), held=st.integers(1, 3))
    def begin(self, max_attempts: int, max_crashes: int, held: int) -> None:
        self.world.reset()
        self.model = Model(EPOCH)
        self.chance = 0.5
        self._made = 0
        self.prefixes: list[bytes] = []
        for name in LAMBDAS:
            self._register(name, max_attempts, max_crashes)
            self.hold(1, held, name, has_queue=True)
            self.schedule_new(
                [(name, PRIORITIES[1], timedelta(0), life, None) for life in (None, 40 * SECOND)],
                by_delay=True,
            )
            self.enqueue([1] * len(QUEUES))

    # ---- what the rules stand on ----

    def _bytes(self) -> bytes:
        """16 bytes that no example shares with itself; their order is no order of time."""
        self._made += 1
        return hashlib.blake2b(self._made.to_bytes(4, "big"), digest_size=16).digest()

    def _register(self, name: str, max_attempts: int, max_crashes: int) -> None:
        policy = LambdaPolicy(
            name,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            backoff_initial=2 * SECOND,
            backoff_max=30 * SECOND,
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
    @rule(
        number=PICKS,
        beside=st.sampled_from([0, 1, -1]),
        expiry=st.booleans(),
        then=st.sampled_from(["", "look", "claim"]),
    )
    def tick_to_an_instant(self, number: int, beside: int, then: str, *, expiry: bool) -> None:
        """Just before, at, or just after the instant at which a task is looked at again, or expires."""
        row = self._pick(number, *(WAITING if expiry else {*HELD, Status.WAITING})).row
        instant = row.expires_at if expiry else row.next_trigger_at
        self._move_to(instant or row.next_trigger_at or self.model.now, beside)
        if then == "look":
            self.end_silence([LIMIT] * len(QUEUES))
        elif then == "claim":
            self.claim([(number, "new")], 1)

    @rule(number=PICKS, count=st.integers(1, 3), name=st.sampled_from(LAMBDAS), has_queue=st.booleans())
    def hold(self, number: int, count: int, name: str, *, has_queue: bool) -> None:
        """What begins most lives, in one step: new tasks are claimed, through their queue or without one."""
        asked = [(name, PRIORITIES[0], timedelta(0), None, None) for _ in range(count)]
        self.schedule_new(asked, by_delay=True)
        if not has_queue:
            self.claim_work([LIMIT] * len(QUEUES), 1 + number % 2, LIMIT, turned=False)
            return
        self.enqueue([LIMIT] * len(QUEUES))
        self.claim([(each, "new") for each in range(number, number + count + 1)], 1)

    def _move_to(self, instant: datetime, beside: int) -> None:
        self.model.now = instant + timedelta(microseconds=beside)
        self.world.fix(self.model.now, self.chance)

    @rule(name=st.sampled_from(LAMBDAS), max_attempts=st.integers(1, 3), max_crashes=st.integers(1, 3))
    def change_the_policy(self, name: str, max_attempts: int, max_crashes: int) -> None:
        self._register(name, max_attempts, max_crashes)
