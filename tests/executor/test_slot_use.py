"""Who may use which slots of an Executor: what is reserved for a lambda is used by no other."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_executor.processes.dispatch import Dispatcher
from duly_executor.processes.suspects import IsolatedLambdas
from duly_executor.settings import ExecutorSettings
from duly_executor.slots.reservations import Reservation
from duly_executor.slots.reserved import ReservedSlots
from duly_executor.slots.use import SlotUse
from duly_executor.work.shares import make_shares
from duly_executor.work.sources import Queues
from duly_wire.v1 import hsc_pb2, task_pb2
from tests.executor.test_dispatch import Process
from tests.fixtures.host import SECOND, claimed

SLOTS, PROCESSES = 3, 2
RESERVED = "billing=2, mail:high=1"
BILLING, MAIL = ExecutorSettings.load(reserved_slots=RESERVED).reservations
KINDS = ("other", "billing", "mail:high", "mail:normal")


def task_of(kind: str) -> hsc_pb2.ClaimedTask:
    name, _, priority = kind.partition(":")
    task = claimed(name)
    task.priority = task_pb2.Priority.Value(f"PRIORITY_{(priority or 'normal').upper()}")
    return task


def use_of(slots: int, **used: int) -> SlotUse:
    use = SlotUse(slots, (BILLING, MAIL))
    kinds: dict[str, Reservation | None] = {"others": None, "billing": BILLING, "mail": MAIL}
    for kind, count in used.items():
        for _ in range(count):
            use.take(kinds[kind])
    return use


@pytest.mark.parametrize(
    ("use", "shared", "billing", "mail"),
    [
        (use_of(8), 5, 2, 1),
        (use_of(8, others=5), 0, 2, 1),
        (use_of(8, others=4, billing=1), 1, 1, 1),
        (use_of(8, billing=4), 3, 0, 1),
        (use_of(8, others=3, billing=4), 0, 0, 1),
        (use_of(8, others=5, billing=2, mail=1), 0, 0, 0),
        (use_of(2), 0, 2, 1),
        (use_of(2, others=2), 0, 0, 0),
    ],
)
def test_a_reserved_slot_is_first_used_by_whom_it_is_for(
    use: SlotUse, shared: int, billing: int, mail: int
) -> None:
    assert (use.room(None), use.room(BILLING), use.room(MAIL)) == (shared, billing, mail)


def test_what_is_over_its_reservation_may_start_in_a_shared_slot() -> None:
    assert use_of(8, billing=2).may_start(BILLING)
    assert not use_of(8, others=5, billing=2).may_start(BILLING)
    assert use_of(8, others=5, billing=1).may_start(BILLING)
    assert not use_of(8, others=5).may_start(None)


class Executor:
    """A Dispatcher between processes that are as ready as they say, and the ends of tasks."""

    def __init__(self) -> None:
        settings = ExecutorSettings.load(reserved_slots=RESERVED, slots=SLOTS, processes=PROCESSES)
        self.held: dict[bytes, hsc_pb2.ClaimedTask] = {}
        self.reserved = ReservedSlots(settings, self.held.get)
        self.dispatcher = Dispatcher(SLOTS, lambda _: True, IsolatedLambdas(60 * SECOND), 4, self.reserved)
        self.kinds: dict[bytes, str] = {}
        self.waiting: Counter[str] = Counter()
        self.processes = [Process(number) for number in range(PROCESSES)]

    def comes(self, kind: str) -> None:
        task = task_of(kind)
        self.held[task.claim.task_id] = task
        self.kinds[task.claim.task_id] = kind
        self.waiting[kind] += 1
        self.dispatcher.add(task, 0.0)

    def floods(self, kind: str) -> None:
        for _ in range(SLOTS * PROCESSES):
            self.comes(kind)

    def assign(self) -> None:
        self.dispatcher.plan_prefetch(100, self.working(), PROCESSES)
        for process, batch in self.dispatcher.assign(self.processes, 0.0):  # type: ignore[arg-type]
            process.tasks.update(task.claim.task_id for task in batch)
            self.waiting.subtract(self.kinds[task.claim.task_id] for task in batch)

    def ends(self, number: int) -> None:
        running = [(process, task) for process in self.processes for task in sorted(process.tasks)]
        if running:
            process, task = running[number % len(running)]
            process.tasks.discard(task)
            del self.held[task]

    def is_replaced(self, number: int) -> None:
        working = self.working()
        process = working[number % len(working)]
        process.works = process.takes_any = False
        self.processes.append(Process(len(self.processes)))

    def owes_an_answer(self, number: int) -> None:
        working = self.working()
        process = working[number % len(working)]
        process.takes_any = not process.takes_any

    def working(self) -> list[Process]:
        return [process for process in self.processes if process.works]

    def running(self) -> Counter[str]:
        return Counter(self.kinds[task] for process in self.working() for task in process.tasks)

    def free(self) -> int:
        """The slots that can be given something now."""
        return sum(SLOTS - len(process.tasks) for process in self.working() if process.takes_any)


def steps() -> st.SearchStrategy[list[tuple[str, object]]]:
    number = st.integers(0, 100)
    return st.lists(
        st.one_of(
            st.tuples(st.just("comes"), st.sampled_from(KINDS)),
            st.tuples(st.just("floods"), st.sampled_from(KINDS)),
            st.tuples(st.just("ends"), number),
            st.tuples(st.just("is_replaced"), number),
            st.tuples(st.just("owes_an_answer"), number),
        ),
        max_size=60,
    )


def after_each(taken: list[tuple[str, object]]) -> Iterator[Executor]:
    executor = Executor()
    for step, argument in taken:
        getattr(executor, step)(argument)
        executor.assign()
        yield executor


@given(steps())
def test_others_never_have_more_than_the_slots_minus_what_is_reserved_and_not_used(
    taken: list[tuple[str, object]],
) -> None:
    for executor in after_each(taken):
        running = executor.running()
        unused = max(0, 2 - running["billing"]) + max(0, 1 - running["mail:high"])

        assert running["other"] + running["mail:normal"] <= SLOTS * PROCESSES - unused
        assert all(len(process.tasks) <= SLOTS for process in executor.processes)


@given(steps())
def test_no_task_waits_while_a_slot_that_it_may_use_is_free(taken: list[tuple[str, object]]) -> None:
    for executor in after_each(taken):
        running, free = executor.running(), executor.free()
        own = {"billing": 2 - running["billing"], "mail:high": 1 - running["mail:high"]}
        shared = SLOTS * PROCESSES - running.total() - sum(max(0, unused) for unused in own.values())

        for kind in KINDS:
            if executor.waiting[kind]:
                assert not free or (own.get(kind, 0) <= 0 and shared <= 0), (kind, running)


@given(steps())
def test_calls_for_work_ask_for_as_much_as_there_is_room_for(taken: list[tuple[str, object]]) -> None:
    for executor in after_each(taken):
        processes: Any = executor.processes
        use = executor.reserved.use(processes)
        rooms = [use.room(each) for each in (None, BILLING, MAIL)]

        assert sum(rooms) <= SLOTS * PROCESSES - executor.running().total()
        if all(process.takes_any for process in executor.working()):
            assert sum(rooms) == SLOTS * PROCESSES - executor.running().total()


def test_a_lambda_that_is_kept_apart_takes_no_process_with_reserved_slots() -> None:
    executor = Executor()
    executor.dispatcher.isolate("other", 0.0)
    executor.comes("other")

    given = [*executor.dispatcher.assign(executor.processes, 1000.0)]  # type: ignore[arg-type]

    assert given == []
    assert executor.dispatcher.wanted_isolated(executor.processes) == 1  # type: ignore[arg-type]


def test_a_task_that_must_be_alone_takes_no_slot() -> None:
    executor = Executor()
    suspect = claimed("other", crashes=1)
    executor.dispatcher.add(suspect, 0.0)

    use = executor.reserved.use(executor.processes)  # type: ignore[arg-type]

    assert use.room(None) == SLOTS * PROCESSES - 3


def test_a_line_of_which_nothing_ends_is_handed_back_while_tasks_of_another_end() -> None:
    executor = Executor()
    for _ in range(4):
        executor.comes("other")
    executor.comes("billing")
    executor.assign()
    billing = next(task for task, kind in executor.kinds.items() if kind == "billing")

    assert executor.dispatcher.take_back(0.0) == []
    executor.reserved.note_ended([(executor.held[billing], None)], 0.6)
    stuck = executor.dispatcher.take_back(0.7)

    assert [executor.kinds[task] for task in stuck] == ["other"]


def test_each_line_is_prefetched_as_fast_as_its_own_tasks_end() -> None:
    executor = Executor()
    processes: Any = executor.processes
    for number in range(200):
        executor.reserved.note_ended([(task_of("billing"), None)], number / 100)

    assert executor.reserved.room(BILLING, 0, processes, 2.0) >= 2 + 9
    assert executor.reserved.room(None, 0, processes, 2.0) == SLOTS * PROCESSES - 3
    assert executor.reserved.room(MAIL, 0, processes, 2.0) == 1
    assert executor.reserved.room(MAIL, 1, processes, 2.0) == 0


def test_tasks_that_are_pinned_to_a_version_use_the_slots_of_their_lambda() -> None:
    executor = Executor()
    executor.floods("other")
    executor.comes("billing@2")
    executor.assign()

    assert executor.running()["billing@2"] == 1
    assert executor.reserved.use(executor.processes).used(BILLING) == 1  # type: ignore[arg-type]


def test_an_executor_asks_for_pinned_tasks_with_those_of_their_lambda() -> None:
    asked: list[Queues] = []

    def make(only: Queues) -> Any:
        asked.append(only)

    rest, billing, _ = make_shares(
        frozenset({"billing", "billing@2", "billings", "mail"}), (BILLING, MAIL), make
    )

    assert [only.lambdas for only in asked] == [(), ("billing", "billing@2"), ("mail",)]
    assert "billing@2" in rest.lambdas
    assert billing.lambdas == {"billing", "billing@2"}


def test_without_reservations_nothing_is_counted() -> None:
    reserved = ReservedSlots(ExecutorSettings.load(), {}.get)

    assert not reserved


def asked_until_there_is_no_room(executor: Executor, whose: Reservation | None, kind: str) -> int:
    """Return how many tasks wait when each call is answered at once, with tasks of one kind."""
    processes: Any = executor.processes
    most = 10 * ExecutorSettings.load().prefetch_limit
    while executor.reserved.waiting() < most and (room := executor.reserved.room(whose, 0, processes, 2.0)):
        for _ in range(room):
            executor.comes(kind)
        executor.assign()
    return executor.reserved.waiting()


def test_calls_for_shared_slots_that_bring_only_tasks_of_a_reservation_end() -> None:
    executor = Executor()
    for number in range(200):  # so that others are prefetched
        executor.reserved.note_ended([(task_of("other"), None)], number / 100)

    waiting = asked_until_there_is_no_room(executor, None, "billing")

    assert waiting <= SLOTS * PROCESSES + 10


def test_calls_for_a_reservation_that_bring_tasks_of_others_end() -> None:
    executor = Executor()  # an HSC of an earlier release ignores `priorities`

    waiting = asked_until_there_is_no_room(executor, MAIL, "mail:normal")

    assert waiting <= SLOTS * PROCESSES + ExecutorSettings.load().prefetch_limit
