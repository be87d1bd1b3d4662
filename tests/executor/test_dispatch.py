"""Which process gets tasks that must not run beside others."""

from typing import Any

import pytest

from duly_executor.processes.dispatch import Dispatcher
from duly_executor.processes.given_batches import GivenBatches
from duly_executor.processes.suspects import IsolatedLambdas
from duly_wire.v1 import hsc_pb2
from tests.fixtures.host import SECOND, claimed

SLOTS = 2


class Process:
    """As much of a callback process as decisions look at."""

    recall_sent_at = killed_for = None
    slow_slots = 0
    takes_any = works = True

    def __init__(self, number: int, *, isolated: bool = False) -> None:
        self.number = number
        self.isolated = isolated
        self.alone = False
        self.separate = ""
        self.tasks: set[bytes] = set()
        self.batches = GivenBatches()

    @property
    def load(self) -> int:
        return len(self.tasks) - self.batches.beyond_slots

    @property
    def takes_others(self) -> bool:
        return not (self.alone or self.isolated or self.separate)

    @property
    def is_free(self) -> bool:
        return not self.tasks and not self.alone


class Pool:
    """Processes, and what waits for them."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(SLOTS, lambda _: False, IsolatedLambdas(60 * SECOND), 4)
        self.ordinary = [Process(number) for number in range(2)]
        self.isolated = [Process(number, isolated=True) for number in range(2, 6)]

    def add(self, *tasks: hsc_pb2.ClaimedTask, now: float = 0.0) -> None:
        for task in tasks:
            self.dispatcher.add(task, now)

    def assign(self, now: float = 0.0) -> dict[int, list[str]]:
        """The lambdas that each process is given."""
        processes: Any = [*self.ordinary, *self.isolated]
        given: dict[int, list[str]] = {}
        for process, batch in self.dispatcher.assign(processes, now):
            process.tasks.update(task.claim.task_id for task in batch)
            given.setdefault(process.number, []).extend(getattr(task, "lambda") for task in batch)
        return given

    def wanted(self) -> int:
        processes: Any = [*self.ordinary, *self.isolated]
        return self.dispatcher.wanted_isolated(processes)


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_suspects_run_side_by_side_one_in_each_process_aside(pool: Pool) -> None:
    pool.add(*(claimed("good", crashes=1) for _ in range(5)))

    given = pool.assign()

    assert given == {number: ["good"] for number in (2, 3, 4, 5)}
    assert pool.wanted() == 1


def test_what_crashed_with_a_whole_worker_is_no_suspect(pool: Pool) -> None:
    pool.add(*(claimed("good", crashes=1, crashed_with_worker=True) for _ in range(4)))

    assert pool.assign() == {0: ["good"] * 2, 1: ["good"] * 2}
    assert pool.wanted() == 0


def test_suspects_of_lambdas_that_are_kept_apart_let_the_others_go_first(pool: Pool) -> None:
    pool.dispatcher.isolate("bad", 0.0)
    pool.isolated = pool.isolated[:1]
    pool.add(claimed("bad", crashes=1), claimed("good", crashes=1))

    assert pool.assign() == {2: ["good"]}


def test_a_lambda_that_is_kept_apart_shares_no_process(pool: Pool) -> None:
    pool.add(claimed("good"))
    pool.dispatcher.isolate("bad", 0.0)
    pool.add(*(claimed("bad") for _ in range(9)))

    given = pool.assign()

    assert all(len(set(names)) == 1 for names in given.values())
    assert "good" in given[0] + given.get(1, [])
    bad = {number for number, names in given.items() if "bad" in names}
    assert len(bad & {2, 3, 4, 5}) == 2  # half of isolated ones
    assert len(bad & {0, 1}) <= 1  # one is left to others, who were here lately


def test_a_lambda_that_is_alone_here_may_have_all_ordinary_processes(pool: Pool) -> None:
    pool.dispatcher.isolate("bad", 0.0)
    pool.add(*(claimed("bad") for _ in range(9)))

    given = pool.assign(now=100.0)

    assert {0, 1} < given.keys()


def test_what_waits_goes_with_its_lambda_when_that_is_kept_apart_and_when_it_is_forgiven(pool: Pool) -> None:
    pool.ordinary, pool.isolated = [], []
    pool.add(claimed("bad"), claimed("good"))

    assert pool.dispatcher.isolate("bad", 1.0)
    assert pool.dispatcher.ordinary() == 1
    assert pool.wanted() == 1
    assert pool.dispatcher.end_isolation(100.0) == ["bad"]

    assert pool.dispatcher.ordinary() == 2
    assert pool.wanted() == 0


def test_what_waits_for_a_process_aside_does_not_keep_this_host_from_other_work(pool: Pool) -> None:
    pool.isolated = []
    processes: Any = pool.ordinary
    before = pool.dispatcher.capacity(processes)

    pool.add(*(claimed(crashes=1) for _ in range(3)))

    assert pool.dispatcher.capacity(processes).room(3) == before.room(0)


def test_a_lambda_of_which_enough_waits_is_full_and_takes_no_room_from_others(pool: Pool) -> None:
    pool.isolated = []
    pool.ordinary = pool.ordinary[:1]
    processes: Any = pool.ordinary
    before = pool.dispatcher.capacity(processes)
    pool.dispatcher.isolate("bad", 0.0)
    pool.add(*(claimed("bad") for _ in range(3)))
    assert not pool.dispatcher.full_lambdas()

    pool.add(*(claimed("bad") for _ in range(500)))

    assert pool.dispatcher.full_lambdas() == {"bad"}
    assert pool.dispatcher.capacity(processes).room(503) == before.room(0)
