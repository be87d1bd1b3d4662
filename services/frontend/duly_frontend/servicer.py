"""FrontendService: checks what clients ask for, and hands it to the store in groups."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from duly.v1 import frontend_pb2, frontend_pb2_grpc, task_pb2
from duly_core.coalesce import Coalescer
from duly_core.errors import InvalidRequestError
from duly_core.lifecycle import FINAL, Status
from duly_core.routing import Priority
from duly_core.rpc.convert import from_duration
from duly_core.rpc.stubs import Context
from duly_core.store import schedule as store_schedule
from duly_core.store import tasks as store_tasks
from duly_core.store.hints import Hinter
from duly_core.store.pool import Store
from duly_core.task import NewTask, Scheduled, Scheduling
from duly_frontend import events, page_token
from duly_frontend.convert import STATUS_FROM_WIRE, STATUS_TO_WIRE, task_to_wire
from duly_frontend.known_lambdas import KnownLambdas
from duly_frontend.settings import FrontendSettings
from duly_frontend.validation import Problem, new_task, parse_task_id
from duly_frontend.waiting import EndWatch

_DEFAULT_WAIT = timedelta(seconds=20)
_DEFAULT_PAGE = 100
_WEIGHTY = 16 * 1024
"""Bytes of payload that count for another task in a group: a thousand of 1 MiB would be too much for one statement."""
_LARGEST_PAGE = 1000


class FrontendServicer(frontend_pb2_grpc.FrontendServiceServicer):
    """Each RPC takes many and answers each for itself; an item with an error has changed nothing."""

    def __init__(self, store: Store, settings: FrontendSettings, known: KnownLambdas, hinter: Hinter) -> None:
        self._store = store
        self._settings = settings
        self._known = known
        self._hinter = hinter
        self._ends = EndWatch(store)
        self._write = Coalescer(
            self._write_group,
            max_items=settings.max_group,
            weigh=lambda task: 1 + len(task.payload) // _WEIGHTY,
            concurrency=settings.group_concurrency,
            observe=events.group_written,
        )

    async def Schedule(  # noqa: N802 (the wire's name)
        self, request: frontend_pb2.ScheduleRequest, _context: Context
    ) -> frontend_pb2.ScheduleResponse:
        self._check_count("tasks", len(request.tasks), self._settings.max_tasks_per_call)
        names = {getattr(task, "lambda") for task in request.tasks}
        limits = await self._known.payload_limits(names)
        valid: list[NewTask] = []
        places: list[int] = []
        results = [frontend_pb2.ScheduleResult() for _ in request.tasks]
        for place, asked in enumerate(request.tasks):
            try:
                valid.append(new_task(asked, limits, self._settings.horizon))
                places.append(place)
            except Problem as problem:
                results[place] = frontend_pb2.ScheduleResult(error=_item_error(problem))
        for place, answer in zip(places, await self._write(valid), strict=True):
            results[place] = _schedule_result(answer)
        verdicts = Counter("refused" if result.HasField("error") else "taken" for result in results)
        for verdict, count in verdicts.items():
            events.scheduled(verdict, count)
        return frontend_pb2.ScheduleResponse(results=results)

    async def _write_group(self, tasks: list[NewTask]) -> list[Scheduled]:
        answers = await store_schedule.schedule(self._store, tasks)
        ahead = min((answer.due_in for answer in answers if answer.due_in is not None), default=None)
        if ahead is not None:
            self._hinter.due_in(ahead)
        return answers

    async def GetTask(  # noqa: N802
        self, request: frontend_pb2.GetTaskRequest, _context: Context
    ) -> frontend_pb2.GetTaskResponse:
        return frontend_pb2.GetTaskResponse(results=await self._get(request.task_ids))

    async def ListTasks(  # noqa: N802
        self, request: frontend_pb2.ListTasksRequest, _context: Context
    ) -> frontend_pb2.ListTasksResponse:
        size = request.page_size or _DEFAULT_PAGE
        if not 1 <= size <= _LARGEST_PAGE:
            raise InvalidRequestError("page_size", f"must be from 1 to {_LARGEST_PAGE}")
        rows = await store_tasks.list_tasks(
            self._store, _filter(request), before=page_token.read(request), limit=size + 1
        )
        page = [task_to_wire(row) for row in rows[:size]]
        token = page_token.write(request, UUID(page[-1].task_id).bytes) if len(rows) > size else ""
        return frontend_pb2.ListTasksResponse(tasks=page, next_page_token=token)

    async def CancelTask(  # noqa: N802
        self, request: frontend_pb2.CancelTaskRequest, _context: Context
    ) -> frontend_pb2.CancelTaskResponse:
        ids = self._ids(request.task_ids)
        valid = [task_id for task_id in ids if isinstance(task_id, bytes)]
        done = await store_tasks.cancel_tasks(self._store, valid)
        known = await store_tasks.get_tasks(
            self._store, [task_id for task_id in valid if task_id not in done], bodies=False
        )
        results = []
        for task_id in ids:
            if isinstance(task_id, Problem):
                results.append(frontend_pb2.CancelTaskResult(error=_item_error(task_id)))
            elif task_id in done:
                results.append(frontend_pb2.CancelTaskResult(status=STATUS_TO_WIRE[done[task_id]]))
            elif task_id in known:
                status = Status(known[task_id]["status"])
                problem = Problem("task_id", f"it is {status} already", task_pb2.ERROR_CODE_ALREADY_FINAL)
                results.append(
                    frontend_pb2.CancelTaskResult(status=STATUS_TO_WIRE[status], error=_item_error(problem))
                )
            else:
                results.append(frontend_pb2.CancelTaskResult(error=_not_found()))
        return frontend_pb2.CancelTaskResponse(results=results)

    async def WaitTask(  # noqa: N802
        self, request: frontend_pb2.WaitTaskRequest, _context: Context
    ) -> frontend_pb2.WaitTaskResponse:
        timeout = _DEFAULT_WAIT
        if request.HasField("timeout"):
            try:
                timeout = from_duration(request.timeout)
            except ValueError as error:
                raise InvalidRequestError("timeout", str(error)) from error
        if not timedelta() <= timeout <= self._settings.longest_wait:
            longest = self._settings.longest_wait.total_seconds()
            raise InvalidRequestError(
                "timeout", f"must be from 0 to {longest:g} s: ask again for longer waits"
            )
        ids = self._ids(request.task_ids)
        await self._ends.wait([task_id for task_id in ids if isinstance(task_id, bytes)], timeout)
        results = await self._get(request.task_ids)
        final = {STATUS_TO_WIRE[status] for status in FINAL}
        all_final = all(not result.HasField("task") or result.task.status in final for result in results)
        return frontend_pb2.WaitTaskResponse(results=results, all_final=all_final)

    async def _get(self, texts: Sequence[str]) -> list[frontend_pb2.GetTaskResult]:
        ids = self._ids(texts)
        rows = await store_tasks.get_tasks(
            self._store, [task_id for task_id in ids if isinstance(task_id, bytes)]
        )
        results = []
        for task_id in ids:
            if isinstance(task_id, Problem):
                results.append(frontend_pb2.GetTaskResult(error=_item_error(task_id)))
            elif task_id in rows:
                results.append(frontend_pb2.GetTaskResult(task=task_to_wire(rows[task_id])))
            else:
                results.append(frontend_pb2.GetTaskResult(error=_not_found()))
        return results

    def _ids(self, texts: Sequence[str]) -> list[bytes | Problem]:
        self._check_count("task_ids", len(texts), self._settings.max_waited_per_call)
        ids: list[bytes | Problem] = []
        for text in texts:
            try:
                ids.append(parse_task_id(text))
            except Problem as problem:
                ids.append(problem)
        return ids

    def _check_count(self, field: str, count: int, limit: int) -> None:
        if not 1 <= count <= limit:
            raise InvalidRequestError(field, f"there must be 1 to {limit:,} in one call, not {count:,}")


def _filter(request: frontend_pb2.ListTasksRequest) -> store_tasks.TaskFilter:
    try:
        statuses = frozenset(STATUS_FROM_WIRE[number] for number in request.statuses)
    except KeyError as error:
        raise InvalidRequestError("statuses", f"{error.args[0]} is no task status") from error
    try:
        priorities = frozenset(Priority(number) for number in request.priorities)
    except ValueError as error:
        raise InvalidRequestError("priorities", str(error)) from error
    for field in ("lambda", "collection"):
        if "\x00" in getattr(request, field):
            raise InvalidRequestError(field, "must not contain NUL")
    return store_tasks.TaskFilter(
        lambda_name=getattr(request, "lambda"),
        collection=request.collection,
        statuses=statuses,
        priorities=priorities,
    )


def _item_error(problem: Problem) -> task_pb2.ItemError:
    return task_pb2.ItemError(code=problem.code, field=problem.field, message=problem.message)


def _not_found() -> task_pb2.ItemError:
    return _item_error(Problem("task_id", "there is no such task", task_pb2.ERROR_CODE_NOT_FOUND))


_REFUSALS = {
    Scheduling.UNKNOWN_LAMBDA: Problem(
        "lambda",
        "it was unregistered meanwhile: start a host that declares it",
        task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
    ),
    Scheduling.CONFLICT: Problem(
        "idempotency_key",
        "a task with this key or id exists and says something else (lambda, payload, priority or collection): "
        "use another key for another task",
        task_pb2.ERROR_CODE_KEY_CONFLICT,
    ),
}


def _schedule_result(answer: Scheduled) -> frontend_pb2.ScheduleResult:
    task_id = str(UUID(bytes=answer.task_id))
    if answer.verdict in _REFUSALS:
        holder = task_id if answer.verdict is Scheduling.CONFLICT else ""
        return frontend_pb2.ScheduleResult(task_id=holder, error=_item_error(_REFUSALS[answer.verdict]))
    return frontend_pb2.ScheduleResult(task_id=task_id, created=answer.verdict is Scheduling.CREATED)
