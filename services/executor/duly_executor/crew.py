"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from duly.v1 import callback_pb2, hsc_pb2, registry_pb2
from duly_core import failpoints
from duly_core.board import Board
from duly_core.task import TaskId
from duly_executor import events
from duly_executor.assignment import Assignment, Plan
from duly_executor.conduct import Conduct
from duly_executor.containment import Containment
from duly_executor.holdings import Holdings
from duly_executor.inquest import Inquest
from duly_executor.launcher import Launcher
from duly_executor.process import CallbackProcess, Overdue, given_among
from duly_executor.reporter import Reporter
from duly_executor.roster import Roster
from duly_executor.settings import ExecutorSettings
from duly_executor.verdicts import cancelled


class Crew:
    """Feeds the callback processes, hears what they tell, and buries them."""

    def __init__(
        self,
        application: str,
        executor_id: str,
        board: Board,
        containment: Containment,
        holdings: Holdings,
        reporter: Reporter,
        ended: Callable[[int], None],
        settings: ExecutorSettings,
    ) -> None:
        """Args: `ended` is told how many attempts ended; with 0, that there may be room for other reasons."""
        self._board = board
        self._holdings = holdings
        self._reporter = reporter
        self._inquest = Inquest(board, holdings, reporter)
        self._ended = ended
        launcher = Launcher(application, executor_id, board, containment, settings.import_timeout)
        self._roster = Roster(launcher, settings, self._serve, self._roster_changed)
        self._processes = self._roster.processes
        self._dying: set[CallbackProcess] = set()
        """No longer fed, and not buried yet."""
        self._moves_within = settings.recall_after.total_seconds()
        self._assignment = Assignment(
            board.slots, self._moving, Conduct(settings.separate_for), settings.isolated_processes
        )
        self.full_lambdas = self._assignment.full_lambdas
        self.unassigned = self._assignment.ordinary
        self._ordinary = settings.processes
        self._stopping = False
        """What has not started is handed back, not given to another process."""
        self._closing = False

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the processes; the application's lambdas. `failed` is told if keeping one alive ends unexpectedly.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        return await self._roster.start(failed)

    async def _serve(self, process: CallbackProcess) -> bool:
        """Listen to a process until it has ended, and bury it; whether it told anything."""
        told = False
        while (report := await process.read()) is not None:
            told = True
            self._take(process, report)
        self._dying.add(self._processes.pop(process.number))
        self._assign()
        code = await process.ended()
        self._dying.discard(process)
        self._bury(process, code)
        return told

    def _roster_changed(self) -> None:
        self._assign()
        self._ended(0)

    def retire_aside(self, idle_since: float) -> None:
        """End the processes aside in which nothing has ended since then (the loop's time)."""
        self._roster.retire(idle_since)

    async def close(self) -> None:
        """Kill all processes and hand back what they ran."""
        self._closing = self._stopping = True
        await self._roster.close()

    def give(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        """Have these run; they are held already."""
        now = asyncio.get_running_loop().time()
        given = self._given_among([task.claim.task_id for task in tasks])
        for task in tasks:
            if not given or task.claim.task_id not in given:
                self._assignment.add(task, now)
        for task_id, process in given.items():
            # claimed anew while a process has not told the end of a former claim: never both at a time, here or
            # elsewhere. The new claim is released when the process tells of it, or is buried.
            process.cancel([task_id])
        if given:
            self.kill_those_that_run_on()
        self._assign()

    def plan_ahead(self, tasks: int) -> Plan:
        """Hold so many beyond the slots; what can be held now."""
        return self._assignment.plan_ahead(tasks, self._processes.values(), self._ordinary)

    def recall(self) -> None:
        """Hand back whatever has not started, from now on."""
        self._stopping = True
        self.hand_back_unassigned()
        self.hand_back_aside(math.inf)
        for process in self._processes.values():
            if self.unstarted_in(process):
                process.recall()

    def hand_back_unassigned(self) -> None:
        self._release(self._assignment.take_back())

    def hand_back_aside(self, came_before: float) -> None:
        """Hand back those that have waited since before then (the loop's time) for a process aside."""
        if taken := self._assignment.take_back_aside(came_before):
            self._release(taken)
            self._ended(0)

    def _moving(self, process: CallbackProcess) -> bool:
        return not process.idles_since(asyncio.get_running_loop().time() - self._moves_within)

    def _assign(self) -> None:
        now = asyncio.get_running_loop().time()
        for process, batch in self._assignment.assign(self._processes.values(), now):
            alive: dict[TaskId, hsc_pb2.ClaimedTask] = {}
            for task in batch:
                task_id = task.claim.task_id
                held = self._holdings.get(task_id)
                if held is None or held.reporting or held.token != task.claim.token:
                    continue  # its claim was lost, or it was cancelled, while it waited
                held.process = process.number
                alive[task_id] = task
            if alive:
                if failpoints.on:
                    failpoints.hit_here("executor.give.before")
                process.give(alive, self._holdings.leases.earliest_of(alive))
        self._roster.balance(self._assignment.wanted_aside(self._processes.values()))

    def _take(self, process: CallbackProcess, report: callback_pb2.CallbackReport) -> None:
        process.told += len(report.results)
        if report.recalled:  # anything else may come from threads beside an event loop that is blocked
            process.recall_sent_at = None
        if report.results:
            process.ended_at = asyncio.get_running_loop().time()
            process.waits_since = None
        ends: list[tuple[hsc_pb2.ClaimedTask, hsc_pb2.TaskResult]] = []
        for result in report.results:
            claim = result.claim
            task_id = claim.task_id
            if process.overdue:
                if process.keeps_back(result):
                    continue
                process.overdue.pop(task_id, None)
            process.tasks.discard(task_id)
            held = self._holdings.get(task_id)
            if held is None or held.token != claim.token:
                self._release([task_id])  # a newer claim waited for the end of this one
            elif self._holdings.report(task_id) is not None:
                ends.append((held.task, result))
        events.attempts_ended(ends)
        self._holdings.note_progress(report.progress)
        if report.unstarted:
            self._take_unstarted(process, report.unstarted)
        if not process.tasks:
            process.alone = False
            process.separate = ""
        self._reporter.results([result for _, result in ends])
        self._assign()
        self._ended(len(ends))

    def _take_unstarted(self, process: CallbackProcess, task_ids: Collection[TaskId]) -> None:
        """What did not start: of a process that takes no more work, another one here runs it."""
        again = [] if process.works else [each for each in task_ids if self._may_run_again(process, each)]
        process.tasks.difference_update(task_ids)
        self._release(set(task_ids).difference(again))
        self._again(again)

    def _may_run_again(self, process: CallbackProcess, task_id: TaskId) -> bool:
        """Whether another process of this Executor may run what this one has not started."""
        held = self._holdings.get(task_id)
        ours = held is not None and held.cancel_asked_at is None
        return ours and not self._stopping and self._holdings.is_with(task_id, process.number)

    def _again(self, task_ids: Iterable[TaskId]) -> None:
        now = asyncio.get_running_loop().time()
        for task_id in task_ids:
            if (held := self._holdings.get(task_id)) is not None:
                held.process = None
                self._assignment.add(held.task, now)

    def _release(self, task_ids: Iterable[TaskId]) -> None:
        held = [self._holdings.report(task_id) for task_id in task_ids]
        self._reporter.release([each.task.claim for each in held if each is not None])

    def _bury(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain: tell what became of all that it was given."""
        buried = self._inquest.bury(process, code, died=process.killed_for is None and not self._closing)
        if buried.culprit:
            self.note_misbehaviour(buried.culprit)
        again = [task_id for task_id in buried.unstarted if self._may_run_again(process, task_id)]
        self._release(set(buried.unstarted).difference(again))
        self._again(again)
        self._ended(buried.ended)

    def note_misbehaviour(self, lambda_name: str) -> None:
        """A task of this lambda crashed its process or ran too long: it is kept apart for a while."""
        if self._assignment.keep_apart(lambda_name, asyncio.get_running_loop().time()):
            events.kept_apart(lambda_name)

    def forgive(self, now: float) -> None:
        """Put the lambdas among the others again whose time apart is over."""
        if forgiven := self._assignment.forgive(now):
            events.forgiven(forgiven)
            self._roster_changed()

    def interrupt(self, task_id: TaskId, process: CallbackProcess, overdue: Overdue) -> None:
        """Interrupt a callback; what is to be reported of it if it has to be killed is told when it is dead."""
        process.overdue[task_id] = overdue
        process.interrupt(task_id)
        self._assign()

    def let_linger(self, process: CallbackProcess, now: float) -> None:
        """Give a process no more work: something in it does not end. What it has not started runs elsewhere."""
        process.lingers_since = now
        process.recall()
        overdue = [(task_id, self._holdings.lambda_of(task_id)) for task_id in process.overdue]
        events.process_lingers(process.process.pid, overdue)
        self._roster_changed()

    def stop_lost(self, task_id: TaskId) -> None:
        """The claim of this task is lost: stop its callback at once by killing its process. Nothing is reported of it."""
        if (held := self._holdings.report(task_id)) is None:
            return
        process = self._given_among([task_id]).get(task_id)
        if process is not None and process not in self._dying:
            if task_id in self.running_in(process) or task_id in process.overdue:
                self.kill_for(task_id, process, "lost_claim")
            else:
                process.cancel([task_id])  # it waits for a slot: it will not start
        self._holdings.settle([held.task.claim])
        self._ended(0)

    def kill_those_that_run_on(self) -> None:
        """Kill processes that run what is not to run any more: it began just as it was told not to, or was lost."""
        for process in list(self._processes.values()):
            for task_id in self.running_in(process) & process.tasks:
                if process.killed_for is None and not self._holdings.is_with(task_id, process.number):
                    self.kill_for(task_id, process, "no_longer_ours")

    def kill_for(self, task_id: TaskId, process: CallbackProcess, reason: str) -> None:
        """Kill a process for the sake of one task that it runs."""
        events.process_killed(process.process.pid, reason, task_id, self._holdings.lambda_of(task_id))
        process.kill(task_id, reason)

    def kill_as_crashed(self, process: CallbackProcess, reason: str, misdeed: str) -> None:
        """Kill a process that is of no more use; what it runs has crashed, for it may be the cause."""
        events.process_killed(process.process.pid, reason, b"", "")
        process.misdeed = misdeed
        process.kill()

    def ask_to_stop(self, task_id: TaskId) -> None:
        """Tell the callback that its task is to be cancelled; one that waits for a process is cancelled here."""
        if (held := self._holdings.get(task_id)) is None or held.reporting:
            return
        if held.process is None:
            self._holdings.report(task_id)
            self._reporter.results([cancelled(held.task)])
        elif (process := self._processes.get(held.process)) is not None:
            process.cancel([task_id])

    def _given_among(self, task_ids: Sequence[TaskId]) -> dict[TaskId, CallbackProcess]:
        """Those of these that a process was given whose end it has not told; it may be dying."""
        return given_among((*self._processes.values(), *self._dying), task_ids)

    def processes(self) -> list[CallbackProcess]:
        return list(self._processes.values())

    def unstarted_in(self, process: CallbackProcess) -> set[TaskId]:
        return process.tasks - self.running_in(process)

    def runs(self, task_id: TaskId) -> bool:
        """Whether a callback runs this task now."""
        return any(entry.task_id == task_id for entry in self._board.running())

    def running_in(self, process: CallbackProcess) -> set[TaskId]:
        return {entry.task_id for entry in self._board.running(process.number)}
