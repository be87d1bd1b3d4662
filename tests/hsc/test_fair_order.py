"""In which order a look takes from queues: the best priority first, no lambda before another, no priority starved."""

import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.tasks.claims import Pick
from duly_core.tasks.task import ClaimedTask
from duly_hsc.work.caller_groups import CallerGroups
from duly_hsc.work.fair_order import FairOrder
from duly_wire.enums import Priority

MAIL, REPORT = "mail.send", "report.make"
_numbers = itertools.count()


def claimed(queue: QueueKey) -> ClaimedTask:
    number = next(_numbers).to_bytes(16, "big")
    return ClaimedTask(
        number, number, queue.lambda_name, queue.priority, 1, 0, 0, 0, b"", 1, timedelta(hours=1)
    )


def look(
    fair_order: FairOrder, backlog: "Counter[QueueKey]", most: int, lambdas: Sequence[str] = (MAIL,)
) -> list[QueueKey]:
    """Take from the backlog as a look does."""
    found: list[QueueKey] = []
    before = backlog.copy()
    for queue, size, skip in fair_order.plan(lambdas, most):
        # what an earlier pick took is still there for the store, and passed over
        taken = max(0, min(size, before[queue] - skip, most - len(found)))
        backlog[queue] -= taken
        found += [queue] * taken
    fair_order.took([claimed(queue) for queue in found], most)
    return found


def of(priority: Priority, name: str = MAIL) -> QueueKey:
    return QueueKey(name, priority)


def test_queues_are_taken_from_by_priority_and_each_may_fill_the_look() -> None:
    planned = FairOrder(lambda: 0.1).plan([MAIL], 10)

    assert planned == [Pick(of(priority), 10, 0) for priority in Priority]


def test_lambdas_share_a_look_and_take_turns_in_being_first() -> None:
    fair_order = FairOrder(lambda: 0.1)

    plans = [fair_order.plan([MAIL, REPORT], 5) for _ in range(2)]

    first, second = ([pick for pick in plan if pick.queue.priority is Priority.URGENT] for plan in plans)
    assert first == [
        Pick(of(Priority.URGENT, REPORT), 3, 0),
        Pick(of(Priority.URGENT, MAIL), 3, 0),
        Pick(of(Priority.URGENT, REPORT), 5, 3),
        Pick(of(Priority.URGENT, MAIL), 5, 3),
    ]
    assert [pick.queue for pick in second] == [pick.queue for pick in (first[1], first[0]) * 2]


def test_of_more_lambdas_than_fit_into_a_look_each_has_its_turn() -> None:
    fair_order = FairOrder(lambda: 0.1)
    names = [f"many.n{number}" for number in range(600)]

    looked_at = {pick.queue.lambda_name for _ in range(101) for pick in fair_order.plan(names, 10)}

    assert looked_at == set(names)


@pytest.mark.parametrize("most", [1, 7, 100])
def test_lower_priorities_get_their_share_while_better_ones_wait(most: int) -> None:
    fair_order, backlog = (
        FairOrder(lambda: 0.1),
        Counter({of(Priority.HIGH): 100_000, of(Priority.LOW): 100_000}),
    )

    found = Counter(queue for _ in range(2_000 // most + 50) for queue in look(fair_order, backlog, most))

    assert 0.08 <= found[of(Priority.LOW)] / found.total() <= 0.11


def test_a_changed_share_holds_from_then_on() -> None:
    share = 0.5
    fair_order = FairOrder(lambda: share)
    backlog = Counter({of(Priority.HIGH): 100_000, of(Priority.LOW): 100_000})

    def part_of_low() -> float:
        found = Counter(queue for _ in range(300) for queue in look(fair_order, backlog, 10))
        return found[of(Priority.LOW)] / found.total()

    assert 0.45 <= part_of_low() <= 0.55
    share = 0.1
    assert 0.08 <= part_of_low() <= 0.12
    share = 0.0
    assert part_of_low() < 0.01


@pytest.mark.parametrize("most", [8, 100])
def test_a_better_priority_of_one_lambda_goes_before_worse_ones_of_others(most: int) -> None:
    fair_order, names = FairOrder(lambda: 0.1), [f"many.n{number}" for number in range(10)]
    backlog = Counter({of(Priority.LOW, name): 100_000 for name in names[1:]})
    backlog[of(Priority.HIGH, names[0])] = 100_000

    found = Counter(
        queue.priority for _ in range(2_000 // most + 50) for queue in look(fair_order, backlog, most, names)
    )

    assert 0.05 <= found[Priority.LOW] / found.total() <= 0.13


@pytest.mark.parametrize("lambdas", [2, 20, 100])
def test_of_many_lambdas_lower_priorities_get_no_more_than_their_share(lambdas: int) -> None:
    fair_order, names = FairOrder(lambda: 0.1), [f"many.n{number}" for number in range(lambdas)]
    backlog = Counter({of(each, name): 10_000 for name in names for each in (Priority.HIGH, Priority.LOW)})

    found = Counter(queue for _ in range(500) for queue in look(fair_order, backlog, 8, names))

    assert 0.05 <= sum(found[of(Priority.LOW, name)] for name in names) / found.total() <= 0.13
    assert min(found[of(Priority.HIGH, name)] for name in names) >= 0.8 * 0.9 * 4_000 / lambdas


def test_all_lower_priorities_have_their_turn() -> None:
    fair_order, backlog = FairOrder(lambda: 0.2), Counter({of(priority): 100_000 for priority in Priority})

    found = Counter(queue.priority for _ in range(200) for queue in look(fair_order, backlog, 10))

    assert found[Priority.URGENT] >= 0.75 * found.total()
    assert all(found[priority] > 0.03 * found.total() for priority in Priority)


def test_without_a_share_lower_priorities_wait() -> None:
    fair_order, backlog = FairOrder(lambda: 0), Counter({of(Priority.HIGH): 1_000, of(Priority.LOW): 1_000})

    found = [queue for _ in range(50) for queue in look(fair_order, backlog, 10)]

    assert set(found) == {of(Priority.HIGH)}


def test_what_lower_priorities_got_without_their_share_is_not_given_twice() -> None:
    """While not enough of the best is due, lower priorities fill the looks anyway, and earn nothing."""
    fair_order = FairOrder(lambda: 0.5)
    for _ in range(20):
        look(fair_order, Counter({of(Priority.HIGH): 2, of(Priority.LOW): 100}), 10)

    found = look(fair_order, Counter({of(Priority.HIGH): 100, of(Priority.LOW): 100}), 10)

    assert found == [of(Priority.HIGH)] * 10


def test_a_group_that_nobody_waits_in_for_a_moment_keeps_whose_turn_it_is() -> None:
    groups = CallerGroups(lambda: 0.1)
    group = groups.join(frozenset({MAIL}))
    groups.set_aside(group)
    assert list(groups) == []

    assert groups.join(frozenset({MAIL})) is group
    assert list(groups) == [group]


def test_of_many_groups_that_nobody_waits_in_the_oldest_are_forgotten() -> None:
    groups = CallerGroups(lambda: 0.1)
    made = [groups.join(frozenset({f"many.n{number}"})) for number in range(201)]
    for group in made:
        groups.set_aside(group)

    assert groups.join(made[1].lambdas) is made[1]
    assert groups.join(made[0].lambdas) is not made[0]


def test_of_some_priorities_only_their_queues_are_taken() -> None:
    fair_order = FairOrder(lambda: 0.1, {Priority.LOW, Priority.HIGH})

    planned = fair_order.plan([MAIL], 10)

    assert [pick.queue for pick in planned] == [of(Priority.HIGH), of(Priority.LOW)]
