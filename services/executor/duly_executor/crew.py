"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died."""

import asyncio
from collections.abc import Callable, Iterable

from duly.v1 import callback_pb2, hsc_pb2, registry_pb2, task_pb2
from duly_core.board import Board
from duly_core.loop import backoff, wait_for
from duly_core.task import TaskId
from duly_executor import events
from duly_executor.assignment import Assignment
from duly_executor.holdings import Holdings
from duly_executor.process import CallbackProcess, StartKilledError
from duly_executor.reporter import Reporter

_STARTS = 5
"""A process that is killed while it imports the application is started so often; then the application is it."""


class Crew:
    """Keeps `board.processes` callback processes alive and fed."""

    def __init__(
        self,
        application: str,
        executor_id: str,
        board: Board,
        holdings: Holdings,
        reporter: Reporter,
        ended: Callable[[int], None],
    ) -> None:
        """Args: `ended` is told how many attempts ended; with 0, that there may be room for other reasons."""
        self._application = application
        self._executor_id = executor_id
        self._board = board
        self._holdings = holdings
        self._reporter = reporter
        self._ended = ended
        self._processes: dict[int, CallbackProcess] = {}
        self._starting: set[CallbackProcess] = set()
        self._assignment = Assignment(board.slots)
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()

    # ---- processes ---------------------------------------------------------------------------------------

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the processes; the application's lambdas. `failed` is told if one cannot be kept alive later.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        lambdas: list[registry_pb2.Lambda] = []
        for number in range(self._board.processes):
            self._processes[number], lambdas = await self._start_one(number)
        for number, process in list(self._processes.items()):
            keeper = asyncio.get_running_loop().create_task(self._keep(number, process))
            keeper.add_done_callback(
                lambda task: failed(error) if not task.cancelled() and (error := task.exception()) else None
            )
            self._keepers.append(keeper)
        return lambdas

    async def _start_one(self, number: int) -> tuple[CallbackProcess, list[registry_pb2.Lambda]]:
        for failures in range(1, _STARTS + 1):
            process = await CallbackProcess.start(number, self._executor_id, self._application, self._board)
            self._starting.add(process)
            try:
                return process, await process.hello()
            except StartKilledError as error:
                if failures == _STARTS or self._closing.is_set():
                    raise
                events.not_started(str(error))
                await wait_for(self._closing, backoff(failures))
            finally:
                self._starting.discard(process)
        raise AssertionError

    async def _keep(self, number: int, process: CallbackProcess) -> None:
        failures = 0
        while True:
            while (report := await process.read()) is not None:
                failures = 0
                self._take(process, report)
            del self._processes[number]
            self._bury(process, await process.ended())
            started = None
            while started is None and not self._closing.is_set():
                if failures:
                    await wait_for(self._closing, backoff(failures))
                failures += 1
                started = await self._start_again(number)
            if started is None or self._closing.is_set():
                if started is not None:
                    started.kill(b"")
                    await started.ended()
                return
            process = self._processes[number] = started
            self._assign()
            self._ended(0)

    async def _start_again(self, number: int) -> CallbackProcess | None:
        try:
            process, _ = await self._start_one(number)
        except OSError as error:  # no memory, no process numbers: that passes
            events.not_started(str(error))
            return None
        except StartKilledError:
            if self._closing.is_set():
                return None
            raise
        return process

    async def close(self) -> None:
        """Kill all processes and hand back what they ran."""
        self._closing.set()
        for process in (*self._processes.values(), *self._starting):
            process.kill(b"")
        await asyncio.gather(*self._keepers, return_exceptions=True)

    # ---- tasks on their way to a process -------------------------------------------------------------------

    def give(self, tasks: Iterable[hsc_pb2.ClaimedTask]) -> None:
        """Have these run; they are held already."""
        for task in tasks:
            if any(task.claim.task_id in process.tasks for process in self._processes.values()):
                # claimed anew while a process has not told the end of a former claim: never both at a time
                self._release([task.claim.task_id])
            else:
                self._assignment.add(task)
        self._assign()

    def plan_ahead(self, tasks: int) -> int:
        """Hold so many beyond the slots; how many tasks can be held now."""
        self._assignment.most_each = self._board.slots + -(-tasks // self._board.processes)
        return self._assignment.capacity(self._processes.values()) + tasks

    def backlog(self) -> int:
        """How many tasks wait for a slot."""
        given = sum(len(process.tasks) for process in self._processes.values())
        running = sum(1 for _ in self._board.running())
        return len(self._assignment) + max(0, given - running)

    def recall(self, *, suspects_too: bool = False) -> None:
        """Hand back what has not started."""
        self._release(self._assignment.take_back(suspects_too=suspects_too))
        for process in self._processes.values():
            if len(process.tasks) > 1 or not list(self._board.running(process.number)):
                process.recall()

    def _assign(self) -> None:
        for process, batch in self._assignment.assign(self._processes.values()):
            start_before = None
            alive = []
            for task in batch:
                held = self._holdings.get(task.claim.task_id)
                if held is None or held.reporting:
                    continue  # its claim was lost, or it was cancelled, while it waited
                held.process = process.number
                deadline = self._holdings.leases.deadline(task.claim.task_id)
                start_before = deadline if start_before is None else min(start_before, deadline)
                alive.append(task)
            if start_before is not None:
                process.give(alive, start_before)

    # ---- tasks that a process has --------------------------------------------------------------------------

    def _take(self, process: CallbackProcess, report: callback_pb2.CallbackReport) -> None:
        results = []
        for result in report.results:
            process.tasks.discard(result.claim.task_id)
            held = self._holdings.report(result.claim.task_id)
            if held is not None:
                events.attempt_ended(held.task, result)
                results.append(result)
        self._holdings.note_progress(report.progress)
        process.tasks.difference_update(report.unstarted)
        self._release(report.unstarted)
        if not process.tasks:
            process.alone = False
        self._reporter.results(results)
        self._assign()
        self._ended(len(results))

    def _release(self, task_ids: Iterable[TaskId]) -> None:
        held = [self._holdings.report(task_id) for task_id in task_ids]
        self._reporter.release([each.task.claim for each in held if each is not None])

    def _bury(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain. What it ran crashed, unless it was killed for one task's sake; the rest never started."""
        running = {entry.task_id for entry in self._board.running(process.number)} & process.tasks
        self._board.clear(process.number)
        culprits = running if process.killed_for is None else set()
        if process.killed_for is None and not self._closing.is_set():
            events.process_crashed(process.process.pid, code, len(running))
        ended = [self._holdings.report(task_id) for task_id in culprits]
        crashes = [_crash(held.task, code, len(running)) for held in ended if held is not None]
        self._reporter.results([*process.verdicts, *crashes])
        self._release(process.tasks - culprits)
        self._ended(len(crashes) + len(process.verdicts))

    def stop_for(self, task_id: TaskId, reason: str, result: hsc_pb2.TaskResult | None) -> None:
        """Stop this task's callback at once by killing its process; report `result` for it, if there is one."""
        held = self._holdings.get(task_id)
        number = held.process if held is not None else None
        if self._holdings.report(task_id) is None or held is None:
            return
        process = self._processes.get(number) if number is not None else None
        verdict = [result] if result is not None else []
        if process is not None and task_id in self._running_in(process):
            process.verdicts += verdict  # reported when the callback surely runs no more
            self.kill_for(task_id, process, reason)
        else:
            if process is not None:
                process.cancel([task_id])  # it waits for a slot: it will not start
            self._reporter.results(verdict)
        if result is None:
            self._holdings.settle([held.task.claim])
        self._ended(0)

    def kill_those_that_run_on(self) -> None:
        """Kill processes that run what is not to run any more: it began just as it was told not to."""
        for process in list(self._processes.values()):
            for task_id in self._running_in(process) & process.tasks:
                held = self._holdings.get(task_id)
                if (held is None or held.reporting) and process.killed_for is None:
                    self.kill_for(task_id, process, "no_longer_ours")

    def kill_for(self, task_id: TaskId, process: CallbackProcess, reason: str) -> None:
        """Kill a process for the sake of one task that it runs."""
        events.process_killed(process.process.pid, reason)
        process.kill(task_id)

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

    def _running_in(self, process: CallbackProcess) -> set[TaskId]:
        return {entry.task_id for entry in self._board.running(process.number)}


def cancelled(task: hsc_pb2.ClaimedTask) -> hsc_pb2.TaskResult:
    """What is reported of a task that was stopped because somebody asked for it."""
    return hsc_pb2.TaskResult(claim=task.claim, outcome=hsc_pb2.OUTCOME_CANCELLED)


def _crash(task: hsc_pb2.ClaimedTask, code: int, suspects: int) -> hsc_pb2.TaskResult:
    ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    company = "" if suspects == 1 else f" while it ran {suspects} tasks, any of which may be the cause"
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_CRASHED,
        failure_kind=task_pb2.FAILURE_KIND_CRASH,
        failure_message=f"the callback's process {ending}{company}",
    )
