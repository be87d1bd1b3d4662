"""What waits for a slot in a callback process: best priorities first, and of one priority in the order it came."""

import queue
from collections import deque

from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, task_pb2

Waiting = tuple[hsc_pb2.ClaimedTask, TaskId, int]
"""A task, its id, and the instant of CLOCK_BOOTTIME before which it must start, in ns."""


class PriorityQueue:
    """A queue between threads: a turn for each task, and whoever takes a turn takes the best task there is then.

    No lock of its own: a deque's ends are safe, and a task is in its deque before its turn can be taken.
    """

    def __init__(self) -> None:
        self._turns: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._by_priority: dict[int, deque[Waiting]] = {
            priority: deque() for priority in sorted(task_pb2.Priority.values()) if priority
        }

    def put(self, waiting: Waiting) -> None:
        """Get in line; a priority that nobody knows is an ordinary one."""
        line = self._by_priority.get(waiting[0].priority)
        (self._by_priority[task_pb2.PRIORITY_NORMAL] if line is None else line).append(waiting)
        self._turns.put(None)

    def get(self, *, block: bool = True) -> Waiting:
        """Take the best.

        Raises:
            queue.Empty: nothing waits, and it was not to block.
        """
        self._turns.get(block)
        while True:  # another thread may take the one that was seen, but never the last
            for line in self._by_priority.values():
                if line:
                    try:
                        return line.popleft()
                    except IndexError:
                        continue
