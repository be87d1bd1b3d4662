"""Asks the Frontend about tasks: get, list, wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TypeAlias, TypeVar
from uuid import UUID

import grpc

from duly.attachments.wholes import with_wholes
from duly.callbacks.codec import Codec
from duly.errors import DulyError, InvalidTaskError, RequestError, TaskNotFoundError, WaitTimeoutError
from duly.tasks import keys as task_keys
from duly.tasks.keys import TaskKey
from duly.tasks.new_task import ScheduledTask
from duly.tasks.task import Task
from duly.transport import away_items, error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT, Caller, seconds
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2, task_pb2

TaskRef: TypeAlias = str | UUID | ScheduledTask | Task | TaskKey
"""What names a task: its id as text or UUID, the receipt of `schedule`, a Task read before, or its lambda and idempotency key."""

Results = TypeVar("Results")
Item = TypeVar("Item")


_IDS_PER_CALL = 100

# How long the Frontend keeps one WaitTask open; and how much longer we give it to answer.
_LONGEST_POLL = timedelta(seconds=20)
# Of several tasks one may not exist; that is told by the first answer (of each hundred), which the others must not hold up.
_FIRST_POLL_OF_SEVERAL = timedelta(milliseconds=500)
_POLL_GRACE = timedelta(seconds=5)
# A Frontend that answers early (it shuts down) is not asked again at once.
_SHORTEST_POLL_S = 0.1


async def ids_of(caller: Caller, tasks: Iterable[TaskRef]) -> list[str | DulyError]:
    """Return the ids of tasks in text form, in order; for a key that no task has, the error."""
    refs = list(tasks)
    keys = [each for each in refs if isinstance(each, TaskKey)]
    found = await task_keys.find(caller, keys) if keys else {}
    return [
        found[each] if isinstance(each, TaskKey) else each.task_id if isinstance(each, Task) else str(each)
        for each in refs
    ]


async def found_ids(caller: Caller, tasks: Iterable[TaskRef]) -> list[str]:
    """Return the ids of tasks in text form, in order. Raises TaskNotFoundError for a key that no task has."""
    ids: list[str] = []
    for each in await ids_of(caller, tasks):
        if isinstance(each, DulyError):
            raise each
        ids.append(each)
    return ids


async def of_each(
    caller: Caller,
    tasks: Iterable[TaskRef],
    act: Callable[[Sequence[str]], Awaitable[Sequence[Results | DulyError]]],
) -> list[Results | DulyError]:
    """Return what `act` answers for each of these tasks, in order; for a key that no task has, the error."""
    ids = await ids_of(caller, tasks)
    known = [each for each in ids if isinstance(each, str)]
    answers = iter(await act(known) if known else ())
    return [each if isinstance(each, DulyError) else next(answers) for each in ids]


def in_chunks(ids: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield ids, or what else there is one of for each task, as many at a time as one call takes."""
    for start in range(0, len(ids), _IDS_PER_CALL):
        yield ids[start : start + _IDS_PER_CALL]


async def get_tasks(caller: Caller, ids: Sequence[str]) -> list[Task | None]:
    """Return the tasks in the order of their ids, None for an unknown one."""

    async def ask_once(some: Sequence[str], left_s: float) -> list[frontend_pb2.GetTaskResult]:
        request = frontend_pb2.GetTaskRequest(task_ids=some)
        answer = await caller.call(caller.frontend.GetTask, request, timedelta(seconds=left_s))
        return list(answer.results)

    async def ask(some: Sequence[str]) -> list[frontend_pb2.GetTaskResult]:
        results = await ask_once(some, seconds(DEFAULT_TIMEOUT))
        return list(await away_items.sent_again(results, ask_once, some, seconds(DEFAULT_TIMEOUT)))

    tasks: dict[str, Task | None] = {}
    for chunk in in_chunks(list(dict.fromkeys(ids))):
        for task_id, result in zip(chunk, await _halving(ask, chunk), strict=True):
            try:
                tasks[task_id] = _task(task_id, result, caller.codec)
            except TaskNotFoundError:
                tasks[task_id] = None
    return await with_wholes(caller, [tasks[task_id] for task_id in ids], payloads=True)


async def list_pages(caller: Caller, request: frontend_pb2.ListTasksRequest) -> AsyncIterator[list[Task]]:
    """Yield the pages of a listing, newest tasks first."""
    async for page in caller.pages(caller.frontend.ListTasks, request):
        yield [Task.from_proto(task, caller.codec) for task in page.tasks]


async def wait_tasks(caller: Caller, ids: Sequence[str], timeout: timedelta | None) -> list[Task]:
    """Return the tasks, in order, once all are final; WaitTimeoutError if `timeout` passes before."""
    clock = asyncio.get_running_loop().time
    patience_s = None if timeout is None else seconds(timeout)
    deadline = None if patience_s is None else clock() + patience_s
    known: dict[str, Task] = {}

    async def read_full(some: Sequence[str]) -> list[Task]:
        return await _poll(caller, some, 0, _LONGEST_POLL, task_pb2.TASK_VIEW_FULL)

    # One chunk after the other: the last to end decides, whichever it is in.
    for chunk in in_chunks(list(dict.fromkeys(ids))):
        pending = chunk
        is_several = len(chunk) > 1
        longest = _FIRST_POLL_OF_SEVERAL if is_several else _LONGEST_POLL
        # several payloads may be too large for one answer, which is not known before the wait is over
        view = task_pb2.TASK_VIEW_BASIC if is_several else task_pb2.TASK_VIEW_FULL
        while pending:
            asked_at = clock()
            left = None if deadline is None else max(deadline - asked_at, 0)
            # by the text that was asked for: an id may be written in other ways than ours
            known.update(zip(pending, await _poll(caller, pending, left, longest, view), strict=True))
            longest = _LONGEST_POLL
            pending = [task_id for task_id in pending if not known[task_id].status.is_final]
            if not pending:
                break
            if deadline is not None and clock() >= deadline:
                if is_several:
                    known.update(zip(chunk, await read_full(chunk), strict=True))
                raise WaitTimeoutError(
                    f"not final within {patience_s:g} s: {pending[0]} ({known[pending[0]].status.name})"
                    + (f" and {len(pending) - 1} more" if len(pending) > 1 else ""),
                    list(known.values()),
                )
            await asyncio.sleep(max(0, asked_at + _SHORTEST_POLL_S - clock()))
        if is_several:
            known.update(zip(chunk, await read_full(chunk), strict=True))
    return await with_wholes(caller, [known[task_id] for task_id in ids], payloads=False)


async def _poll(
    caller: Caller,
    ids: Sequence[str],
    left_s: float | None,
    longest: timedelta,
    view: task_pb2.TaskView.ValueType,
) -> list[Task]:
    """Ask once, for at most `left_s` seconds and `longest`; return how the tasks stand, in order."""
    hold = longest if left_s is None else min(longest, timedelta(seconds=left_s))
    one_try = hold + _POLL_GRACE
    # For as long as the caller waits anyway; one who waits for ever survives a Frontend's restart.
    patience = (
        2 * (_LONGEST_POLL + _POLL_GRACE) if left_s is None else timedelta(seconds=left_s) + _POLL_GRACE
    )

    async def ask_once(some: Sequence[str], patience_s: float) -> list[frontend_pb2.GetTaskResult]:
        request = frontend_pb2.WaitTaskRequest(task_ids=some, timeout=to_duration(hold), view=view)
        response = await caller.call(
            caller.frontend.WaitTask, request, timedelta(seconds=patience_s), one_try=one_try
        )
        return list(response.results)

    async def ask(some: Sequence[str]) -> list[frontend_pb2.GetTaskResult]:
        ends_at = asyncio.get_running_loop().time() + seconds(patience)
        results = await ask_once(some, seconds(patience))
        left = ends_at - asyncio.get_running_loop().time()
        return list(await away_items.sent_again(results, ask_once, some, left))

    results = await _halving(ask, ids)
    return [_task(task_id, result, caller.codec) for task_id, result in zip(ids, results, strict=True)]


async def _halving(
    ask: Callable[[Sequence[str]], Awaitable[list[Results]]], ids: Sequence[str]
) -> list[Results]:
    """Ask about all the ids, or about each half if the answer is larger than a message may be."""
    try:
        return await ask(ids)
    except RequestError as error:
        too_large = isinstance(error.__context__, grpc.aio.AioRpcError) and (
            error.__context__.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        )
        if not too_large or len(ids) == 1:
            raise
    middle = len(ids) // 2
    return await _halving(ask, ids[:middle]) + await _halving(ask, ids[middle:])


def _task(task_id: str, result: frontend_pb2.GetTaskResult, codec: Codec | None) -> Task:
    if result.HasField("error"):
        raise _named(task_id, error_mapping.from_item(result.error), result.error.message)
    return Task.from_proto(result.task, codec)


def _named(task_id: str, error: DulyError, message: str) -> DulyError:
    """Return the error with the id in it: one of many that were asked for."""
    if isinstance(error, TaskNotFoundError):
        return no_task(task_id)
    if isinstance(error, InvalidTaskError):
        return InvalidTaskError(f"{task_id!r}: {message}", error.field)
    return error


def no_task(task_id: str) -> TaskNotFoundError:
    """Return the error for an id that no task has."""
    return TaskNotFoundError(
        f"there is no task {task_id}: never scheduled, or removed some days after its end"
    )
