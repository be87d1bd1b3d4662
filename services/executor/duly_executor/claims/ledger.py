"""The Executor's ledger of claims: each from the answer that granted it to the HSC's definite word on its result.

Each claim has a deadline: the latest send time of an acknowledged message that renewed it (the claim, then heartbeats)
plus the `process_deadline` under the terms of its answer. This process must be dead by the earliest of all. Times are nanoseconds of CLOCK_BOOTTIME.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from duly_core.host.claim_journal import ClaimJournal
from duly_core.process.clock import since_boot_ns
from duly_core.tasks.task import CHECKPOINT_LIMIT
from duly_wire.ids import TaskId
from duly_wire.v1 import callback_pb2, hsc_pb2


@dataclass(slots=True, eq=False)
class HeldClaim:
    """One claim."""

    task: hsc_pb2.ClaimedTask
    token: bytes
    """Of its claim."""
    cell: str = ""
    """In which its claim was made; empty: the sole store, or the default cell."""
    given_up: bool = False
    """Its cell did not answer in time, so it may not run here any more, and is handed back."""
    only_if_started: bool = False
    """Its cell did not answer lately: if it has not started, it is handed back, and no other process here gets it."""
    process: int | None = None
    """The callback process that was given it; None: it waits for one, or its result is on its way."""
    reporting: bool = False
    """Its result (or release) is on its way to the HSC."""
    cancel_asked_at: float | None = None
    """When its callback was told to stop (the loop's time)."""
    kill_asked: bool = False
    """Its callback is to be ended whatever it does."""
    overdue: tuple[int, int] | None = None
    """Since when it was interrupted and does not end (nanoseconds of CLOCK_BOOTTIME), and how many neighbours have time to end
    before its process is killed."""
    journaled_at: int = 0
    """Its place in the claim journal; 0: it has none."""
    checkpoint: bytes = b""
    """Once it is reported: what its callback kept last; empty: nothing."""


class HeldClaims:
    """Claims by task id, and how long this process may live under them."""

    def __init__(self, journal: ClaimJournal | None = None) -> None:
        """Args: `journal` is where held claims are noted for others; None: nowhere."""
        self._deadlines: dict[TaskId, int] = {}
        self._batch = 0
        """Number of the last batch."""
        self.came = asyncio.Event()
        """Set when claims come in while none are held."""
        self._journal = journal
        self._held: dict[TaskId, HeldClaim] = {}
        self._reporting = 0
        """How many of them are being reported."""
        self._progress: dict[TaskId, callback_pb2.CallbackProgress] = {}
        self._checkpoints: dict[TaskId, bytes] = {}
        """The last of each callback that kept one."""
        self._unsent: set[TaskId] = set()
        """Of which no heartbeat has brought the last one yet."""
        self.has_cells = False
        """Whether any claim named a cell yet: a sole store names none."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, task_id: TaskId) -> HeldClaim | None:
        """The claim of this task, if it is held."""
        return self._held.get(task_id)

    def task(self, task_id: TaskId) -> hsc_pb2.ClaimedTask | None:
        """Return the task of this id, if it is held."""
        held = self._held.get(task_id)
        return held.task if held is not None else None

    def unfinished(self) -> int:
        """How many wait or run; the others are being reported."""
        return len(self._held) - self._reporting

    def is_running(self, task_id: TaskId) -> bool:
        """Whether it waits or runs here: its end has not been told."""
        held = self._held.get(task_id)
        return held is not None and not held.reporting

    def is_current(self, claim: hsc_pb2.Claim) -> bool:
        """Whether this very claim is held, and not another one of its task."""
        held = self._held.get(claim.task_id)
        return held is not None and held.token == claim.token

    def add(self, tasks: Sequence[hsc_pb2.ClaimedTask], deadline: int) -> None:
        """Take in claims with their common deadline."""
        if not self._held:
            self.came.set()
        for task in tasks:
            claim = task.claim
            task_id = claim.task_id
            former = self._held.get(task_id)
            if former is not None:
                self._take_checkpoint(task_id)
                self._reporting -= former.reporting
                self._forget(former)
            held = self._held[task_id] = HeldClaim(task, claim.token, claim.cell)
            if self._journal is not None:
                held.journaled_at = self._journal.add(task_id, held.token, held.cell)
            if held.cell:
                self.has_cells = True
            self._deadlines[task_id] = deadline

    def note_batch(self, task_ids: Collection[TaskId]) -> None:
        """Note in the journal that these share a call: the slot board names one of them."""
        if self._journal is not None:
            self._batch += 1
            self._journal.note_batch([self._held[task_id].journaled_at for task_id in task_ids], self._batch)

    def note_alone(self, task_id: TaskId) -> None:
        """Take back what `note_batch` noted of this one: it has not started."""
        if self._journal is not None and self._batch and (held := self._held.get(task_id)) is not None:
            self._journal.note_batch([held.journaled_at], 0)

    def renew(self, task_ids: Iterable[TaskId], deadline: int) -> None:
        """Note that a heartbeat kept these: counted from when it was *sent*. To count from its answer would be too late."""
        for task_id in task_ids:
            if task_id in self._deadlines:
                self._deadlines[task_id] = max(deadline, self._deadlines[task_id])

    def end_deadlines(self, task_ids: Iterable[TaskId]) -> None:
        """Let these no longer limit the life of this process: none of their callbacks runs."""
        for task_id in task_ids:
            self._deadlines.pop(task_id, None)

    def start_before(self, task_ids: Iterable[TaskId]) -> int:
        """Return the instant before which the callbacks of these held tasks must have started."""
        return min(map(self._deadlines.__getitem__, task_ids))

    def earliest_deadline(self) -> int | None:
        """Return when this process must be dead unless a heartbeat comes through; None: no claim limits its life."""
        return min(self._deadlines.values(), default=None)

    def earliest_by_cell(self) -> dict[str, int]:
        """Return the earliest deadline of each cell of which claims limit the life of this process."""
        earliest: dict[str, int] = {}
        for task_id, deadline in self._deadlines.items():
            cell = self._held[task_id].cell
            if deadline < earliest.get(cell, deadline + 1):
                earliest[cell] = deadline
        return earliest

    def give_up(self, cell: str) -> list[TaskId]:
        """Return the tasks of a cell that are held and not given up yet; from now on none of them may begin here."""
        found = [task_id for task_id, held in self._held.items() if held.cell == cell and not held.given_up]
        for task_id in found:
            self._held[task_id].given_up = True
        return found

    def leave_unstarted(self, cell: str) -> list[TaskId]:
        """Return the tasks of a cell that wait or run; from now on no other process here may get them."""
        found = [task_id for task_id, held in self._held.items() if held.cell == cell and not held.reporting]
        for task_id in found:
            self._held[task_id].only_if_started = True
        return found

    def unfinished_of(self, cell: str) -> int:
        """How many of a cell wait or run; the others of it are being reported."""
        return sum(held.cell == cell and not held.reporting for held in self._held.values())

    def is_with(self, task_id: TaskId, process: int) -> bool:
        """Whether the claim that is held now was given to this callback process, which has not told its end."""
        held = self._held.get(task_id)
        return held is not None and not held.reporting and held.process == process

    def lambda_of(self, task_id: TaskId) -> str:
        """The lambda of a task that is held; empty: it is not."""
        held = self._held.get(task_id)
        return getattr(held.task, "lambda") if held is not None else ""

    def report(self, task_id: TaskId) -> HeldClaim | None:
        """Its callback is over, or will not run; None if that is known already."""
        held = self._held.get(task_id)
        if held is None or held.reporting:
            return None
        held.reporting = True
        self._reporting += 1
        held.process = None
        self._progress.pop(task_id, None)
        if self._checkpoints:
            held.checkpoint = self._take_checkpoint(task_id)
        return held

    def _take_checkpoint(self, task_id: TaskId) -> bytes:
        self._unsent.discard(task_id)
        return self._checkpoints.pop(task_id, b"")

    def settle(self, claims: Iterable[hsc_pb2.Claim]) -> None:
        """The HSC's word on these is definite: nothing is held of them any more.

        By claim, not by task: the task may have come back under a new claim before the word on the old one did.
        """
        for claim in claims:
            task_id = claim.task_id
            held = self._held.get(task_id)
            if held is None or held.token != claim.token:
                continue
            del self._held[task_id]
            self._forget(held)
            self._reporting -= held.reporting
            self._progress.pop(task_id, None)
            if self._checkpoints:
                self._take_checkpoint(task_id)
            self._deadlines.pop(task_id, None)

    def _forget(self, held: HeldClaim) -> None:
        if self._journal is not None:
            self._journal.drop(held.journaled_at)

    def note_told(self, report: callback_pb2.CallbackReport, tasks: Collection[TaskId]) -> None:
        """Note what a report tells of these tasks, and pass over what it tells of others."""
        if report.checkpoints:
            self.note_checkpoints(each for each in report.checkpoints if each.task_id in tasks)
        self.note_progress(each for each in report.progress if each.task_id in tasks)

    def note_progress(self, told: Iterable[callback_pb2.CallbackProgress]) -> None:
        """Keep the newest progress for the next heartbeat, without NaN: the HSC would refuse the whole heartbeat."""
        for each in told:
            if self.is_running(each.task_id) and 0 <= each.progress <= 1:
                each.note = _fit(each.note)
                self._progress[each.task_id] = each

    def note_checkpoints(self, told: Iterable[callback_pb2.CallbackCheckpoint]) -> None:
        """Remember the last of each for the next heartbeat, and for the result."""
        for each in told:
            if self.is_running(each.task_id) and 0 < len(each.checkpoint) <= CHECKPOINT_LIMIT:
                self._checkpoints[each.task_id] = each.checkpoint
                self._unsent.add(each.task_id)

    def checkpoints_kept(self, items: Iterable[hsc_pb2.HeartbeatItem]) -> None:
        """A heartbeat brought these, and was answered."""
        for item in items:
            if item.checkpoint and self._checkpoints.get(item.claim.task_id) == item.checkpoint:
                self._unsent.discard(item.claim.task_id)

    def heartbeat_requests(self, holder: str) -> list[hsc_pb2.HeartbeatRequest]:
        """Heartbeats for everything that is held, with what was told of progress since the last."""
        requests: list[hsc_pb2.HeartbeatRequest] = []
        room = _CHECKPOINT_BYTES
        last: dict[str, hsc_pb2.HeartbeatRequest] = {}
        """Of each cell: one that is away fails its own calls only."""
        for task_id, held in self._held.items():
            request = last.get(held.cell)
            if request is None or len(request.items) == _MOST_A_CALL:
                request = last[held.cell] = hsc_pb2.HeartbeatRequest(holder=holder)
                requests.append(request)
            item = request.items.add(claim=held.task.claim)
            if held.overdue is not None:
                since_boot, item.overdue_neighbours = held.overdue
                item.overdue_for.FromNanoseconds(max(0, since_boot_ns() - since_boot))
            progress = self._progress.pop(task_id, None)
            if progress is not None:
                item.progress = progress.progress
                item.progress_note = progress.note
            if self._unsent and task_id in self._unsent and len(self._checkpoints[task_id]) <= room:
                item.checkpoint = self._checkpoints[task_id]
                room -= len(item.checkpoint)
        return requests


_NOTE_BYTES = 1024
_CHECKPOINT_BYTES = 1024 * 1024
"""Of checkpoints in one heartbeat: what is left goes with the next."""
_MOST_A_CALL = 1_000
"""Claims in one heartbeat call; the HSC takes more."""


def _fit(note: str) -> str:
    return note.replace("\x00", "").encode()[:_NOTE_BYTES].decode(errors="ignore")
