"""Write tasks with unique keys: whether a key is taken is judged here, and nowhere else."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from psycopg.rows import TupleRow

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.schedule import find_repeated, in_lock_order, keep_inputs, missing_of, task_parameters
from duly_core.tasks.task import NewTask, Scheduled, Scheduling, TaskChange
from duly_core.tasks.unique_keys import KeyOfTask, Run, let_go, lock_and_look, look, note_merged, take
from duly_core.tasks.unique_rules import Holder, Look, change, created, plan
from duly_core.tasks.updates import change_columns
from duly_wire.ids import TaskId

_TRIES = 5
"""Rounds in a row that answer nothing, because each holder moved between the look and the change."""

Placed = Mapping[int, NewTask]
"""Tasks by their places in the request."""


class Written(NamedTuple):
    """What became of tasks with unique keys."""

    answers: list[Scheduled]
    """In the order of the tasks."""
    released: frozenset[str]
    """The lambdas of tasks that were parked on units of the changed ones, and are due."""


async def schedule_unique(store: Store, tasks: Sequence[NewTask]) -> Written:
    """Write tasks that all have a unique key, as if one came after the other; answer for each in order.

    A repeat is answered as the first request was, if that wrote anything.

    Raises:
        StoreUnavailableError: nothing is known of the outcome, or the holders of keys moved at each try; ask again with the same tasks.
    """
    answers: dict[int, Scheduled] = {}
    released: set[str] = set()
    tries = 0
    while left := {place: task for place, task in enumerate(tasks) if place not in answers}:
        if tries == _TRIES:
            raise StoreUnavailableError("the tasks that have the unique keys moved at each try")
        before = len(answers)
        looks = await _look(store.run, left)
        planned = plan([(place, task, looks[place]) for place, task in left.items()])
        answers |= planned.answers
        there = [left[place] for place in planned.there]
        for place, known in zip(planned.there, await find_repeated(store, there), strict=True):
            if known is not None:  # else it was removed just now
                answers[place] = known
        for in_sessions in (False, True):
            create = {
                place: left[place]
                for place in planned.create
                if (left[place].session is not None) is in_sessions
            }
            answers |= await _create(store, create, in_sessions=in_sessions)
        for in_line in (False, True):
            replace = {
                place: left[place] for place, holder in planned.replace if _waits_in_line(holder) is in_line
            }
            done, lambdas = await _replace(store, replace, in_line=in_line)
            answers |= done
            released |= lambdas
        tries = 0 if len(answers) > before else tries + 1
        await asyncio.sleep(0)
    return Written([answers[place] for place in range(len(tasks))], frozenset(released))


async def _create(store: Store, tasks: Placed, *, in_sessions: bool) -> dict[int, Scheduled]:
    """Write tasks whose keys nobody has, and answer; those whose key somebody took meanwhile are left out."""
    if not tasks:
        return {}
    answers: dict[int, Scheduled] = {}
    async with store.connection() as connection, connection.transaction():
        looks = await _lock_and_look(connection, tasks)
        planned = plan([(place, task, looks[place]) for place, task in tasks.items()])
        free = {place: created(tasks[place]) for place in planned.create}
        lacking = await missing_of(connection, list(free.values()))
        for place, task in list(free.items()):
            if (missing := lacking.get(task.task_id)) is not None:
                answers[place] = Scheduled(Scheduling.ATTACHMENT_MISSING, task.task_id, missing=missing)
                del free[place]
        rows: list[TupleRow] = []
        if free:
            statement = TRANSITIONS["schedule_in_sessions" if in_sessions else "schedule"]
            told = {} if in_sessions else {"tell": False}
            ordered = list(free.values()) if in_sessions else in_lock_order(list(free.values()))
            rows = await fetch(connection, statement, {**task_parameters(ordered), **told})
        due_in = {row[0]: row[1] for row in rows}
        await keep_inputs(connection, list(free.values()), due_in.keys())
        await take(connection, _keys(task for task in free.values() if task.task_id in due_in))
        await let_go(connection, _keys(_unwritten(tasks, looks, due_in.keys())))
    unexplained = []
    for place, task in free.items():
        if task.task_id not in due_in:
            unexplained.append(place)
            continue
        ahead = due_in[task.task_id]
        answers[place] = Scheduled(
            Scheduling.CREATED, task.task_id, None if ahead is None else timedelta(microseconds=ahead)
        )
    known = await find_repeated(store, [tasks[place] for place in unexplained])
    for place, repeated in zip(unexplained, known, strict=True):
        if repeated is not None:
            answers[place] = repeated
        elif tasks[place].idempotency_key is None:  # else it was removed with its task just now
            answers[place] = Scheduled(Scheduling.UNKNOWN_LAMBDA, tasks[place].task_id)
    return answers


async def _replace(store: Store, tasks: Placed, *, in_line: bool) -> tuple[dict[int, Scheduled], set[str]]:
    """Give the payloads of tasks to those that have their keys; answer, and say whose parked tasks are due.

    Tasks whose holders moved meanwhile are left out. `in_line`: the holders wait in sessions or graphs.
    """
    if not tasks:
        return {}, set()
    async with store.connection() as connection, connection.transaction():
        looks = await _lock_and_look(connection, tasks)
        planned = plan([(place, task, looks[place]) for place, task in tasks.items()])
        asked = [(place, holder) for place, holder in planned.replace if _waits_in_line(holder) is in_line]
        asked, by = _of_one_principal(tasks, asked)
        # as if one came after the other: the last one is left
        changes = {holder.task_id: change(tasks[place], holder) for place, holder in asked}
        rows = await _change(connection, changes, asked, by, in_line=in_line) if changes else []
        answers = dict(planned.answers)
        done = {row[0]: row for row in rows if row[0] is not None}
        merged = []
        for place, holder in asked:
            row = done.get(holder.task_id)
            if row is None:
                continue
            if row[5] is not None:
                merged.append((tasks[place].task_id, holder.task_id))
                answers[place] = Scheduled(Scheduling.REPLACED, holder.task_id, None if in_line else row[6])
            elif row[4] or len(changes[holder.task_id].payload or b"") > row[3]:
                answers[place] = Scheduled(Scheduling.NOT_REPLACED, holder.task_id)
        await note_merged(connection, merged)
        await let_go(connection, _keys(_unwritten(tasks, looks)))
    return answers, {row[1] for row in rows if row[0] is None}


def _of_one_principal(
    tasks: Placed, asked: Sequence[tuple[int, Holder]]
) -> tuple[list[tuple[int, Holder]], str | None]:
    """Return the first changes of each holder that have the principal of the very first, and that: the history names it."""
    by = tasks[asked[0][0]].scheduled_by if asked else None
    first = []
    later = set()
    for place, holder in asked:
        if tasks[place].scheduled_by != by:
            later.add(holder.task_id)
        elif holder.task_id not in later:
            first.append((place, holder))
    return first, by


async def _change(
    connection: Connection,
    changes: Mapping[TaskId, TaskChange],
    asked: Iterable[tuple[int, Holder]],
    by: str | None,
    *,
    in_line: bool,
) -> list[TupleRow]:
    """Change pending tasks; return the rows of `update_pending` or `update_waiting`."""
    if in_line:
        found = await fetch(connection, LOCKS["lock_waiting"], {"task_ids": uuids(sorted(changes))})
        waiting = sorted(row[0] for row in found)
        if not waiting:
            return []
        parameters = change_columns([changes[task_id] for task_id in waiting]) | {"by": by}
        return await fetch(connection, TRANSITIONS["update_waiting"], parameters)
    parked = sorted({holder.task_id for _, holder in asked if holder.parked_on is not None})
    if parked:
        await fetch(connection, TRANSITIONS["unpark_replaced"], {"task_ids": uuids(parked)})
    parameters = change_columns([changes[each] for each in sorted(changes)]) | {"by": by}
    return await fetch(connection, TRANSITIONS["update_pending"], parameters)


def _waits_in_line(holder: Holder) -> bool:
    return holder.status is Status.WAITING and holder.parked_on is None


def _unwritten(
    tasks: Placed, looks: Mapping[int, Look], written: Collection[TaskId] = ()
) -> Iterator[NewTask]:
    """Yield the tasks that may have got rows to be locked, and were not written.

    Not those that were there at the look: another try of the same request has written them, and given them their keys.
    """
    for place, task in tasks.items():
        if looks[place].holder is None and not looks[place].is_there and task.task_id not in written:
            yield task


async def _look(run: Run, tasks: Placed) -> dict[int, Look]:
    return dict(zip(tasks, await look(run, _keys(tasks.values())), strict=True))


async def _lock_and_look(connection: Connection, tasks: Placed) -> dict[int, Look]:
    return dict(zip(tasks, await lock_and_look(connection, _keys(tasks.values())), strict=True))


def _keys(tasks: Iterable[NewTask]) -> list[KeyOfTask]:
    return [
        KeyOfTask(task.task_id, task.lambda_name, task.unique.key, task.idempotency_key)
        for task in tasks
        if task.unique is not None
    ]
