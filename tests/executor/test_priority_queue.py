"""What waits for a slot: who goes first."""

import queue
from concurrent.futures import ThreadPoolExecutor

import pytest

from duly_executor.callback.priority_queue import PriorityQueue
from duly_wire.v1 import hsc_pb2, task_pb2

LOW, NORMAL, URGENT = task_pb2.PRIORITY_LOW, task_pb2.PRIORITY_NORMAL, task_pb2.PRIORITY_URGENT


def waiting(name, priority):
    return hsc_pb2.ClaimedTask(priority=priority), name, 0


def test_the_best_priority_goes_first_and_the_oldest_of_it():
    line = PriorityQueue()
    for name, priority in [("a", LOW), ("b", URGENT), ("c", NORMAL), ("d", URGENT), ("e", 0), ("f", 99)]:
        line.put(waiting(name, priority))

    assert [line.get()[1] for _ in range(6)] == ["b", "d", "c", "e", "f", "a"]


def test_an_empty_line_says_so_to_who_does_not_wait():
    with pytest.raises(queue.Empty):
        PriorityQueue().get(block=False)


def test_threads_take_each_task_once():
    line = PriorityQueue()
    with ThreadPoolExecutor(8) as threads:
        taken = [threads.submit(lambda: [line.get()[1] for _ in range(500)]) for _ in range(8)]
        for number in range(4_000):
            line.put(waiting(number, 1 + number % 4))
        numbers = sorted(number for each in taken for number in each.result(timeout=30))

    assert numbers == list(range(4_000))
