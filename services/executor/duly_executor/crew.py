"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from duly.v1 import callback_pb2, hsc_pb2, registry_pb2
from duly_core import failpoints
from duly_core.board import Board
from duly_core.task import TaskId
from duly_executor import events
from duly_executor.assignment import Assignment, Plan
from duly_executor.containment import Containment
from duly_executor.holdings import Holdings
from duly_executor.launcher import Launcher
from duly_executor.process import CallbackProcess, given_among
from duly_executor.reporter import Reporter
from duly_executor.settings import ExecutorSettings
from duly_executor.verdicts import cancelled, crash, ending_of


class Crew:
    """Keeps callback processes alive and fed: `settings.processes`, and a spare one while it is needed."""

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
        self._ended = ended
        self._processes: dict[int, CallbackProcess] = {}
        self._dying: set[CallbackProcess] = set()
        """No longer fed, and not buried yet."""
        self._launcher = Launcher(application, executor_id, board, containment, settings.import_timeout)
        self._moves_within = settings.recall_after.total_seconds()
        self._assignment = Assignment(board.slots, self._moving)
        self._ordinary = settings.processes
        self._spare_wanted = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = False

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the processes; the application's lambdas. `failed` is told if keeping one alive ends unexpectedly.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        lambdas: list[registry_pb2.Lambda] = []
        for number in range(self._ordinary):
            self._processes[number], lambdas = await self._launcher.first(number)
        keeping = [self._keep(number, process) for number, process in list(self._processes.items())]
        for work in (*keeping, self._keep_spare(self._ordinary)):
            keeper = asyncio.get_running_loop().create_task(work)
            keeper.add_done_callback(
                lambda task: failed(error) if not task.cancelled() and (error := task.exception()) else None
            )
            self._keepers.append(keeper)
        return lambdas

    async def _keep(self, number: int, process: CallbackProcess) -> None:
        failures = 0
        while True:
            if await self._run(number, process):
                failures = 0
            started = await self._launcher.again(number, failures)
            if started is None:
                return
            failures += 1
            process = self._processes[number] = started
            self._assign()
            self._ended(0)

    async def _keep_spare(self, number: int) -> None:
        """The spare process is started when a suspect waits, and ends when none has come for a while."""
        while not self._closing:
            await self._spare_wanted.wait()
            self._spare_wanted.clear()
            if not self._assignment.wants_spare:
                continue
            process = await self._launcher.again(number, 0)
            if process is None:
                return
            process.spare = True
            process.ended_at = asyncio.get_running_loop().time()
            self._processes[number] = process
            self._assign()
            self._ended(0)
            await self._run(number, process)
            self._assign()

    async def _run(self, number: int, process: CallbackProcess) -> bool:
        """Listen to a process until it has ended, and bury it; whether it told anything."""
        told = False
        while (report := await process.read()) is not None:
            told = True
            self._take(process, report)
        self._dying.add(self._processes.pop(number))
        code = await process.ended()
        self._dying.discard(process)
        self._bury(process, code)
        return told

    def retire_spare(self, idle_since: float) -> None:
        """End the spare process if nothing has ended in it since then (the loop's time)."""
        process = self._processes.get(self._ordinary)
        if process is not None and not process.tasks and process.idles_since(idle_since):
            process.kill(b"")

    async def close(self) -> None:
        """Kill all processes and hand back what they ran."""
        self._closing = True
        self._spare_wanted.set()
        self._launcher.close()
        for process in self._processes.values():
            process.kill(b"")
        await asyncio.gather(*self._keepers, return_exceptions=True)

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
        """Hand back whatever has not started."""
        self.hand_back_unassigned()
        self.hand_back_suspects(math.inf)
        for process in self._processes.values():
            if self.unstarted_in(process):
                process.recall()

    def unassigned(self) -> int:
        return self._assignment.ordinary()

    def hand_back_unassigned(self) -> None:
        self._release(self._assignment.take_back())

    def hand_back_suspects(self, came_before: float) -> None:
        """Hand back those that have waited since before then (the loop's time) for a process of their own."""
        self._release(self._assignment.take_back_suspects(came_before))

    def _moving(self, process: CallbackProcess) -> bool:
        return not process.idles_since(asyncio.get_running_loop().time() - self._moves_within)

    def _assign(self) -> None:
        for process, batch in self._assignment.assign(self._processes.values()):
            alive: dict[TaskId, hsc_pb2.ClaimedTask] = {}
            for task in batch:
                claim = task.claim
                task_id = claim.task_id
                held = self._holdings.get(task_id)
                if held is None or held.reporting or held.token != claim.token:
                    continue  # its claim was lost, or it was cancelled, while it waited
                held.process = process.number
                alive[task_id] = task
            if alive:
                if failpoints.on:
                    failpoints.hit_here("executor.give.before")
                process.give(alive, self._holdings.leases.earliest_of(alive))
        if self._assignment.wants_spare and self._ordinary not in self._processes:
            self._spare_wanted.set()

    def _take(self, process: CallbackProcess, report: callback_pb2.CallbackReport) -> None:
        process.recall_sent_at = None
        if report.results:
            process.ended_at = asyncio.get_running_loop().time()
            process.waits_since = None
        ends: list[tuple[hsc_pb2.ClaimedTask, hsc_pb2.TaskResult]] = []
        for result in report.results:
            claim = result.claim
            task_id = claim.task_id
            process.tasks.discard(task_id)
            held = self._holdings.get(task_id)
            if held is None or held.token != claim.token:
                self._release([task_id])  # a newer claim waited for the end of this one
            elif self._holdings.report(task_id) is not None:
                ends.append((held.task, result))
        events.attempts_ended(ends)
        self._holdings.note_progress(report.progress)
        process.tasks.difference_update(report.unstarted)
        self._release(report.unstarted)
        if not process.tasks:
            process.alone = False
        self._reporter.results([result for _, result in ends])
        self._assign()
        self._ended(len(ends))

    def _release(self, task_ids: Iterable[TaskId]) -> None:
        held = [self._holdings.report(task_id) for task_id in task_ids]
        self._reporter.release([each.task.claim for each in held if each is not None])

    def _bury(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain. What it ran crashed, unless we killed it; its `verdicts` are told, all else is released.

        That is what never started, or was killed for another's sake, and a newer claim of what ran.
        """
        running = {entry.task_id for entry in self._board.running(process.number)} & process.tasks
        self._board.clear(process.number)
        culprits = {each for each in running if process.killed_for is None and self._was_given(process, each)}
        if process.killed_for is None and not self._closing:
            events.process_crashed(process.process.pid, code, len(running))
        ended = [self._holdings.report(task_id) for task_id in culprits]
        ending = process.misdeed or ending_of(code)
        crashes = [crash(held.task, ending, len(running)) for held in ended if held is not None]
        self._reporter.results([*process.verdicts, *crashes])
        self._release(process.tasks - culprits)
        self._ended(len(crashes) + len(process.verdicts))

    def stop_for(self, task_id: TaskId, reason: str, result: hsc_pb2.TaskResult | None) -> None:
        """Stop this task's callback at once by killing its process; report `result` for it, if there is one."""
        held = self._holdings.report(task_id)
        if held is None:
            return
        process = self._given_among([task_id]).get(task_id)
        verdict = [result] if result is not None else []
        if process is not None and (process in self._dying or task_id in self.running_in(process)):
            process.verdicts += verdict  # reported when the callback, and what it started, surely run no more
            if process not in self._dying:
                self.kill_for(task_id, process, reason)
        else:
            if process is not None:
                process.cancel([task_id])  # it waits for a slot: it will not start
            self._reporter.results(verdict)
        if result is None:
            self._holdings.settle([held.task.claim])
        self._ended(0)

    def kill_those_that_run_on(self) -> None:
        """Kill processes that run what is not to run any more: it began just as it was told not to, or was lost."""
        for process in list(self._processes.values()):
            for task_id in self.running_in(process) & process.tasks:
                if process.killed_for is None and not self._was_given(process, task_id):
                    self.kill_for(task_id, process, "no_longer_ours")

    def kill_for(self, task_id: TaskId, process: CallbackProcess, reason: str) -> None:
        """Kill a process for the sake of one task that it runs."""
        events.process_killed(process.process.pid, reason)
        process.kill(task_id)

    def kill_as_crashed(self, process: CallbackProcess, reason: str, misdeed: str) -> None:
        """Kill a process that is of no more use; what it runs has crashed, for it may be the cause."""
        events.process_killed(process.process.pid, reason)
        process.misdeed = misdeed
        process.kill()

    def ask_to_stop(self, task_id: TaskId) -> None:
        """Tell the callback that its task is to be cancelled; one that waits for a process is cancelled here."""
        held = self._holdings.get(task_id)
        if held is None or held.reporting:
            return
        if held.process is None:
            self._holdings.report(task_id)
            self._reporter.results([cancelled(held.task)])
        elif (process := self._processes.get(held.process)) is not None:
            process.cancel([task_id])

    def _given_among(self, task_ids: Sequence[TaskId]) -> dict[TaskId, CallbackProcess]:
        """Those of these that a process was given whose end it has not told; it may be dying."""
        return given_among((*self._processes.values(), *self._dying), task_ids)

    def _was_given(self, process: CallbackProcess, task_id: TaskId) -> bool:
        """Whether the claim that is held now is the one that it runs under."""
        held = self._holdings.get(task_id)
        return held is not None and not held.reporting and held.process == process.number

    def processes(self) -> list[CallbackProcess]:
        return list(self._processes.values())

    def unstarted_in(self, process: CallbackProcess) -> set[TaskId]:
        return process.tasks - self.running_in(process)

    def runs(self, task_id: TaskId) -> bool:
        """Whether a callback runs this task now."""
        return any(entry.task_id == task_id for entry in self._board.running())

    def running_in(self, process: CallbackProcess) -> set[TaskId]:
        return {entry.task_id for entry in self._board.running(process.number)}
