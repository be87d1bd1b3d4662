"""Reports what became of the tasks of a callback process that has ended."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from duly_core.host.slot_board import RunningTask, SlotBoard
from duly_executor import events
from duly_executor.claims.ledger import HeldClaims
from duly_executor.processes.process import CallbackProcess
from duly_executor.results.failures import crash, ending_of, stopped, with_checkpoint
from duly_executor.results.reporter import ResultReporter
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2


class ExitOutcome(NamedTuple):
    """What a dead process leaves to do."""

    ended: int
    """Attempts that ended with it."""
    unstarted: list[TaskId]
    """Tasks of claims that are held still, which another process may run: these have not started for certain."""
    culprit: str
    """The lambda that ended the process; empty: unknown, or none did."""


class ExitHandler:
    """What is reported of a task whose process died, and when: only once its end is certain."""

    def __init__(self, board: SlotBoard, held_claims: HeldClaims, reporter: ResultReporter) -> None:
        self._board = board
        self._held_claims = held_claims
        self._reporter = reporter

    def report(self, process: CallbackProcess, code: int, *, died: bool) -> ExitOutcome:
        """Report what crashed, what overran and what was stopped for another's sake.

        Args:
            process: its end is certain, and it has left its last words.
            code: its exit code, negative for a signal.
            died: whether it died by itself; it was killed otherwise.
        """
        ran = {
            entry.task_id: entry
            for entry in process.batches.spread(self._board.running(process.number))
            if entry.task_id in process.tasks
        }
        # a task that ended, and whose result was not sent any more, is off the board like one that has not started
        all_told = self._board.starts(process.number) <= process.told + len(ran)
        self._board.clear(process.number)
        ours = {task_id for task_id in process.tasks if self._held_claims.is_with(task_id, process.number)}
        overdue = [task_id for task_id in process.overdue if task_id in ours]
        culprits = _culprits(process, ran, ours) if died else []
        named = [(task_id, self._held_claims.lambda_of(task_id)) for task_id in culprits]
        if died:
            events.process_crashed(process.process.pid, code, named, process.exit_record.traceback)
        reason = "crash" if died else process.killed_because or "close"
        handed_back = {
            task_id: stopped(entry, reason)
            for task_id, entry in ran.items()
            if task_id in ours and task_id not in process.overdue and task_id not in culprits
        }
        ending = process.fault or ending_of(code)
        results = [
            with_checkpoint(
                held, crash(held.task, ending, len(culprits), ran[task_id], process.exit_record.stack)
            )
            for task_id in culprits
            if (held := self._held_claims.report(task_id)) is not None
        ]
        results += [
            with_checkpoint(held, process.overdue[task_id].verdict)
            for task_id in overdue
            if (held := self._held_claims.report(task_id)) is not None
        ]
        self._reporter.results(results)
        unstarted = ours - ran.keys() - process.overdue.keys()
        doubtful = set() if all_told else unstarted
        self._release(handed_back.keys() | (process.tasks - ours) | doubtful, handed_back)
        lambdas = {name for _, name in named}
        # if there are several, one of them is the cause: it is found out when each task runs alone
        return ExitOutcome(
            len(results),
            [*(unstarted - doubtful)],
            lambdas.pop() if died and len(lambdas) == 1 else "",
        )

    def _release(
        self, task_ids: Collection[TaskId], handed_back: Mapping[TaskId, hsc_pb2.StoppedRun]
    ) -> None:
        held = [each for task_id in task_ids if (each := self._held_claims.report(task_id)) is not None]
        for each in held:
            if each.checkpoint and (stopped := handed_back.get(each.task.claim.task_id)) is not None:
                stopped.checkpoint = each.checkpoint
        self._reporter.release([each.task.claim for each in held], handed_back)


def _culprits(
    process: CallbackProcess, ran: Mapping[TaskId, RunningTask], ours: Collection[TaskId]
) -> list[TaskId]:
    """Those that may have ended the process: the one that its last words name, else all that ran."""
    slot = process.exit_record.slot
    named = {task_id for task_id, entry in ran.items() if entry.slot == slot}
    return [task_id for task_id in named or ran if task_id in ours and task_id not in process.overdue]
