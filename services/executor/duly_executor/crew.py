"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from duly.v1 import callback_pb2, hsc_pb2, registry_pb2, task_pb2
from duly_core.board import Board
from duly_core.errors import ApplicationError
from duly_core.loop import backoff, wait_for
from duly_core.task import TaskId
from duly_executor import events
from duly_executor.holdings import Holdings
from duly_executor.process import CallbackProcess
from duly_executor.reporter import Reporter


class Crew:
    """Keeps `board.processes` callback processes alive and fed.

    A task that has crashed a process before is run alone in one, so that the culprit of a further crash is
    known, and an innocent task is never quarantined for its neighbour.
    """

    def __init__(
        self,
        application: str,
        executor_id: str,
        board: Board,
        holdings: Holdings,
        reporter: Reporter,
        ended: Callable[[int], None],
    ) -> None:
        """Args: `ended` is told how many attempts ended, whenever some did."""
        self._application = application
        self._executor_id = executor_id
        self._board = board
        self._holdings = holdings
        self._reporter = reporter
        self._ended = ended
        self._processes: dict[int, CallbackProcess] = {}
        self._waiting: deque[hsc_pb2.ClaimedTask] = deque()
        self._waiting_alone: deque[hsc_pb2.ClaimedTask] = deque()
        self._keepers: list[asyncio.Task[None]] = []
        self._closing = False
        self.most_each = board.slots
        """How many tasks a process is given at most, those that wait for a slot included."""

    async def start(self, failed: Callable[[ApplicationError], None]) -> list[registry_pb2.Lambda]:
        """Start the processes; the application's lambdas. `failed` is told if it cannot be imported again later.

        Raises:
            ApplicationError: the application cannot be imported.
        """
        lambdas: list[registry_pb2.Lambda] = []
        for number in range(self._board.processes):
            process = await self._start_one(number)
            lambdas = await process.hello()
            self._processes[number] = process
        for number, process in list(self._processes.items()):
            self._keepers.append(asyncio.get_running_loop().create_task(self._keep(number, process, failed)))
        return lambdas

    async def _start_one(self, number: int) -> CallbackProcess:
        return await CallbackProcess.start(number, self._executor_id, self._application, self._board)

    async def _keep(
        self, number: int, process: CallbackProcess, failed: Callable[[ApplicationError], None]
    ) -> None:
        failures = 0
        while True:
            while (report := await process.read()) is not None:
                failures = 0
                self._take(process, report)
            del self._processes[number]
            code = await process.ended()
            self._bury(process, code)
            if self._closing:
                return
            await wait_for(asyncio.Event(), backoff(failures)) if failures else None
            failures += 1
            process = await self._start_one(number)
            try:
                await process.hello()
            except ApplicationError as error:
                failed(error)
                return
            self._processes[number] = process
            self._assign()

    def give(self, tasks: Iterable[hsc_pb2.ClaimedTask]) -> None:
        """Have these run; they are held already."""
        for task in tasks:
            (self._waiting_alone if task.crashes else self._waiting).append(task)
        self._assign()

    def _assign(self) -> None:
        """Spread what waits over the processes, the least loaded first."""
        batches: dict[int, list[hsc_pb2.ClaimedTask]] = {}
        idle = [process for process in self._processes.values() if not process.tasks and not process.alone]
        while self._waiting_alone and idle:
            process = idle.pop()
            process.alone = True
            batches[process.number] = [self._waiting_alone.popleft()]
        open_to_all = [
            process
            for process in self._processes.values()
            if not process.alone
            and process.killed_for is None
            and not (self._waiting_alone and len(self._processes) == 1)
        ]
        room = {process.number: self.most_each - len(process.tasks) for process in open_to_all}
        while self._waiting and room:
            number = max(room, key=room.__getitem__)
            if room[number] <= 0:
                break
            share = max(1, min(len(self._waiting) // len(room), room[number]))
            batches.setdefault(number, []).extend(self._waiting.popleft() for _ in range(share))
            room[number] -= share
        for number, batch in batches.items():
            self._hand(self._processes[number], batch)

    def _hand(self, process: CallbackProcess, batch: Sequence[hsc_pb2.ClaimedTask]) -> None:
        start_before = None
        for task in batch:
            held = self._holdings.get(task.claim.task_id)
            if held is not None:
                held.process = process.number
                deadline = self._holdings.leases.deadline(task.claim.task_id)
                start_before = deadline if start_before is None else min(start_before, deadline)
        if start_before is not None:
            process.give(batch, start_before)

    def _take(self, process: CallbackProcess, report: callback_pb2.CallbackReport) -> None:
        results = []
        for result in report.results:
            process.tasks.discard(result.claim.task_id)
            held = self._holdings.report(result.claim.task_id)
            if held is not None:
                events.attempt_ended(held.task, result)
                results.append(result)
        self._holdings.note_progress(report.progress)
        self._hand_back(process, report.unstarted)
        if not process.tasks:
            process.alone = False
        self._reporter.results(results)
        if results:
            self._ended(len(results))
        self._assign()

    def _hand_back(self, process: CallbackProcess, task_ids: Iterable[TaskId]) -> None:
        claims = []
        for task_id in task_ids:
            process.tasks.discard(task_id)
            held = self._holdings.report(task_id)
            if held is not None:
                claims.append(held.task.claim)
        self._reporter.release(claims)

    def _bury(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain. What it ran crashed, unless it was killed for one task's sake; the rest never started."""
        running = {entry.task_id for entry in self._board.running(process.number)} & process.tasks
        self._board.clear(process.number)
        culprits = running if process.killed_for is None else set()
        if process.killed_for is None and not self._closing:
            events.process_crashed(process.process.pid, code, len(running))
        crashes = []
        for task_id in culprits:
            held = self._holdings.report(task_id)
            if held is not None:
                crashes.append(_crash(held.task, code, len(running)))
        self._reporter.results(crashes)
        self._hand_back(process, list(process.tasks - culprits))
        if crashes:
            self._ended(len(crashes))

    def stop_for(self, task_id: TaskId, reason: str, result: hsc_pb2.TaskResult | None) -> None:
        """Stop this task's callback at once by killing its process; report `result` for it, if there is one."""
        held = self._holdings.get(task_id)
        if held is None or held.reporting:
            return
        process = self._processes.get(held.process) if held.process is not None else None
        if process is not None and any(
            entry.task_id == task_id for entry in self._board.running(process.number)
        ):
            events.process_killed(process.process.pid, reason)
            process.kill(task_id)
        elif process is not None:
            process.cancel([task_id])  # it waits for a slot: it will not start
        self._holdings.report(task_id)
        if result is not None:
            self._reporter.results([result])
        else:
            self._holdings.settle([task_id])

    def ask_to_stop(self, task_id: TaskId) -> None:
        """Tell the callback that its task is to be cancelled."""
        held = self._holdings.get(task_id)
        process = self._processes.get(held.process) if held and held.process is not None else None
        if process is not None:
            process.cancel([task_id])

    def recall(self) -> None:
        """Hand back what has not started."""
        waiting = [*self._waiting, *self._waiting_alone]
        self._waiting.clear()
        self._waiting_alone.clear()
        claims = []
        for task in waiting:
            held = self._holdings.report(task.claim.task_id)
            if held is not None:
                claims.append(held.task.claim)
        self._reporter.release(claims)
        for process in self._processes.values():
            if len(process.tasks) > 1 or not list(self._board.running(process.number)):
                process.recall()

    def backlog(self) -> int:
        """How many tasks wait for a slot."""
        given = sum(len(process.tasks) for process in self._processes.values())
        running = sum(1 for _ in self._board.running())
        return len(self._waiting) + len(self._waiting_alone) + max(0, given - running)

    async def close(self) -> None:
        """Kill all processes and hand back what they ran."""
        self._closing = True
        for process in self._processes.values():
            process.kill(b"")
        for keeper in self._keepers:
            with suppress(asyncio.CancelledError):
                await keeper


def _crash(task: hsc_pb2.ClaimedTask, code: int, suspects: int) -> hsc_pb2.TaskResult:
    ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    company = "" if suspects == 1 else f" while it ran {suspects} tasks, any of which may be the cause"
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_CRASHED,
        failure_kind=task_pb2.FAILURE_KIND_CRASH,
        failure_message=f"the callback's process {ending}{company}",
    )
