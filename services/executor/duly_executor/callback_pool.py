"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from duly.v1 import callback_pb2, hsc_pb2, registry_pb2
from duly_core import failpoints
from duly_core.slot_board import SlotBoard
from duly_core.task import TaskId
from duly_executor import events
from duly_executor.callback_process import CallbackProcess, Overdue, holders_of
from duly_executor.containment import Containment
from duly_executor.dispatch import Capacity, Dispatcher
from duly_executor.exit_handler import ExitHandler
from duly_executor.failure_results import cancelled
from duly_executor.held_claims import HeldClaims
from duly_executor.isolation import IsolatedLambdas
from duly_executor.process_starter import ProcessStarter
from duly_executor.process_supervisor import ProcessSupervisor
from duly_executor.result_reporter import ResultReporter
from duly_executor.settings import ExecutorSettings


class CallbackPool:
    """Feeds the callback processes, hears what they tell, and buries them."""

    def __init__(
        self,
        application: str,
        executor_id: str,
        board: SlotBoard,
        containment: Containment,
        held_claims: HeldClaims,
        reporter: ResultReporter,
        ended: Callable[[int], None],
        settings: ExecutorSettings,
    ) -> None:
        """Args: `ended` is told how many attempts ended; with 0, that there may be room for other reasons."""
        self._board = board
        self._held_claims = held_claims
        self._reporter = reporter
        self._exits = ExitHandler(board, held_claims, reporter)
        self._ended = ended
        starter = ProcessStarter(application, executor_id, board, containment, settings.import_timeout)
        self._supervisor = ProcessSupervisor(starter, settings, self._serve, self._changed)
        self._processes = self._supervisor.processes
        self._dying: set[CallbackProcess] = set()
        """No longer fed, and not buried yet."""
        self._moves_within = settings.recall_after.total_seconds()
        self._dispatcher = Dispatcher(
            board.slots, self._moving, IsolatedLambdas(settings.isolate_for), settings.isolated_processes
        )
        self.full_lambdas = self._dispatcher.full_lambdas
        self.unassigned = self._dispatcher.ordinary
        self._ordinary = settings.processes
        self._stopping = False
        """What has not started is handed back, not given to another process."""
        self._closing = False

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the processes; the application's lambdas. `failed` is told if keeping one alive ends unexpectedly.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        return await self._supervisor.start(failed)

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
        self._handle_exit(process, code)
        return told

    def _changed(self) -> None:
        self._assign()
        self._ended(0)

    def retire_isolated(self, idle_since: float) -> None:
        """End the isolated processes in which nothing has ended since then (the loop's time)."""
        self._supervisor.retire(idle_since)

    async def close(self) -> None:
        """Kill all processes and hand back what they ran."""
        self._closing = self._stopping = True
        await self._supervisor.close()

    def give(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        """Have these run; they are held already."""
        now = asyncio.get_running_loop().time()
        given = self._given_among([task.claim.task_id for task in tasks])
        for task in tasks:
            if not given or task.claim.task_id not in given:
                self._dispatcher.add(task, now)
        for task_id, process in given.items():
            # claimed anew while a process has not told the end of a former claim: never both at a time, here or
            # elsewhere. The new claim is released when the process tells of it, or is buried.
            process.cancel([task_id])
        if given:
            self.kill_those_that_run_on()
        self._assign()

    def plan_prefetch(self, tasks: int) -> Capacity:
        """Hold so many beyond the slots; what can be held now."""
        return self._dispatcher.plan_prefetch(tasks, self._processes.values(), self._ordinary)

    def recall(self) -> None:
        """Hand back whatever has not started, from now on."""
        self._stopping = True
        self.hand_back_unassigned()
        self.hand_back_isolated(math.inf)
        for process in self._processes.values():
            if self.unstarted_in(process):
                process.recall()

    def hand_back_unassigned(self) -> None:
        self._release(self._dispatcher.take_back())

    def hand_back_isolated(self, came_before: float) -> None:
        """Hand back those that have waited since before then (the loop's time) for an isolated process."""
        if taken := self._dispatcher.take_back_isolated(came_before):
            self._release(taken)
            self._ended(0)

    def _moving(self, process: CallbackProcess) -> bool:
        return not process.idles_since(asyncio.get_running_loop().time() - self._moves_within)

    def _assign(self) -> None:
        now = asyncio.get_running_loop().time()
        for process, batch in self._dispatcher.assign(self._processes.values(), now):
            alive: dict[TaskId, hsc_pb2.ClaimedTask] = {}
            for task in batch:
                task_id = task.claim.task_id
                held = self._held_claims.get(task_id)
                if held is None or held.reporting or held.token != task.claim.token:
                    continue  # its claim was lost, or it was cancelled, while it waited
                held.process = process.number
                alive[task_id] = task
            if alive:
                if failpoints.on:
                    failpoints.hit_here("executor.give.before")
                process.give(alive, self._held_claims.deadlines.earliest_of(alive))
        self._supervisor.balance(self._dispatcher.wanted_isolated(self._processes.values()))

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
            held = self._held_claims.get(task_id)
            if held is None or held.token != claim.token:
                self._release([task_id])  # a newer claim waited for the end of this one
            elif self._held_claims.report(task_id) is not None:
                ends.append((held.task, result))
        events.attempts_ended(ends)
        self._held_claims.note_progress(report.progress)
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
        held = self._held_claims.get(task_id)
        ours = held is not None and held.cancel_asked_at is None
        return ours and not self._stopping and self._held_claims.is_with(task_id, process.number)

    def _again(self, task_ids: Iterable[TaskId]) -> None:
        now = asyncio.get_running_loop().time()
        for task_id in task_ids:
            if (held := self._held_claims.get(task_id)) is not None:
                held.process = None
                self._dispatcher.add(held.task, now)

    def _release(self, task_ids: Iterable[TaskId]) -> None:
        held = [self._held_claims.report(task_id) for task_id in task_ids]
        self._reporter.release([each.task.claim for each in held if each is not None])

    def _handle_exit(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain: tell what became of all that it was given."""
        outcome = self._exits.report(process, code, died=process.killed_for is None and not self._closing)
        if outcome.culprit:
            self.note_misbehaviour(outcome.culprit)
        again = [task_id for task_id in outcome.unstarted if self._may_run_again(process, task_id)]
        self._release(set(outcome.unstarted).difference(again))
        self._again(again)
        self._ended(outcome.ended)

    def note_misbehaviour(self, lambda_name: str) -> None:
        """A task of this lambda crashed its process or ran too long: it is kept apart for a while."""
        if self._dispatcher.isolate(lambda_name, asyncio.get_running_loop().time()):
            events.lambda_isolated(lambda_name)

    def end_isolation(self, now: float) -> None:
        """Put the lambdas among the others again whose time apart is over."""
        if isolation_ended := self._dispatcher.end_isolation(now):
            events.isolation_ended(isolation_ended)
            self._changed()

    def interrupt(self, task_id: TaskId, process: CallbackProcess, overdue: Overdue) -> None:
        """Interrupt a callback; what is to be reported of it if it has to be killed is told when it is dead."""
        process.overdue[task_id] = overdue
        process.interrupt(task_id)
        self._assign()

    def let_linger(self, process: CallbackProcess, now: float) -> None:
        """Give a process no more work: something in it does not end. What it has not started runs elsewhere."""
        process.lingers_since = now
        process.recall()
        overdue = [(task_id, self._held_claims.lambda_of(task_id)) for task_id in process.overdue]
        events.process_lingers(process.process.pid, overdue)
        self._changed()

    def stop_lost(self, task_id: TaskId) -> None:
        """The claim of this task is lost: stop its callback at once by killing its process. Nothing is reported of it."""
        if (held := self._held_claims.report(task_id)) is None:
            return
        process = self._given_among([task_id]).get(task_id)
        if process is not None and process not in self._dying:
            if task_id in self.running_in(process) or task_id in process.overdue:
                self.kill_for(task_id, process, "lost_claim")
            else:
                process.cancel([task_id])  # it waits for a slot: it will not start
        self._held_claims.settle([held.task.claim])
        self._ended(0)

    def kill_those_that_run_on(self) -> None:
        """Kill processes that run what is not to run any more: it began just as it was told not to, or was lost."""
        for process in list(self._processes.values()):
            for task_id in self.running_in(process) & process.tasks:
                if process.killed_for is None and not self._held_claims.is_with(task_id, process.number):
                    self.kill_for(task_id, process, "no_longer_ours")

    def kill_for(self, task_id: TaskId, process: CallbackProcess, reason: str) -> None:
        """Kill a process for the sake of one task that it runs."""
        events.process_killed(process.process.pid, reason, task_id, self._held_claims.lambda_of(task_id))
        process.kill(task_id, reason)

    def kill_as_crashed(self, process: CallbackProcess, reason: str, fault: str) -> None:
        """Kill a process that is of no more use; what it runs has crashed, for it may be the cause."""
        events.process_killed(process.process.pid, reason, b"", "")
        process.fault = fault
        process.kill()

    def ask_to_stop(self, task_id: TaskId) -> None:
        """Tell the callback that its task is to be cancelled; one that waits for a process is cancelled here."""
        if (held := self._held_claims.get(task_id)) is None or held.reporting:
            return
        if held.process is None:
            self._held_claims.report(task_id)
            self._reporter.results([cancelled(held.task)])
        elif (process := self._processes.get(held.process)) is not None:
            process.cancel([task_id])

    def _given_among(self, task_ids: Sequence[TaskId]) -> dict[TaskId, CallbackProcess]:
        """Those of these that a process was given whose end it has not told; it may be dying."""
        return holders_of((*self._processes.values(), *self._dying), task_ids)

    def processes(self) -> list[CallbackProcess]:
        return list(self._processes.values())

    def unstarted_in(self, process: CallbackProcess) -> set[TaskId]:
        return process.tasks - self.running_in(process)

    def runs(self, task_id: TaskId) -> bool:
        """Whether a callback runs this task now."""
        return any(entry.task_id == task_id for entry in self._board.running())

    def running_in(self, process: CallbackProcess) -> set[TaskId]:
        return {entry.task_id for entry in self._board.running(process.number)}
