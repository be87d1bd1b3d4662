"""Who has which unique key: the rows of `unique_key`, and their locks."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from psycopg.rows import TupleRow

from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import Statement, load
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.unique_rules import Holder, Look
from duly_wire.ids import TaskId

KEYS = load("tasks/unique.sql")


class KeyOfTask(NamedTuple):
    """A task, and the key that it has or asks for."""

    task_id: TaskId
    lambda_name: str
    key: str
    idempotency_key: str | None = None


Run = Callable[[Statement, Mapping[str, Any]], Awaitable[list[TupleRow]]]


async def look(run: Run, asked: Sequence[KeyOfTask]) -> list[Look]:
    """Look at what there is of tasks, and at who has their keys, in order.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    keys = [each.idempotency_key for each in asked]
    rows = await run(KEYS["look_at_keys"], _columns(asked) | {"keys": texts(keys if any(keys) else [])})
    return [
        Look(
            is_there,
            merged_into,
            None
            if holder is None
            else Holder(holder, taken_at, held_for, Status(status) if status else None, parked_on, is_due),
        )
        for _, is_there, merged_into, holder, taken_at, held_for, status, parked_on, is_due in sorted(rows)
    ]


async def lock_and_look(connection: Connection, asked: Sequence[KeyOfTask]) -> list[Look]:
    """Lock the keys until the transaction ends, and look. It is the first that the transaction locks.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    one_of_each = {(each.lambda_name, each.key): each for each in asked}
    await _write(connection, "lock_keys", _columns(one_of_each.values()))
    return await look(partial(fetch, connection), asked)


async def take(connection: Connection, keys: Collection[KeyOfTask]) -> None:
    """Give locked keys to these tasks.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if keys:
        await _write(connection, "take_keys", _columns(keys))


async def let_go(connection: Connection, keys: Collection[KeyOfTask]) -> None:
    """Remove the rows that were made to be locked, of tasks that were not written.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if keys:
        await _write(connection, "let_keys_go", _columns(keys))


async def note_merged(connection: Connection, merged: Iterable[tuple[TaskId, TaskId]]) -> None:
    """Note of tasks that were not written which others got their payload.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    noted = sorted(merged)
    if noted:
        parameters = {
            "task_ids": uuids([task_id for task_id, _ in noted]),
            "holders": uuids([holder for _, holder in noted]),
        }
        await _write(connection, "note_merged", parameters)


async def of_dead_letters(store: Store, task_ids: Sequence[TaskId]) -> list[KeyOfTask]:
    """Return the keys of those of these dead letters that have one.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not task_ids:
        return []
    return [KeyOfTask(*row) for row in await store.run(KEYS["dead_with_keys"], {"task_ids": uuids(task_ids)})]


def _columns(asked: Iterable[KeyOfTask]) -> dict[str, Any]:
    asked = list(asked)
    return {
        "lambdas": texts([each.lambda_name for each in asked]),
        "unique_keys": texts([each.key for each in asked]),
        "task_ids": uuids([each.task_id for each in asked]),
    }


async def _write(connection: Connection, name: str, parameters: Mapping[str, Any]) -> None:
    await fetch(connection, KEYS[name], parameters)
