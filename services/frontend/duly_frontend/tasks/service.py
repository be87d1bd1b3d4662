"""FrontendService: checks what clients ask for, and hands it to the store in groups."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from duly_core.access.current import current_caller, restriction
from duly_core.access.roles import Action
from duly_core.config.live_sections import LiveFrontendSettings
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.cache import LambdaCache
from duly_core.postgres.notifications import Notifier
from duly_core.process import failpoints
from duly_core.process.telemetry import observe_call
from duly_core.rpc.call_streams import CallStreams
from duly_core.rpc.requests import checks
from duly_core.rpc.requests.checks import check_count, limit, page_size, read_duration
from duly_core.rpc.requests.names import unknown_lambda
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_core.tasks import bulk as store_bulk
from duly_core.tasks import completions as store_completions
from duly_core.tasks import dead_letters as store_dead_letters
from duly_core.tasks import queries as task_queries
from duly_core.tasks import schedule as store_schedule
from duly_core.tasks import store as store_tasks
from duly_core.tasks import unique as store_unique
from duly_core.tasks import updates as store_changes
from duly_core.tasks.completions import Completed, Completion
from duly_core.tasks.dead_letters import Verdict
from duly_core.tasks.lifecycle import FINAL, Status
from duly_core.tasks.task import NewTask, Scheduled, TaskChange
from duly_core.tasks.updates import Changed, ChangeVerdict
from duly_core.traffic.group_commit import GroupCommit
from duly_core.traffic.slices import Steps, each
from duly_frontend import events
from duly_frontend.access.reach import Readable, beyond, reachable, readable, scope_of
from duly_frontend.limits.scheduling_quotas import SchedulingQuotas
from duly_frontend.lists import filters, page_token
from duly_frontend.settings import FrontendSettings
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks import bulk as bulk_pages
from duly_frontend.tasks import completions, dead_letters, scheduling
from duly_frontend.tasks import keys as task_keys
from duly_frontend.tasks import updates as task_updates
from duly_frontend.tasks.completion_watcher import CompletionWatcher
from duly_frontend.tasks.reads import FEW, TaskReader
from duly_frontend.tasks.wire import NO_SUCH_TASK, STATUS_TO_WIRE, task_to_wire
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, task_pb2

Result = TypeVar("Result")

_MOST_UPDATES = 1_000
_MOST_COMPLETIONS = 1_000
_DEFAULT_WAIT = timedelta(seconds=20)
_WEIGHTY = 4 * 1024
"""Bytes of payload that count for another task in a group: a thousand of 1 MiB would be too much for one statement."""
_FEW_TASKS = 4
_SELDOM = 0.02
"""Seconds since the group before: such a small group tells the Store Consumers itself that something is due."""


class FrontendServicer(frontend_pb2_grpc.FrontendServiceServicer):
    """Each RPC takes many and answers each for itself; an item with an error has changed nothing."""

    def __init__(
        self,
        stores: FrontendStores,
        settings: FrontendSettings,
        known: LambdaCache,
        notifier: Notifier,
        rpc: RpcSettings | None = None,
        resources: ResourceCache | None = None,
        quotas: SchedulingQuotas | None = None,
        live: Callable[[], LiveFrontendSettings] | None = None,
        accepted: AcceptedCalls | None = None,
    ) -> None:
        """Make one; `rpc` has the limits of calls and of answers. None: the defaults.

        `live` returns the limits that hold now. None: always those of `settings`. `accepted` counts the calls of streams.
        """
        self._resources = resources or ResourceCache(stores.reads)
        self._quotas = quotas or SchedulingQuotas(stores.reads)
        rpc = rpc or RpcSettings()
        self._stores = stores
        self._live = live or (lambda: settings)
        self._notifier = notifier
        self._known = known
        self._wrote_at = float("-inf")
        self._ends = CompletionWatcher(stores.reads, refused=partial(events.load_refused, "waits"))
        self._reader = TaskReader(stores.reads, rpc.max_message_bytes, stores.load.reads)
        self._most_written = settings.max_group
        self._write = GroupCommit(
            self._write_group,
            max_items=settings.max_group,
            weigh=_weight,
            concurrency=settings.group_concurrency,
            observe=events.groups.observe,
        )
        # apart from the others, which are not to wait for keys that somebody else has locked
        self._write_unique = GroupCommit(
            self._write_unique_group,
            max_items=settings.max_group,
            weigh=_weight,
            concurrency=settings.group_concurrency,
            observe=events.groups.observe,
        )
        self._complete = GroupCommit(
            self._complete_group, max_items=settings.max_group, weigh=_weight_of_results
        )

        self._streams = CallStreams(
            self,
            {"schedule": "Schedule"},
            frontend_pb2.ScheduleStreamResponse,
            rpc.call_timeout,
            observe_call if accepted is None else accepted.observe,
            rpc.max_message_bytes,
            stores.load.calls.calls,
        )

    async def _sliced(self, steps: Steps[Result]) -> Result:
        return await self._stores.load.calls.large.run(current_caller(), steps)

    async def Schedule(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.ScheduleRequest, context: Context
    ) -> frontend_pb2.ScheduleResponse:
        check_count("tasks", len(request.tasks), self._live().max_tasks_per_call)
        items = [scheduling.Item(asked) for asked in request.tasks]
        names = {getattr(asked, "lambda") for asked in request.tasks}
        refused = beyond(Action.SCHEDULE, names)
        limits = await self._known.payload_limits(names, names.difference(refused))
        needed = await scheduling.needs_of(items, self._resources)
        checking = scheduling.checking(items, limits, self._live().horizon, refused, needed)
        await self._sliced(checking)
        if (ramps := self._known.ramps) and not names.isdisjoint(ramps):
            scheduling.send_by_ramps(items, ramps, limits)
        await self._quotas.refresh()
        scheduling.take_quotas(items, self._quotas)
        await scheduling.find_repeats(items, self._stores.reads)
        caller = current_caller()
        for some, is_unique in scheduling.by_keys(items):
            write = self._write_unique if is_unique else self._write
            await scheduling.write(
                some, partial(write, within=context.time_remaining(), client=caller), self._most_written
            )
        response, missing = await self._sliced(scheduling.answering(items))
        if missing and await scheduling.find_elsewhere(items, self._stores.reads):
            response, missing = await self._sliced(scheduling.answering(items))
        events.taken.inc(len(items) - missing)
        events.refused.inc(missing)
        return response

    async def ScheduleStream(  # type: ignore[override]  # noqa: N802  # written with `context.write`, not yielded
        self, _requests: object, context: Context
    ) -> None:
        await self._streams.serve(context)

    async def _write_group(self, tasks: list[NewTask]) -> list[Scheduled]:
        lambdas = {task.lambda_name for task in tasks}
        tell = (
            self._has_little_to_write(len(tasks))
            and not self._notifier.is_served_here(lambdas)
            and not any(task.session for task in tasks)
        )
        async with failpoints.around("frontend.schedule"):
            if len(tasks) == 1 and (written := await self._write_with_look(tasks[0])) is not None:
                return [written]
            answers = await store_schedule.schedule(self._stores.writes, tasks, tell=tell)
        ahead = min((answer.due_in for answer in answers if answer.due_in is not None), default=None)
        if ahead is not None and (ahead > timedelta() or not tell):
            self._notifier.due_in(ahead, lambdas, len(answers))
        return answers

    async def _write_unique_group(self, tasks: list[NewTask]) -> list[Scheduled]:
        async with failpoints.around("frontend.schedule_unique"):
            written = await store_unique.schedule_unique(self._stores.writes, tasks)
        events.unique_answered(tasks, written.answers)
        ahead = [answer.due_in for answer in written.answers if answer.due_in is not None]
        if ahead:
            self._notifier.due_in(min(ahead), {task.lambda_name for task in tasks}, len(ahead))
        if written.released:
            self._notifier.due_in(timedelta(), written.released, len(written.released))
        return written.answers

    async def _write_with_look(self, task: NewTask) -> Scheduled | None:
        """Write a task together with the look that finds it; None: that is not possible, and nothing is written."""
        if task.delay is not None or task.scheduled_at is not None or not store_schedule.is_plain(task):
            return None
        return await store_schedule.schedule_one(
            partial(self._notifier.run_with_look, task.lambda_name), task
        )

    def _has_little_to_write(self, tasks: int) -> bool:
        now = asyncio.get_running_loop().time()
        before, self._wrote_at = self._wrote_at, now
        return tasks <= _FEW_TASKS and now - before >= _SELDOM

    async def GetTask(  # noqa: N802
        self, request: frontend_pb2.GetTaskRequest, _context: Context
    ) -> frontend_pb2.GetTaskResponse:
        ids, bodies = self._ids(request.task_ids), _has_bodies(request.view)
        found = await self._readable(ids)
        return frontend_pb2.GetTaskResponse(
            results=await self._reader.read(found, bodies=bodies, history=True)
        )

    async def FindTask(  # noqa: N802
        self, request: frontend_pb2.FindTaskRequest, _context: Context
    ) -> frontend_pb2.FindTaskResponse:
        check_count("keys", len(request.keys), self._live().max_waited_per_call)
        if len(request.keys) <= FEW:
            found = await task_keys.find(self._stores.reads, request.keys)
        else:
            async with self._stores.load.reads.turn(current_caller()):
                found = await task_keys.find(self._stores.reads, request.keys)
        return frontend_pb2.FindTaskResponse(
            results=[
                frontend_pb2.FindTaskResult(error=each.to_wire())
                if isinstance(each, Problem)
                else frontend_pb2.FindTaskResult(task_id=str(UUID(bytes=each)))
                for each in found
            ]
        )

    async def ListTasks(  # noqa: N802
        self, request: frontend_pb2.ListTasksRequest, _context: Context
    ) -> frontend_pb2.ListTasksResponse:
        size = page_size(request.page_size)
        scope = scope_of(Action.READ, getattr(request, "lambda"))
        wanted, before = replace(filters.of_list(request), scope=scope), page_token.read(request)
        async with self._stores.listing("ListTasks") as lists:
            rows, read_to = await task_queries.list_page(lists, wanted, before, limit=size + 1)
        payloads = restriction(Action.READ_PAYLOAD)
        page = await self._sliced(each(lambda row: task_to_wire(row, payloads), rows[:size]))
        last = UUID(page[-1].task_id).bytes if len(rows) > size else read_to
        token = page_token.write(request, last) if last is not None else ""
        return frontend_pb2.ListTasksResponse(tasks=page, next_page_token=token)

    async def CancelTask(  # noqa: N802
        self, request: frontend_pb2.CancelTaskRequest, _context: Context
    ) -> frontend_pb2.CancelTaskResponse:
        ids = await self._reachable(Action.CHANGE, request.task_ids)
        valid = [task_id for task_id in ids if isinstance(task_id, bytes)]
        async with failpoints.around("frontend.cancel"):
            cancelled = await store_tasks.cancel_tasks(self._stores.writes, valid, kill=request.kill)
        done = cancelled.statuses
        if cancelled.released:
            self._notifier.due_in(min(cancelled.released.values()), cancelled.released)
        known = await store_tasks.get_tasks(
            self._stores.writes, [task_id for task_id in valid if task_id not in done], most_bytes=None
        )
        results = []
        for task_id in ids:
            if isinstance(task_id, Problem):
                results.append(frontend_pb2.CancelTaskResult(error=task_id.to_wire()))
            elif task_id in done:
                results.append(frontend_pb2.CancelTaskResult(status=STATUS_TO_WIRE[done[task_id]]))
            elif task_id in known:
                status = Status(known[task_id]["status"])
                problem = Problem("task_id", f"it is {status} already", task_pb2.ERROR_CODE_ALREADY_FINAL)
                results.append(
                    frontend_pb2.CancelTaskResult(status=STATUS_TO_WIRE[status], error=problem.to_wire())
                )
            else:
                results.append(frontend_pb2.CancelTaskResult(error=NO_SUCH_TASK.to_wire()))
        return frontend_pb2.CancelTaskResponse(results=results)

    async def RedriveTask(  # noqa: N802
        self, request: frontend_pb2.RedriveTaskRequest, _context: Context
    ) -> frontend_pb2.RedriveTaskResponse:
        ids = await self._reachable(Action.REDRIVE, request.task_ids)
        answers = await store_dead_letters.redrive(
            self._stores.writes, [task_id for task_id in ids if isinstance(task_id, bytes)]
        )
        self._redriven(sum(each.verdict is Verdict.REDRIVEN for each in answers.values()), timedelta())
        return frontend_pb2.RedriveTaskResponse(results=dead_letters.answers_to_wire(ids, answers))

    async def RedriveTasks(  # noqa: N802
        self, request: frontend_pb2.RedriveTasksRequest, _context: Context
    ) -> frontend_pb2.RedriveTasksResponse:
        scope = scope_of(Action.REDRIVE, getattr(request, "lambda"))
        wanted = replace(filters.of_redrive(request), scope=scope)
        spread = dead_letters.spread(request, self._live().horizon)
        of_cause = dead_letters.of_cause(request)
        limit = checks.limit(request.limit)
        name = wanted.lambda_name
        if name and name not in await self._known.payload_limits({name}):
            raise InvalidRequestError("lambda", unknown_lambda(name))
        async with self._stores.listing("RedriveTasks") as lists:
            if request.dry_run:
                page = await store_dead_letters.count_where(lists, wanted, spread, of_cause)
                return dead_letters.page_to_wire(page, request.cause)
            page = await store_dead_letters.redrive_where(lists, wanted, spread, limit, of_cause)
        self._redriven(page.count, page.due_in)
        return dead_letters.page_to_wire(page, request.cause)

    def _redriven(self, count: int, due_in: timedelta | None) -> None:
        if count and due_in is not None:
            self._notifier.due_in(due_in, tasks=count)
            events.redriven.inc(count)

    async def WaitTask(  # noqa: N802
        self, request: frontend_pb2.WaitTaskRequest, _context: Context
    ) -> frontend_pb2.WaitTaskResponse:
        # a request that can never be served is not told to come again
        check_count("task_ids", len(request.task_ids), self._live().max_waited_per_call)
        self._ends.check(current_caller(), len(request.task_ids))  # before anything is read
        timeout = min(_DEFAULT_WAIT, self._live().max_wait)
        if request.HasField("timeout"):
            timeout = read_duration("timeout", request.timeout, self._live().max_wait)
        ids, bodies = self._ids(request.task_ids), _has_bodies(request.view)
        found = await self._readable(ids)
        waited_for = [task_id for task_id in found.ids if isinstance(task_id, bytes)]
        await self._ends.wait(waited_for, timeout, current_caller())
        results = await self._reader.read(found, bodies=bodies, history=False)
        final = {STATUS_TO_WIRE[status] for status in FINAL}
        all_final = all(not result.HasField("task") or result.task.status in final for result in results)
        return frontend_pb2.WaitTaskResponse(results=results, all_final=all_final)

    def close(self) -> None:
        """Answer the long polls and end the streams: the server is about to stop."""
        self._ends.close()
        self._streams.close()

    async def _readable(self, ids: Sequence[bytes | Problem]) -> Readable:
        if len(ids) <= FEW:
            return await readable(self._stores.reads, ids)
        async with self._stores.load.reads.turn(current_caller()):
            return await readable(self._stores.reads, ids)

    async def _reachable(self, action: Action, texts: Sequence[str]) -> Sequence[bytes | Problem]:
        return await reachable(self._stores.reads, action, self._ids(texts))

    def _ids(self, texts: Sequence[str]) -> Sequence[bytes | Problem]:
        check_count("task_ids", len(texts), self._live().max_waited_per_call)
        return check_each(parse_task_id, texts)

    async def UpdateTask(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.UpdateTaskRequest, _context: Context
    ) -> frontend_pb2.UpdateTaskResponse:
        check_count("updates", len(request.updates), _MOST_UPDATES)
        asked = task_updates.read(request.updates, self._live().horizon)
        ids = [each.task_id if isinstance(each, TaskChange) else each for each in asked]
        within = await reachable(self._stores.reads, Action.CHANGE, ids)
        changes = [
            each
            for each, task_id in zip(asked, within, strict=True)
            if isinstance(each, TaskChange) and task_id is not NO_SUCH_TASK
        ]
        done = (
            await store_changes.update_pending(self._stores.writes, changes)
            if changes
            else store_changes.NONE
        )
        self._tell_due(done.answers.values(), done.released)
        return frontend_pb2.UpdateTaskResponse(results=task_updates.results(asked, done.answers))

    async def CancelTasks(  # noqa: N802
        self, request: frontend_pb2.CancelTasksRequest, _context: Context
    ) -> frontend_pb2.CancelTasksResponse:
        scope = scope_of(Action.CHANGE, getattr(request, "lambda"))
        wanted = replace(filters.of_cancel(request), scope=scope)
        place, most = bulk_pages.place(request), limit(request.limit)
        async with self._stores.listing("CancelTasks") as lists:
            if request.dry_run:
                page = await store_bulk.count_where(lists, wanted, place)
            else:
                page = await store_bulk.cancel_where(lists, wanted, place, most)
                if page.released:
                    self._notifier.due_in(min(page.released.values()), page.released.keys())
        return bulk_pages.to_wire(page, request, frontend_pb2.CancelTasksResponse())

    async def PurgeTasks(  # noqa: N802
        self, request: frontend_pb2.PurgeTasksRequest, _context: Context
    ) -> frontend_pb2.PurgeTasksResponse:
        scope = scope_of(Action.REDRIVE, getattr(request, "lambda"))
        wanted = replace(filters.of_purge(request), scope=scope)
        place, most = bulk_pages.place(request), limit(request.limit)
        async with self._stores.listing("PurgeTasks") as lists:
            if request.dry_run:
                page = await store_bulk.count_where(lists, wanted, place)
            else:
                page = await store_bulk.purge_where(lists, wanted, place, most)
                if page.count:
                    events.purged.inc(page.count)
                    events.log.info("tasks purged", count=page.count)
        return bulk_pages.to_wire(page, request, frontend_pb2.PurgeTasksResponse())

    async def CompleteTasks(  # noqa: N802
        self, request: frontend_pb2.CompleteTasksRequest, context: Context
    ) -> frontend_pb2.CompleteTasksResponse:
        check_count("completions", len(request.completions), _MOST_COMPLETIONS)
        asked = completions.read(request.completions)
        valid = [each for each in asked if isinstance(each, Completion)]
        answers = await self._complete(valid, context.time_remaining(), current_caller()) if valid else []
        return frontend_pb2.CompleteTasksResponse(results=completions.results(asked, answers))

    async def _complete_group(self, asked: list[Completion]) -> list[Completed]:
        async with failpoints.around("frontend.complete"):
            done = await store_completions.complete(self._stores.writes, asked)
        if done.due:
            self._notifier.due_in(min(done.due.values()), done.due, len(done.due))
        events.completions_answered(asked, done.answers)
        return done.answers

    def _tell_due(self, answers: Collection[Changed], released: Collection[str]) -> None:
        """Who looks for due tasks may have to look sooner than it meant to."""
        changed = [each for each in answers if each.verdict is ChangeVerdict.CHANGED]
        if changed:
            due = [each for each in changed if each.status is not Status.WAITING]
            if due:
                ahead = min(each.due_in or timedelta() for each in due)
                self._notifier.due_in(ahead, {each.lambda_name for each in due}, len(due))
            events.updated.inc(len(changed))
        if released:
            self._notifier.due_in(timedelta(), released, len(released))


def _has_bodies(view: int) -> bool:
    if view not in task_pb2.TaskView.values():
        raise InvalidRequestError("view", f"{view} is not a view: use TASK_VIEW_FULL or TASK_VIEW_BASIC")
    return view != task_pb2.TASK_VIEW_BASIC


def _weight_of_results(asked: Sequence[Completion]) -> int:
    return len(asked) + sum(len(each.result or b"") for each in asked) // _WEIGHTY


def _weight(tasks: Sequence[NewTask]) -> int:
    bytes_of_all = sum(len(task.payload) for task in tasks)
    return len(tasks) + bytes_of_all // _WEIGHTY + sum(len(task.attachments) for task in tasks)
