"""Write new tasks: entity and assoc in one statement, once, however often it is asked."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from itertools import repeat
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter
from typing import Any
from uuid import UUID

from psycopg.errors import UniqueViolation
from psycopg.rows import TupleRow, tuple_row

from duly_core.attachments.rules import NotStored, written_uses
from duly_core.attachments.store import key_of, lock_uses, write_uses
from duly_core.postgres.arrays import byteas, int2s, intervals, texts, timestamps, uuids
from duly_core.postgres.pool import Connection, Step, Store, fetch
from duly_core.postgres.statements import ENTITIES, READS, TRANSITIONS, Statement
from duly_core.postgres.task_fields import FIELDS, TaskField
from duly_core.tasks import attribute_rules, attributes
from duly_core.tasks.task import NewTask, ResourceNeed, Scheduled, Scheduling, Token
from duly_wire.ids import TaskId


async def schedule(store: Store, tasks: Sequence[NewTask], *, tell: bool = False) -> list[Scheduled]:
    """Write what is not there yet; answer for each task in order.

    Repeating a call is safe: a task that is there already under the same id or key is REPEATED if it says
    the same (lambda, payload, priority, collection, session, resources), and a CONFLICT if not.

    With `tell` the same commit tells Store Consumers of what is due now, which saves a round trip. Commits that
    notify pass one at a time on a whole server, their flushes included: it is for callers with little to write, and
    not for tasks of sessions.

    Raises:
        StoreUnavailableError: nothing is known of the outcome; ask again with the same tasks.
    """
    if not any(task.session is not None or task.attachments or task.attributes for task in tasks):
        return await _write(store, tasks, tell=tell)
    kinds = [
        (task.session is not None, bool(task.attachments or task.attributes) and task.session is None)
        for task in tasks
    ]
    if len(set(kinds)) == 1:
        return await _write(store, tasks, tell=tell)
    # plain tasks are not to wait for what others need; those of sessions are written in their order
    of_kind = {
        kind: iter(
            await _write(
                store,
                [task for task, each in zip(tasks, kinds, strict=True) if each == kind],
                tell=tell and not kind[0],
            )
        )
        for kind in sorted(set(kinds))
    }
    return [next(of_kind[kind]) for kind in kinds]


async def _write(
    store: Store, tasks: Sequence[NewTask], *, tell: bool = False, again: bool = True
) -> list[Scheduled]:
    """Write tasks that all have a session, or of which none has one.

    `again` allows for a key that was taken, and removed with its task before anybody could look.
    """
    if not tasks:
        return []
    in_sessions = tasks[0].session is not None
    is_plain_one = len(tasks) == 1 and is_plain(tasks[0])
    if is_plain_one and (written := await schedule_one(store.run_step, tasks[0], tell=tell)) is not None:
        return [written]
    ordered = list(range(len(tasks))) if in_sessions else _lock_order(tasks)
    columns = _columns([tasks[place] for place in ordered])
    statement = TRANSITIONS["schedule_in_sessions" if in_sessions else "schedule"]
    told = {} if in_sessions else {"tell": tell}
    missing: dict[int, NotStored] = {}
    rows: list[TupleRow] = []
    if any(columns["attachments"]) or any(columns["attributes"]):
        rows, missing = await _write_with_uses(store, statement, [tasks[place] for place in ordered], told)
    else:
        if not is_plain_one and not any(map(any, map(columns.__getitem__, _SELDOM))):
            rows = await _write_plain(store, columns, told)
        if not rows:
            rows = await store.run(statement, {**_parameters(columns, FIELDS), **told})
    created: dict[TaskId, int | None] = {row[0]: row[1] for row in rows}
    due_in = {
        ahead_us: None if ahead_us is None else timedelta(microseconds=ahead_us)
        for ahead_us in set(created.values())
    }
    if len(created) == len(tasks):  # as nearly always, and there is nothing to explain
        ids = [task.task_id for task in tasks]
        waits = map(due_in.__getitem__, map(created.__getitem__, ids))
        return [
            *map(Scheduled._make, zip(repeat(Scheduling.CREATED), ids, waits, repeat(None), strict=False))
        ]
    known = await store.run(READS["existing"], _parameters(columns, FIELDS))
    found = {row[0]: (row[1], row[2]) for row in known}
    found_or_missing = found.keys() | missing
    gone = [
        place
        for number, place in enumerate(ordered, start=1)
        if again
        and tasks[place].idempotency_key
        and number not in found_or_missing
        and tasks[place].task_id not in created
    ]
    second = await _write(store, [tasks[place] for place in gone], tell=tell, again=False)
    answers = dict(zip(gone, second, strict=True))
    for number, place in enumerate(ordered, start=1):
        task = tasks[place]
        if place in answers:
            continue
        # of tasks that share an id in this very batch, one that says what was written is the created one
        if task.task_id in created and found.get(number, (task.task_id, True)) == (task.task_id, True):
            ahead = due_in[created.pop(task.task_id)]
            answers[place] = Scheduled(Scheduling.CREATED, task.task_id, ahead)
        elif number in missing and number not in found:
            answers[place] = Scheduled(Scheduling.ATTACHMENT_MISSING, task.task_id, missing=missing[number])
        else:
            answers[place] = _explain(task, found.get(number))
    return [answers[place] for place in range(len(tasks))]


def is_plain(task: NewTask) -> bool:
    """Tell whether a task has none of the fields that few tasks have."""
    return not any(_seldom(task))


async def schedule_one(
    run: Callable[[Step[TupleRow]], Awaitable[list[TupleRow] | None]], task: NewTask, *, tell: bool = False
) -> Scheduled | None:
    """Write a task for which `is_plain` holds; None: nothing is written, and `schedule` says why.

    `run` runs the statement. It returns the rows, or None if it did not run.

    Raises:
        StoreUnavailableError: nothing is known of the outcome; ask `schedule` with the same task.
    """
    parameters = {field.name: getattr(task, field.name) for field in _PLAIN}
    parameters |= {"task_id": UUID(bytes=task.task_id), "tell": tell}
    try:
        rows = await run(Step(TRANSITIONS["schedule_one"], parameters, tuple_row))
    except UniqueViolation:  # a repeat, as after a lost answer
        return None
    return Scheduled(Scheduling.CREATED, rows[0][0], timedelta(microseconds=rows[0][1])) if rows else None


async def _write_plain(
    store: Store, columns: Mapping[str, Sequence[Any]], told: Mapping[str, Any]
) -> list[TupleRow]:
    """Write tasks of `_PLAIN` fields; return no rows, and write nothing, if one cannot be written as a new one."""
    names = {"names": texts(sorted(set(columns["lambda_name"])))}
    try:
        return await store.run(
            TRANSITIONS["schedule_plain"], {**_parameters(columns, _PLAIN), **names, **told}
        )
    except UniqueViolation:  # a repeat, as after a lost answer
        return []


async def _write_with_uses(
    store: Store, statement: Statement, tasks: Sequence[NewTask], told: Mapping[str, Any]
) -> tuple[list[TupleRow], dict[int, NotStored]]:
    """Write tasks with what they use, and what they are found by, without those that use what is not stored.

    Returns:
        The rows of the statement, and by the numbers of the tasks that were left out, from 1, what is not stored.
    """
    async with store.connection() as connection, connection.transaction():
        lacking = await missing_of(connection, tasks)
        missing = {
            number: lacking[task.task_id]
            for number, task in enumerate(tasks, start=1)
            if task.task_id in lacking
        }
        whole = [task for task in tasks if task.task_id not in lacking]
        if not whole:
            return [], missing
        rows = await fetch(connection, statement, {**task_parameters(whole), **told})
        await keep_inputs(connection, whole, {row[0] for row in rows})
    return rows, missing


async def missing_of(connection: Connection, tasks: Sequence[NewTask]) -> dict[TaskId, NotStored]:
    """Lock what new tasks use until the transaction ends; return by task what is not stored.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    using = [task for task in tasks if task.attachments]
    if not using:
        return {}
    lacking = await lock_uses(
        connection, ((task.lambda_name, use) for task in using for use in task.attachments)
    )
    found: dict[TaskId, NotStored] = {}
    for task in using:
        for use in task.attachments:
            missing = lacking.get(key_of(task.lambda_name, use))
            if missing is not None:
                found.setdefault(task.task_id, missing)
    return found


async def keep_inputs(connection: Connection, tasks: Sequence[NewTask], written: Collection[TaskId]) -> None:
    """Write what tasks use, and what they are found by, of those that were written in this transaction, after `missing_of`.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    await write_uses(
        connection,
        {
            task.task_id: (task.lambda_name, task.attachments)
            for task in tasks
            if task.attachments and task.task_id in written
        },
        by_run=False,
    )
    await attributes.keep(connection, tasks, written)


async def lock_child_sessions(
    connection: Connection, claims: Mapping[TaskId, Token], children: Sequence[tuple[TaskId, NewTask]]
) -> None:
    """Lock the sessions of claims that are about to succeed, and of their children, each with the id of its parent.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    task_ids = sorted(claims)
    keyed = [(parent, child.lambda_name, child.session.key) for parent, child in children if child.session]
    await fetch(
        connection,
        ENTITIES["lock_child_sessions"],
        {
            "task_ids": uuids(task_ids),
            "tokens": uuids([claims[task_id] for task_id in task_ids]),
            "parents": uuids([parent for parent, _, _ in keyed]),
            "lambdas": texts([name for _, name, _ in keyed]),
            "sessions": texts([key for _, _, key in keyed]),
        },
    )


async def write_children(connection: Connection, tasks: Sequence[NewTask]) -> dict[TaskId, timedelta | None]:
    """Write new tasks in the transaction of `connection`; answer how far ahead each that was written is due.

    None: it waits for its turn in its session. What they use, and their sessions, were locked there (`missing_of`,
    `lock_child_sessions`). Those that are left out cannot be: their lambda is not registered, or their id is taken.
    """
    rows: list[TupleRow] = []
    if plain := sorted((task for task in tasks if task.session is None), key=lambda task: task.task_id):
        rows += await fetch(connection, TRANSITIONS["schedule"], task_parameters(plain) | {"tell": False})
    if in_sessions := [task for task in tasks if task.session is not None]:
        rows += await fetch(connection, TRANSITIONS["schedule_in_sessions"], task_parameters(in_sessions))
    await keep_inputs(connection, tasks, {row[0] for row in rows})
    return {row[0]: None if row[1] is None else timedelta(microseconds=row[1]) for row in rows}


def task_parameters(tasks: Sequence[NewTask]) -> dict[str, Any]:
    """Return the parameters that say what new tasks are, and when they are due; an element for each task, in order."""
    return _parameters(_columns(tasks), FIELDS)


def _columns(tasks: Sequence[NewTask]) -> dict[str, Sequence[Any]]:
    """Return by field the values of tasks, in their order."""
    return dict(zip(NewTask._fields, zip(*tasks, strict=True), strict=True))


def _parameters(columns: Mapping[str, Sequence[Any]], fields: Sequence[TaskField]) -> dict[str, Any]:
    parameters = {}
    for field in fields:
        source, derive = _DERIVED.get(field.name, (field.name, None))
        values = columns[source]
        if derive is not None:
            values = _each(derive, values)
        parameters[field.array] = ARRAYS[field.type]([] if field.optional and not any(values) else values)
    return parameters


async def find_repeated(store: Store, tasks: Sequence[NewTask]) -> list[Scheduled | None]:
    """Return for each task, in order, what a repeat of it is answered; None: it was not written before.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not tasks:
        return []
    rows = await store.run(READS["existing"], task_parameters(tasks))
    found = {row[0]: (row[1], row[2]) for row in rows}
    return [
        _explain(task, found[number]) if number in found else None
        for number, task in enumerate(tasks, start=1)
    ]


def _each(write: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Write each value; nothing if all are empty, as those of most calls are."""
    return [write(value) for value in values] if any(values) else []


def written_needs(needs: Sequence[ResourceNeed]) -> str | None:
    """Return what a task needs as the store keeps it, as JSON; `json.dumps` of the same costs five times as much."""
    if not needs:
        return None
    written = [
        f'{{"name": {_quoted(need.name)}, "key": {_quoted(need.key)}, "weight": {need.weight}}}'
        for need in (sorted(needs) if len(needs) > 1 else needs)
    ]
    return f"[{', '.join(written)}]"


ARRAYS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "uuid": uuids,
    "text": texts,
    "int2": int2s,
    "bytea": byteas,
    "timestamptz": timestamps,
    "interval": intervals,
}
"""By type of a field, what writes its values."""

_DERIVED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "session_order": ("session", lambda session: session and session.order),
    "session_policy": ("session", lambda session: session and session.policy),
    "session": ("session", lambda session: session and session.key),
    "resources": ("resources", written_needs),
    "attachments": ("attachments", written_uses),
    "unique": ("unique", lambda unique: unique and unique.key),
    "attributes": ("attributes", attribute_rules.written),
}
"""Fields that are not as NewTask has them: of what they are made, and how."""

_PLAIN = tuple(field for field in FIELDS if field.plain)
_SELDOM = sorted({_DERIVED.get(field.name, (field.name,))[0] for field in FIELDS if not field.plain})
"""Fields of NewTask that `schedule_plain` and `schedule_one` do not write."""
_seldom = attrgetter(*_SELDOM)


def in_lock_order(tasks: Sequence[NewTask]) -> list[NewTask]:
    """Return tasks in the order in which all callers write those without a session."""
    return [tasks[place] for place in _lock_order(tasks)]


def _lock_order(tasks: Sequence[NewTask]) -> list[int]:
    """Return the places of tasks in one order for all callers, so that two batches with the same keys cannot deadlock."""
    keyed = any(task.idempotency_key for task in tasks)
    order = [_key_then_id(task) if keyed else task.task_id for task in tasks]
    return sorted(range(len(tasks)), key=order.__getitem__)


def _key_then_id(task: NewTask) -> tuple[str, str, TaskId]:
    key = task.idempotency_key or ""
    return task.lambda_name if key else "", key, task.task_id


def _explain(task: NewTask, found: tuple[TaskId, bool] | None) -> Scheduled:
    if found is None:
        return Scheduled(Scheduling.UNKNOWN_LAMBDA, task.task_id)
    holder, same = found
    return Scheduled(Scheduling.REPEATED if same else Scheduling.CONFLICT, holder)
