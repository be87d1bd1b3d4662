"""What this Executor holds: every claim from NextWork's answer to the HSC's definite word on its result."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duly.v1 import callback_pb2, hsc_pb2
from duly_core.task import TaskId
from duly_executor.leases import Leases


@dataclass(slots=True, eq=False)
class Held:
    """One claim."""

    task: hsc_pb2.ClaimedTask
    process: int | None = None
    """The callback process that was given it; None: it waits for one, or its result is on its way."""
    reporting: bool = False
    """Its result (or release) is on its way to the HSC."""
    cancel_asked_at: float | None = None
    """When its callback was told to stop (the loop's time)."""


class Holdings:
    """Claims by task id, and the leases they live under."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self._held: dict[TaskId, Held] = {}
        self._progress: dict[TaskId, callback_pb2.CallbackProgress] = {}
        self._settled: list[TaskId] = []

    def __len__(self) -> int:
        return len(self._held)

    def get(self, task_id: TaskId) -> Held | None:
        """The claim of this task, if it is held."""
        return self._held.get(task_id)

    def unfinished(self) -> int:
        """How many wait or run; the others are being reported."""
        return sum(not held.reporting for held in self._held.values())

    def is_running(self, task_id: TaskId) -> bool:
        """Whether a callback process has it and has not told its end."""
        held = self._held.get(task_id)
        return held is not None and not held.reporting

    def add(self, tasks: Sequence[hsc_pb2.ClaimedTask], sent_boot_ns: int) -> int:
        """Claims that came in; their common deadline in CLOCK_BOOTTIME."""
        self._held.update((task.claim.task_id, Held(task)) for task in tasks)
        return self.leases.claimed((task.claim.task_id for task in tasks), sent_boot_ns)

    def report(self, task_id: TaskId) -> Held | None:
        """Its callback is over, or will not run; None if that is known already."""
        held = self._held.get(task_id)
        if held is None or held.reporting:
            return None
        held.reporting = True
        held.process = None
        self._progress.pop(task_id, None)
        return held

    def settle(self, task_ids: Iterable[TaskId]) -> None:
        """The HSC's word on these is definite: nothing is held of them any more."""
        for task_id in task_ids:
            if self._held.pop(task_id, None) is not None:
                self._settled.append(task_id)
        self.leases.ended(self._settled)

    def take_settled(self) -> list[TaskId]:
        """What was settled since last asked, for the Controller to know."""
        settled, self._settled = self._settled, []
        return settled

    def note_progress(self, told: Iterable[callback_pb2.CallbackProgress]) -> None:
        """Remember the newest for the next heartbeat."""
        self._progress.update(
            (progress.task_id, progress) for progress in told if self.is_running(progress.task_id)
        )

    def heartbeat_request(self, holder: str) -> hsc_pb2.HeartbeatRequest:
        """A heartbeat for everything that is held, with what was told of progress since the last."""
        request = hsc_pb2.HeartbeatRequest(holder=holder)
        for task_id, held in self._held.items():
            item = request.items.add(claim=held.task.claim)
            progress = self._progress.pop(task_id, None)
            if progress is not None:
                item.progress = progress.progress
                item.progress_note = _fit(progress.note)
        return request


_NOTE_BYTES = 1024


def _fit(note: str) -> str:
    return note.replace("\x00", "").encode()[:_NOTE_BYTES].decode(errors="ignore")
