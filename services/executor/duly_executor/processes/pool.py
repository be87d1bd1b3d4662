"""The callback processes of an Executor: who gets which task, and what becomes of the tasks of one that died.

The poller, the watchdog and the heartbeats call this; it calls none of them. Who waits for room waits for `freed`.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from duly_core.host.claim_journal import ClaimJournal
from duly_core.host.slot_board import RunningTask
from duly_core.process import failpoints
from duly_executor import events
from duly_executor.claims.ledger import HeldClaims
from duly_executor.containment.process_group import Containment
from duly_executor.processes.batch_lines import BatchLines, terms_of
from duly_executor.processes.dispatch import Dispatcher
from duly_executor.processes.exit_handler import ExitHandler
from duly_executor.processes.frontend_relay import FrontendRelay
from duly_executor.processes.process import CallbackProcess
from duly_executor.processes.report_checks import checked
from duly_executor.processes.starter import ProcessStarter
from duly_executor.processes.supervisor import ProcessSupervisor
from duly_executor.processes.suspects import IsolatedLambdas
from duly_executor.processes.task_output import OutputSender
from duly_executor.results.failures import cancelled, with_checkpoint
from duly_executor.results.reporter import ResultReporter
from duly_executor.settings import ExecutorSettings
from duly_executor.slots.reserved import ReservedSlots
from duly_executor.work.prefetch import Prefetch
from duly_wire.ids import TaskId
from duly_wire.v1 import callback_pb2, hsc_pb2, registry_pb2


class CallbackPool:
    """Feeds the callback processes, hears what they tell, and buries them."""

    def __init__(
        self,
        application: str,
        executor_id: str,
        journal: ClaimJournal,
        containment: Containment,
        held_claims: HeldClaims,
        reporter: ResultReporter,
        settings: ExecutorSettings,
        frontend_relay: FrontendRelay,
        output_sender: OutputSender,
    ) -> None:
        self._frontend_relay = frontend_relay
        self._output_sender = output_sender
        self._journal = journal
        self._board = board = journal.board
        self._held_claims = held_claims
        self._reporter = reporter
        self._exits = ExitHandler(board, held_claims, reporter)
        self.freed = asyncio.Event()
        """Set when there may be room for more tasks."""
        self.ended_at = 0.0
        """When an attempt last ended in any process (the loop's time)."""
        self._prefetch = Prefetch(
            settings.prefetch_time, settings.prefetch_limit, settings.processes * settings.slots
        )
        starter = ProcessStarter(application, executor_id, journal, containment, settings)
        self._supervisor = ProcessSupervisor(starter, settings, self._serve, self.reassign)
        self.retire_isolated = self._supervisor.retire
        self._processes = self._supervisor.processes
        self._dying: set[CallbackProcess] = set()
        """No longer fed, and not buried yet."""
        self._moves_within = settings.recall_after.total_seconds()
        self.reserved = ReservedSlots(settings, held_claims.task)
        apart = IsolatedLambdas(settings.isolate_for)
        self._batches = BatchLines(self._moves_within)
        self._dispatcher = Dispatcher(
            board.slots, self._moving, apart, settings.isolated_processes, self.reserved, self._batches
        )
        self._batch_ready: asyncio.TimerHandle | None = None
        """Set for when the next batch has waited its time."""
        self.capacity = partial(self._dispatcher.capacity, self._processes.values())
        self.crowding = self._dispatcher.crowding
        self.full_lambdas = self._dispatcher.full_lambdas
        self.beyond_slots = partial(self._dispatcher.beyond_slots, self._processes.values())
        self.unassigned = self._dispatcher.ordinary
        self._ordinary = settings.processes
        self._is_debugged = bool(settings.debug_port)
        """A process of its own for the debugger is not replaced."""
        self._stopping = False
        """What has not started is handed back, not given to another process."""
        self._closing = False

    async def start(self, failed: Callable[[BaseException], None]) -> list[registry_pb2.Lambda]:
        """Start the processes, as the supervisor says."""
        lambdas = await self._supervisor.start(failed)
        self._batches.declare(terms_of(lambdas))
        return lambdas

    @property
    def batch_lambdas(self) -> frozenset[str]:
        """The lambdas whose callbacks take many tasks in one call."""
        return self._batches.names

    def batch_room(self, name: str, asked: int) -> int:
        """Return for how many tasks of such a lambda to ask, when so many are asked for."""
        now = asyncio.get_running_loop().time()
        return self._dispatcher.batch_room(name, asked, self._processes.values(), now)

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

    def reassign(self) -> None:
        """Give what waits to the processes as they are now."""
        self._assign()
        self.freed.set()

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

    def plan_prefetch(self) -> None:
        """Hold as many tasks beyond the slots as will end soon."""
        ahead = self._prefetch.ahead(asyncio.get_running_loop().time())
        self._dispatcher.plan_prefetch(ahead, self._processes.values(), self._ordinary)

    def _attempts_ended(self, count: int) -> None:
        if count:
            self.ended_at = asyncio.get_running_loop().time()
            self._prefetch.ended(count, self.ended_at)
        self.freed.set()

    def recall(self) -> None:
        """Hand back whatever has not started, from now on."""
        self._stopping = True
        self.hand_back_unassigned()
        self.hand_back_isolated(math.inf)
        for process in self._processes.values():
            if self.unstarted_in(process):
                process.recall()

    def hand_back_unassigned(self, stuck_at: float | None = None) -> None:
        self.release(self._dispatcher.take_back(stuck_at))

    def hand_back_batches(self) -> None:
        """Hand back batches for which no slot was freed lately."""
        if self._batches and (taken := self._dispatcher.take_back_batches(asyncio.get_running_loop().time())):
            self.release(taken)
            self.freed.set()

    def hand_back_isolated(self, came_before: float) -> None:
        """Hand back those that have waited since before then (the loop's time) for an isolated process."""
        if taken := self._dispatcher.take_back_isolated(came_before):
            self.release(taken)
            self.freed.set()

    def _moving(self, process: CallbackProcess) -> bool:
        return not process.idles_since(asyncio.get_running_loop().time() - self._moves_within)

    def _assign(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._batches:
            self._assign_batches(now)
        for process, batch in self._dispatcher.assign(self._processes.values(), now):
            if alive := self._with(process, batch):
                process.give(alive, self._held_claims.start_before(alive))
        self._supervisor.balance(self._dispatcher.wanted_isolated(self._processes.values()))

    def _with(
        self, process: CallbackProcess, tasks: Iterable[hsc_pb2.ClaimedTask]
    ) -> dict[TaskId, hsc_pb2.ClaimedTask]:
        """Note that these are with a process; return those that are to run still."""
        alive: dict[TaskId, hsc_pb2.ClaimedTask] = {}
        for task in tasks:
            task_id = task.claim.task_id
            held = self._held_claims.get(task_id)
            if held is None or held.reporting or (held.task is not task and held.token != task.claim.token):
                continue  # its claim was lost, or it was cancelled, while it waited
            held.process = process.number
            alive[task_id] = task
        if alive:
            failpoints.hit_here("executor.give.before")
        return alive

    def _assign_batches(self, now: float) -> None:
        """Give the batches that are ready, and look again when the next one is."""
        for process, batch in self._dispatcher.assign_batches(self._processes.values(), now):
            if alive := self._with(process, batch):
                self._held_claims.note_batch(alive)
                process.give_batch(alive, self._held_claims.start_before(alive))
            self.freed.set()
        if self._batch_ready is not None:
            self._batch_ready.cancel()
            self._batch_ready = None
        if (at := self._batches.next_at(now)) is not None:
            self._batch_ready = asyncio.get_running_loop().call_at(at, self._assign)

    def _take(self, process: CallbackProcess, report: callback_pb2.CallbackReport) -> None:
        process.told += len(report.results)
        if report.recalled:  # anything else may come from threads beside an event loop that is blocked
            process.recall_sent_at = None
        if report.results:
            process.ended_at = asyncio.get_running_loop().time()
            process.waits_since = None
        self._held_claims.note_told(report, process.tasks)
        if report.attachment_calls:
            self._frontend_relay.take(process, report.attachment_calls)
        if report.output:
            self._output_sender.take(process, report.output)
        ends: list[tuple[hsc_pb2.ClaimedTask, hsc_pb2.TaskResult]] = []
        in_one_call = 0
        for result in report.results:
            claim = result.claim
            task_id = claim.task_id
            if task_id not in process.tasks:
                process.own([task_id])
                continue
            if process.overdue:
                if process.keeps_back(result):
                    continue
                process.overdue.pop(task_id, None)
            in_one_call += process.end(task_id)
            held = self._held_claims.get(task_id)
            if held is None or held.token != claim.token:
                self.release([task_id])  # a newer claim waited for the end of this one
            elif self._held_claims.report(task_id) is not None:
                claim.cell = held.cell  # where it goes, its callback does not say
                ends.append((held.task, with_checkpoint(held, checked(result, process.environment))))
        events.attempts_ended(ends)
        if report.unstarted:
            unstarted = process.own(report.unstarted)
            if process.works:
                self.release(unstarted)
            else:  # it takes no more work
                self._run_again(process, unstarted)
            for task_id in unstarted:
                process.end(task_id)
        process.share_if_idle()
        self._reporter.results([result for _, result in ends])
        self._note_reserved(ends)
        self._assign()
        self._attempts_ended(max(0, len(ends) - in_one_call))  # calls: these are what takes a slot

    def _note_reserved(self, ends: Sequence[tuple[hsc_pb2.ClaimedTask, hsc_pb2.TaskResult]]) -> None:
        """Note the ends of tasks that took a slot each."""
        if self.reserved and self._batches:
            ends = [each for each in ends if self._batches.size_of(getattr(each[0], "lambda")) == 1]
        self.reserved.note_ended(ends, asyncio.get_running_loop().time())

    def _run_again(self, process: CallbackProcess, task_ids: Iterable[TaskId]) -> None:
        """Have another process here run what this one has not started; hand back what may not run here."""
        now = asyncio.get_running_loop().time()
        released = []
        for task_id in task_ids:
            held = self._held_claims.get(task_id)
            ours = held is not None and self._held_claims.is_with(task_id, process.number)
            is_over = held is not None and (
                held.cancel_asked_at is not None or held.given_up or held.only_if_started
            )
            if held is None or not ours or is_over or self._stopping:
                released.append(task_id)
            else:
                held.process = None
                self._held_claims.note_alone(task_id)
                self._dispatcher.add(held.task, now)
        self.release(released)

    def release(self, task_ids: Iterable[TaskId]) -> None:
        held = [self._held_claims.report(task_id) for task_id in task_ids]
        self._reporter.release([each.task.claim for each in held if each is not None])

    def _handle_exit(self, process: CallbackProcess, code: int) -> None:
        """Its end is certain: tell what became of all that it was given."""
        self._journal.note_process(process.number, 0)
        outcome = self._exits.report(process, code, died=process.killed_for is None and not self._closing)
        if outcome.culprit:
            self.note_misbehaviour(outcome.culprit)
        self._run_again(process, outcome.unstarted)
        self._attempts_ended(outcome.ended)

    def note_misbehaviour(self, lambda_name: str) -> None:
        """A task of this lambda crashed its process or ran too long: it is kept apart for a while."""
        if self._dispatcher.isolate(lambda_name, asyncio.get_running_loop().time()):
            events.log.warning("lambda isolated: process crash or overrun", **{"lambda": lambda_name})

    def end_isolation(self, now: float) -> None:
        """Put the lambdas among the others again whose time apart is over."""
        if isolation_ended := self._dispatcher.end_isolation(now):
            events.log.info("lambda isolation ended", lambdas=sorted(isolation_ended))
            self.reassign()

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
        self.freed.set()

    def part_from(self, cell: str) -> None:
        """Replace the processes that run tasks of a cell that does not answer: when they are killed, little else is in them.

        They live on for what they run, and get nothing else once their successors are there. What has not started of the cell is
        handed back.
        """
        ours = frozenset(self._held_claims.leave_unstarted(cell))
        given = self._given_among([*ours])
        self.release(task_id for task_id in ours if task_id not in given)
        room = (
            0
            if self._is_debugged
            else self._ordinary - sum(each.lingers_since is not None for each in self._processes.values())
        )
        shared = [each for each in self._processes.values() if each.works and not each.isolated]
        for process in [each for each in shared if not ours.isdisjoint(each.tasks)][: max(0, room)]:
            process.is_old = True
            events.process_parted(process.process.pid, cell)
        self.reassign()

    def stop_cell(self, cell: str) -> list[TaskId]:
        """Kill the processes that were given tasks of a cell that does not answer; return those tasks.

        SIGKILL has been sent when this returns. Each is handed back once its end is certain: uncharged, as what ran beside it.
        """
        task_ids = self._held_claims.give_up(cell)
        wanted = frozenset(task_ids)
        given: set[TaskId] = set()
        for process in (*self._processes.values(), *self._dying):
            ours = wanted & (process.tasks | self.running_in(process))
            if ours:
                given |= ours
                if process.killed_for is None:
                    self.kill_for(next(iter(ours)), process, "cell_away")
                else:
                    process.kill()  # it may live still
        self.release(task_id for task_id in task_ids if task_id not in given)
        self.freed.set()
        return task_ids

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

    def request_cancel(self, task_id: TaskId, *, kill: bool = False) -> None:
        """Tell the callback, once, that its task is to be cancelled; one that waits for a process is cancelled here.

        With `kill` the watchdog ends it whatever it does.
        """
        held = self._held_claims.get(task_id)
        if held is None:
            return
        held.kill_asked = held.kill_asked or kill
        if held.cancel_asked_at is not None:
            return
        held.cancel_asked_at = asyncio.get_running_loop().time()
        if held.reporting:
            return
        if held.process is None:
            self._held_claims.report(task_id)
            self._reporter.results([cancelled(held.task)])
        elif (process := self._processes.get(held.process)) is not None:
            process.cancel([task_id])

    def _given_among(self, task_ids: Sequence[TaskId]) -> dict[TaskId, CallbackProcess]:
        """Those of these that a process was given whose end it has not told; it may be dying."""
        return {
            task_id: process
            for process in (*self._processes.values(), *self._dying)
            for task_id in process.tasks.intersection(task_ids)
        }

    def processes(self) -> list[CallbackProcess]:
        return list(self._processes.values())

    def unstarted_in(self, process: CallbackProcess) -> set[TaskId]:
        return process.tasks - self.running_in(process)

    def running_in(self, process: CallbackProcess) -> set[TaskId]:
        return {entry.task_id for entry in process.batches.spread(self._board.running(process.number))}

    def running(self) -> Iterator[RunningTask]:
        """What runs in all processes; of a batch, each task."""
        batches = {
            process.number: process.batches
            for process in (*self._processes.values(), *self._dying)
            if process.batches
        }
        for entry in self._board.running():
            if batches and (given := batches.get(entry.process)) is not None:
                yield from given.spread([entry])
            else:
                yield entry

    def runs(self, task_id: TaskId) -> bool:
        """Whether a process says that it runs this task now."""
        return any(entry.task_id == task_id for entry in self.running())
