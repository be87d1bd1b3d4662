"""When tasks that share a call are a batch, which they are, and how many more may come."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from duly.lambdas.batch import Batch
from duly_executor.processes import batch_lines
from duly_executor.processes.batch_lines import BatchLines, BatchTerms, terms_of
from duly_executor.processes.dispatch import Dispatcher
from duly_executor.processes.given_batches import GivenBatches
from duly_executor.processes.suspects import IsolatedLambdas
from duly_wire.v1 import hsc_pb2, registry_pb2, task_pb2
from tests.executor.test_dispatch import Process
from tests.fixtures.host import SECOND, claimed

WAIT = 0.05
A, B = "mail.a", "mail.b"


def lines(size: int = 3) -> BatchLines:
    made = BatchLines(0.5)
    made.declare({A: BatchTerms(size, WAIT), B: BatchTerms(size, WAIT)})
    return made


def ready(made: BatchLines, now: float) -> list[str]:
    return [name for name, _ in made.ready(now)]


def test_a_batch_is_ready_when_it_is_full_or_its_first_task_has_waited_its_time() -> None:
    made = lines()
    made.add(claimed(A), 1.0)
    made.add(claimed(B), 1.01)
    made.add(claimed(f"{A}@1.0"), 1.02)

    assert ready(made, 1.02) == []
    assert made.next_at(1.02) == 1.0 + WAIT
    assert ready(made, 1.0 + WAIT) == [A]
    made.add(claimed(f"{A}@~lab"), 1.03)
    assert ready(made, 1.03) == [A]
    assert len(made.take(A, 1.03)) == 3
    assert ready(made, 2.0) == [B]


def test_lambdas_take_turns_and_the_better_priority_goes_first() -> None:
    made = lines(size=1)
    urgent = claimed(B)
    urgent.priority = task_pb2.PRIORITY_URGENT
    for task in (claimed(A), claimed(A), claimed(B), urgent):
        made.add(task, 0.0)

    taken = []
    while names := ready(made, 1.0):
        taken += [getattr(task, "lambda") for task in made.take(names[0], 1.0)]

    assert taken == [B, A, B, A]


def test_what_no_slot_was_freed_for_is_handed_back_and_what_waits_its_time_is_not() -> None:
    made = lines()
    for _ in range(3):
        made.add(claimed(A), 0.0)
    made.add(claimed(B), 0.0)
    assert ready(made, 0.0) == [A]

    assert [*made.take_stuck(0.4)] == []
    assert len([*made.take_stuck(0.6)]) == 3
    assert (made.waiting(A), made.waiting(B)) == (0, 1)


def test_a_batch_is_no_larger_than_a_message_may_be() -> None:
    made = lines(size=100)
    large = claimed(A)
    large.checkpoint = b"x" * 1024 * 1024  # whatever of a task is large
    for _ in range(20):
        made.add(large, 0.0)

    assert ready(made, 0.0) == [A]
    first = made.take(A, 0.0)

    assert len(first) == batch_lines.MOST_BYTES // large.ByteSize()
    assert made.waiting(A) == 20 - len(first)


def test_terms_that_a_callback_process_declares_are_within_bounds() -> None:
    declared = registry_pb2.Lambda(name=f"{A}@1", batch=registry_pb2.Batch(size=10**9))
    declared.batch.wait.FromTimedelta(timedelta(days=-9))
    plain = registry_pb2.Lambda(name=B)

    assert terms_of([declared, plain]) == {A: BatchTerms(1_000, 0.0)}
    own = registry_pb2.Lambda(name=A, batch=Batch(size=7, wait=timedelta(seconds=2)).declare())
    assert terms_of([own]) == {A: BatchTerms(7, 2.0)}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([A, B, f"{A}@2"]), st.integers(0, 4)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 60)),
        st.tuples(st.just("take"), st.just(""), st.just(0)),
        st.tuples(st.just("recall"), st.just(""), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=200)
@given(steps=steps, size=st.integers(1, 5))
def test_each_task_leaves_once_in_a_batch_that_is_small_enough_of_one_lambda_and_ready(
    steps: list[tuple[str, str, int]], size: int
) -> None:
    made, now = lines(size), 0.0
    came: dict[bytes, tuple[hsc_pb2.ClaimedTask, float]] = {}
    left: set[bytes] = set()

    def leave(tasks: list[hsc_pb2.ClaimedTask]) -> None:
        for task in tasks:
            assert task.claim.task_id not in left
            left.add(task.claim.task_id)

    def waiting(name: str) -> list[float]:
        return [
            at
            for task_id, (task, at) in came.items()
            if task_id not in left and getattr(task, "lambda").partition("@")[0] == name
        ]

    for what, name, number in steps:
        if what == "add":
            task = claimed(name)
            task.priority = task_pb2.Priority.ValueType(number)
            assert made.add(task, now)
            came[task.claim.task_id] = (task, now)
        elif what == "pass":
            now += number / 1_000
        elif what == "recall":
            leave([*made.take_stuck(now)])
        else:
            due = {each for each in (A, B) if len(waiting(each)) >= size}
            due |= {each for each in (A, B) if waiting(each) and min(waiting(each)) + WAIT <= now}
            found = ready(made, now)
            assert set(found) == due
            for each in found:
                before, oldest = len(waiting(each)), min(waiting(each))
                batch = made.take(each, now)
                leave(batch)
                assert len(batch) == min(size, before)
                assert len({getattr(task, "lambda").partition("@")[0] for task in batch}) == 1
                if oldest + WAIT < now:
                    assert min(came[task.claim.task_id][1] for task in batch) == oldest
                assert [task.priority or 3 for task in batch] == sorted(task.priority or 3 for task in batch)
        assert made.waiting() == len(came) - len(left)
        assert all((at := made.next_at(now)) is None or at > now or not waiting(each) for each in (A, B))
        assert made.room(A, 2, 0, now) <= 3 * size - len(waiting(A))

    leave([*made.take_all()])
    assert left == came.keys()


@given(batches=st.lists(st.integers(1, 4), max_size=5), ended=st.data())
def test_a_batch_takes_one_slot_until_its_last_task_has_ended(
    batches: list[int], ended: st.DataObject
) -> None:
    process = Process(0)
    calls = []
    for size in batches:
        ids = [claimed().claim.task_id for _ in range(size)]
        process.tasks.update(ids)
        process.batches.add(ids)
        calls.append(ids)
    order = ended.draw(st.permutations([task_id for ids in calls for task_id in ids]))

    for task_id in order:
        assert process.load == sum(any(each in process.tasks for each in ids) for ids in calls)
        assert len({*process.batches.one_of_each(process.tasks)}) == process.load
        process.tasks.discard(task_id)
        others = any(task_id in ids and process.tasks.intersection(ids) for ids in calls)
        assert process.batches.end(task_id) == others

    assert (process.load, bool(process.batches)) == (0, False)


def spread(dispatcher: Dispatcher, processes: list[Process]) -> tuple[int, int]:
    """Give what may start to these; how many batches, and how many tasks that run alone."""
    batches = alone = 0
    for process, tasks in dispatcher.assign_batches(processes, 1.0):  # type: ignore[arg-type]
        process.tasks.update(task.claim.task_id for task in tasks)
        process.batches.add([task.claim.task_id for task in tasks])
        batches += 1
    for process, tasks in dispatcher.assign(processes, 1.0):  # type: ignore[arg-type]
        process.tasks.update(task.claim.task_id for task in tasks)
        alone += len(tasks)
    return batches, alone


def test_batches_and_tasks_that_run_alone_share_the_slots_while_both_wait() -> None:
    made = lines()
    dispatcher = Dispatcher(4, lambda _: False, IsolatedLambdas(60 * SECOND), 4, None, made)
    processes = [Process(0), Process(1)]
    for _ in range(30):
        dispatcher.add(claimed(A), 0.0)
        dispatcher.add(claimed("plain"), 0.0)

    assert spread(dispatcher, processes) == (4, 4)
    one_each = [spread_after_an_end(dispatcher, processes) for _ in range(4)]
    assert sorted(one_each) == [(0, 1), (0, 1), (1, 0), (1, 0)]


def spread_after_an_end(dispatcher: Dispatcher, processes: list[Process]) -> tuple[int, int]:
    """A task that ran alone has ended, or a batch has."""
    process = processes[0]
    gone = next(iter(process.tasks))
    for task_id in [*process.batches.with_neighbours(gone)]:
        process.tasks.discard(task_id)
        process.batches.end(task_id)
    return spread(dispatcher, processes)


def test_a_lambda_that_is_kept_apart_runs_in_batches_there_and_a_suspect_alone() -> None:
    made = lines()
    dispatcher = Dispatcher(4, lambda _: False, IsolatedLambdas(60 * SECOND), 4, None, made)
    isolated = [Process(number, isolated=True) for number in (2, 3, 4, 5)]
    dispatcher.isolate(A, 0.0)
    suspect = claimed(A, crashes=1)
    for task in (suspect, *(claimed(A) for _ in range(7))):
        dispatcher.add(task, 0.0)

    given = [
        (process.number, len(tasks))
        for process, tasks in [
            *_given(dispatcher.assign(isolated, 0.0)),  # type: ignore[arg-type]
            *_given(dispatcher.assign_batches(isolated, 0.0)),  # type: ignore[arg-type]
        ]
    ]

    assert given[0] == (2, 1)
    assert sorted(size for _, size in given[1:]) == [1, 3, 3]
    assert len(dispatcher) == 0


def _given(batches: object) -> list[tuple[Process, list[hsc_pb2.ClaimedTask]]]:
    found = []
    for process, tasks in batches:  # type: ignore[attr-defined]
        process.tasks.update(task.claim.task_id for task in tasks)
        process.batches.add([task.claim.task_id for task in tasks])
        found.append((process, tasks))
    return found


def test_a_task_of_no_batch_has_no_neighbours() -> None:
    batches = GivenBatches()

    assert [*batches.with_neighbours(b"a")] == [b"a"]
    assert not batches.end(b"a")
