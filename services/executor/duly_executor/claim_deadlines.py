"""Until when this process may live: pure arithmetic on send times, no I/O, no threads.

Each held claim has a deadline B: the send time of the last acknowledged message that renewed it (the claim,
then heartbeats) plus `process_deadline`. The process must be dead by the earliest B of all.
"""

from collections.abc import Iterable

from duly_core.task import TaskId

MOST_STRIKES = 3


class ClaimDeadlines:
    """The deadlines of the held claims, in nanoseconds of CLOCK_BOOTTIME."""

    def __init__(self, process_deadline_ns: int) -> None:
        self._length = process_deadline_ns
        self._deadlines: dict[TaskId, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def claimed(self, task_ids: Iterable[TaskId], sent_ns: int) -> int:
        """Claims whose ClaimTask was sent then; their common deadline."""
        deadline = sent_ns + self._length
        self._deadlines.update(dict.fromkeys(task_ids, deadline))
        return deadline

    def acknowledged(self, task_ids: Iterable[TaskId], sent_ns: int) -> None:
        """A heartbeat that was *sent* then kept these. Counting from the answer would be too late: docs/lifecycle.md, "Timing"."""
        deadline = sent_ns + self._length
        for task_id in task_ids:
            if task_id in self._deadlines:
                self._deadlines[task_id] = max(deadline, self._deadlines[task_id])

    def ended(self, task_ids: Iterable[TaskId]) -> None:
        """Their results are acknowledged, or their claims are lost: nothing depends on these any more."""
        for task_id in task_ids:
            self._deadlines.pop(task_id, None)

    def earliest_of(self, task_ids: Iterable[TaskId]) -> int:
        """The instant before which the callbacks of these held tasks must have started."""
        return min(map(self._deadlines.__getitem__, task_ids))

    def earliest(self) -> int | None:
        """The instant by which this process must be dead unless a heartbeat comes through; None: no claim is held."""
        return min(self._deadlines.values(), default=None)


class Strikes:
    """Failed heartbeat calls in a row; ATF's visible rule, and earlier than the deadline in ordinary failures."""

    def __init__(self) -> None:
        self.count = 0

    def call_failed(self) -> bool:
        """One more; True if it was the last that is allowed."""
        self.count += 1
        return self.count >= MOST_STRIKES

    def call_succeeded(self) -> None:
        """The row is broken."""
        self.count = 0
