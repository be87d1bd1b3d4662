"""The Controller's buffer: who is served next, and when a message is done with."""

from collections import Counter
from itertools import count

import pytest

from duly_controller.reference_buffer import ReferenceBuffer, ReferenceSlice, queues_of
from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import Received
from duly_wire.enums import Priority

NOW = 100.0
MAIL = frozenset({"mail"})
_number = count()


def message(lambda_name: str = "mail", priority: Priority = Priority.NORMAL, references: int = 1) -> Received:
    number = next(_number)
    ids = tuple(f"{number:08}{place:08}".encode() for place in range(references))
    return Received(QueueKey(lambda_name, priority), ids, receipt=str(number))


def filled(*messages: Received, share: float = 0.0) -> ReferenceBuffer:
    buffer = ReferenceBuffer(share)
    buffer.add(messages, NOW)
    return buffer


def ids(slices: list[ReferenceSlice]) -> list[bytes]:
    return [task_id for slice_ in slices for task_id in slice_.task_ids]


def queues(slices: list[ReferenceSlice]) -> list[QueueKey]:
    return [slice_.message.received.queue for slice_ in slices for _ in slice_.task_ids]


def priorities(slices: list[ReferenceSlice]) -> list[Priority]:
    return [queue.priority for queue in queues(slices)]


def lambdas_of(slices: list[ReferenceSlice]) -> list[str]:
    return [queue.lambda_name for queue in queues(slices)]


def test_the_best_priority_is_served_first() -> None:
    buffer = filled(*(message(priority=priority) for priority in reversed(Priority)))

    taken = buffer.take(MAIL, 10, NOW)

    assert priorities(taken) == list(Priority)


def test_references_of_one_queue_are_served_in_the_order_in_which_they_came() -> None:
    first, second = message(references=2), message(references=2)
    buffer = filled(first, second)

    taken = buffer.take(MAIL, 10, NOW)

    assert ids(taken) == [*first.task_ids, *second.task_ids]


def test_no_more_is_taken_than_was_asked_for() -> None:
    buffer = filled(message(references=5))

    assert len(ids(buffer.take(MAIL, 3, NOW))) == 3
    assert buffer.size(QueueKey("mail", Priority.NORMAL)) == 2


def test_a_share_of_the_picks_goes_to_lower_priorities_while_higher_ones_wait() -> None:
    urgent = message(priority=Priority.URGENT, references=100)
    low = message(priority=Priority.LOW, references=100)
    buffer = filled(urgent, low, share=0.125)

    taken = Counter(priorities(buffer.take(MAIL, 80, NOW)))

    assert taken == {Priority.URGENT: 70, Priority.LOW: 10}


def test_no_priority_in_between_starves_behind_the_lowest() -> None:
    buffer = filled(*(message(priority=priority, references=100) for priority in Priority), share=0.25)

    taken = Counter(priorities(buffer.take(MAIL, 96, NOW)))

    assert taken == {Priority.URGENT: 72, Priority.HIGH: 8, Priority.NORMAL: 8, Priority.LOW: 8}


def test_with_no_share_lower_priorities_wait() -> None:
    urgent = message(priority=Priority.URGENT, references=50)
    buffer = filled(urgent, message(priority=Priority.LOW), share=0.0)

    assert set(priorities(buffer.take(MAIL, 50, NOW))) == {Priority.URGENT}


def test_a_lower_priority_alone_needs_no_share() -> None:
    buffer = filled(message(priority=Priority.LOW, references=3), share=0.0)

    assert len(ids(buffer.take(MAIL, 10, NOW))) == 3


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_lambdas_of_one_priority_take_turns_whatever_lower_ones_get(share: float) -> None:
    lambdas = frozenset({"a", "b"})
    high = [message(name, Priority.HIGH, references=90) for name in sorted(lambdas)]
    buffer = filled(*high, message("a", Priority.LOW, references=90), share=share)

    taken = buffer.take(lambdas, 60, NOW)

    served = Counter(queue.lambda_name for queue in queues(taken) if queue.priority is Priority.HIGH)
    assert max(served.values()) - min(served[name] for name in lambdas) <= 1


def test_a_lambda_with_a_deep_backlog_does_not_hold_up_another() -> None:
    buffer = filled(message("deep", references=100), message("shallow"))

    taken = buffer.take(frozenset({"deep", "shallow"}), 2, NOW)

    assert set(lambdas_of(taken)) == {"deep", "shallow"}


def test_a_lambda_waits_for_a_few_of_another_and_never_for_all() -> None:
    buffer = filled(message("deep", references=100), message("shallow", references=10))

    taken = lambdas_of(buffer.take(frozenset({"deep", "shallow"}), 100, NOW))

    assert taken.index("shallow") <= 8
    assert Counter(taken) == {"deep": 90, "shallow": 10}


def test_each_of_many_lambdas_gets_its_turn_over_several_picks() -> None:
    names = [f"lambda-{number:02}" for number in range(50)]
    buffer = filled(*(message(name, references=4) for name in names))

    taken = [lambdas_of(buffer.take(frozenset(names), 10, NOW)) for _ in range(10)]

    assert Counter(name for some in taken for name in some) == dict.fromkeys(names, 2)


def test_one_lambda_alone_is_picked_in_whole_messages() -> None:
    messages = [message(references=100), message(references=100)]
    buffer = filled(*messages)

    taken = buffer.take(MAIL, 150, NOW)

    assert [len(slice_.task_ids) for slice_ in taken] == [100, 50]
    assert ids(buffer.take(MAIL, 100, NOW)) == list(messages[1].task_ids[50:])


def test_only_lambdas_that_were_asked_for_are_taken() -> None:
    buffer = filled(message("mail"), message("image"))

    taken = buffer.take(frozenset({"image"}), 10, NOW)

    assert lambdas_of(taken) == ["image"]
    assert buffer.queues() == [QueueKey("mail", Priority.NORMAL)]


def test_only_priorities_that_were_asked_for_are_taken() -> None:
    buffer = filled(message(priority=Priority.URGENT), message(priority=Priority.LOW), share=0.5)

    taken = [buffer.take(MAIL, 10, NOW, {Priority.LOW, Priority.HIGH}) for _ in range(2)]

    assert [priorities(slices) for slices in taken] == [[Priority.LOW], []]
    assert buffer.queues() == [QueueKey("mail", Priority.URGENT)]


def test_what_was_buffered_too_long_is_dropped_and_its_message_is_left_to_come_back() -> None:
    stale, fresh = message(), message()
    buffer = ReferenceBuffer(0.0)
    buffer.add([stale], NOW - 1)
    buffer.add([fresh], NOW)

    taken = buffer.take(MAIL, 10, not_before=NOW)

    assert ids(taken) == [*fresh.task_ids]
    assert buffer.answered(taken) == [fresh]
    assert buffer.queues() == []


def test_a_message_is_closed_by_the_answer_to_the_last_of_its_references() -> None:
    received = message(references=3)
    buffer = filled(received)
    taken = [slice_ for _ in range(3) for slice_ in buffer.take(MAIL, 1, NOW)]

    assert buffer.answered(taken[:1]) == []
    assert buffer.answered(taken[1:2]) == []
    assert buffer.answered(taken[2:]) == [received]


def test_what_is_withdrawn_is_what_nothing_was_picked_of() -> None:
    begun, untouched = message(references=3), message(references=2)
    buffer = filled(begun, untouched)
    buffer.take(MAIL, 1, NOW)

    assert buffer.withdraw(QueueKey("mail", Priority.NORMAL)) == [untouched]
    assert ids(buffer.take(MAIL, 10, NOW)) == list(begun.task_ids[1:])


def test_a_message_of_which_a_reference_was_dropped_is_never_closed() -> None:
    received = message(references=2)
    buffer = filled(received)
    first = buffer.take(MAIL, 1, NOW)
    buffer.take(MAIL, 1, not_before=NOW + 1)

    assert buffer.answered(first) == []


def test_draining_answers_each_message_once_and_leaves_nothing() -> None:
    many, single = message(references=5), message("image", Priority.LOW)
    buffer = filled(many, single)

    drained = buffer.drain()

    assert sorted(drained, key=lambda each: each.receipt) == [many, single]
    assert buffer.take(frozenset({"mail", "image"}), 10, NOW) == []


def test_a_lambda_has_a_queue_for_each_priority() -> None:
    assert queues_of(["b", "a"]) == [QueueKey(name, priority) for name in "ab" for priority in Priority]
