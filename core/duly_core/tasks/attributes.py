"""Finds tasks by their attributes: the rows of `task_attribute`, of which only tasks with attributes have some."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import ENTITIES
from duly_core.tasks.attribute_rules import Attributes, text_of
from duly_core.tasks.store import select_text
from duly_core.tasks.task import NewTask
from duly_wire.ids import TaskId

MOST_READ = 2_000
"""Tasks with the rarest of the attributes that one page looks at."""

_TIME_BYTES = 6
"""With which an id begins: the milliseconds since 1970."""
_HAVE = "task_attribute.name = %(name_{n})s and task_attribute.value = %(value_{n})s"
_ENTRIES = """select task_attribute.task_id
    from task_attribute
    where (task_attribute.name, task_attribute.value, task_attribute.task_id) >= (%({name})s, %({value})s, %(lowest)s)
        and (task_attribute.name, task_attribute.value, task_attribute.task_id) {below} (%({name})s, %({value})s, %(before)s)
    order by task_attribute.name desc, task_attribute.value desc, task_attribute.task_id desc
    limit %(most)s"""
_OLDEST_ENTRIES = """select task_attribute.task_id
    from task_attribute
    where (task_attribute.name, task_attribute.value, task_attribute.task_id) > (%(name_0)s, %(value_0)s, %(after)s)
        and (task_attribute.name, task_attribute.value, task_attribute.task_id) <= (%(name_0)s, %(value_0)s, %(highest)s)
    order by task_attribute.name, task_attribute.value, task_attribute.task_id
    limit %(most)s"""
_LOWEST = UUID(int=0)
_LAST_OF_A_MILLISECOND = b"\x7f\xff\xbf" + b"\xff" * 7
"""What follows the time in the highest UUIDv7 of one."""
_HIGHEST = UUID(int=2**128 - 1)


class Found(NamedTuple):
    """Some of the tasks that have all attributes of a search."""

    task_ids: list[TaskId]
    """The newest first; of `find_after` the oldest."""
    read_to: TaskId | None
    """Beyond it there may be more; None: there are none."""


async def keep(connection: Connection, tasks: Sequence[NewTask], written: Collection[TaskId]) -> None:
    """Write the attributes of tasks that were written in this transaction.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    await keep_of(
        connection,
        {task.task_id: task.attributes for task in tasks if task.attributes and task.task_id in written},
    )


async def keep_of(connection: Connection, given: Mapping[TaskId, Attributes]) -> None:
    """Write the attributes of tasks, by id, that were written in this transaction.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = [(task_id, name, text_of(value)) for task_id, given_ in given.items() for name, value in given_]
    if not rows:
        return
    task_ids, names, values = zip(*sorted(rows), strict=True)
    await fetch(
        connection,
        ENTITIES["keep_attributes"],
        {"task_ids": uuids(task_ids), "names": texts(names), "attribute_values": texts(values)},
    )


async def find(store: Store, wanted: Sequence[tuple[str, str]], before: TaskId | None) -> Found:
    """Return tasks that have all of these attributes, from below `before` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if len(wanted) > 1:
        wanted = await _rarest_first(store, wanted)
    rows = await select_text(store, *find_query(wanted, before))
    read_to = None
    if len(rows) == MOST_READ:
        read_to = _after_the_millisecond_of(rows[-1]["task_id"].bytes)
        if rows[0]["task_id"].bytes < read_to:  # more than a page of one millisecond
            read_to = rows[-1]["task_id"].bytes
        else:
            rows = [row for row in rows if row["task_id"].bytes >= read_to]
    return Found([row["task_id"].bytes for row in rows if row["has_all"]], read_to)


async def find_after(store: Store, wanted: Sequence[tuple[str, str]], after: TaskId | None) -> Found:
    """Return tasks that have all of these attributes, the oldest first, from above `after` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if len(wanted) > 1:
        wanted = await _rarest_first(store, wanted)
    rows = await select_text(store, *find_after_query(wanted, after))
    read_to = None
    if len(rows) == MOST_READ:
        last = rows[-1]["task_id"].bytes
        read_to = _before_the_millisecond_of(last)
        if rows[0]["task_id"].bytes > read_to:  # more than a page of one millisecond
            read_to = last
        else:
            rows = [row for row in rows if row["task_id"].bytes <= read_to]
    return Found([row["task_id"].bytes for row in rows if row["has_all"]], read_to)


def _before_the_millisecond_of(task_id: TaskId) -> TaskId:
    """Return the last id of the millisecond before: see `_after_the_millisecond_of`."""
    milliseconds = max(int.from_bytes(task_id[:_TIME_BYTES]) - 1, 0)
    return milliseconds.to_bytes(_TIME_BYTES) + _LAST_OF_A_MILLISECOND


def _after_the_millisecond_of(task_id: TaskId) -> TaskId:
    """Return a bound that names a time and no task: the token of a page tells of no task that its caller may not see."""
    return (int.from_bytes(task_id[:_TIME_BYTES]) + 1).to_bytes(_TIME_BYTES) + bytes(
        len(task_id) - _TIME_BYTES
    )


def entries_query(name: str, value: str, before: TaskId | None) -> str:
    """Return the query for the newest tasks with an attribute, without its parameters: `most`, and those of `bounds`.

    `name` and `value` are names of parameters. Only the primary key has this order. With equal names and values, Postgres
    may walk all newer ids instead, and filter.
    """
    return _ENTRIES.format(name=name, value=value, below="<=" if before is None else "<")


def bounds(before: TaskId | None) -> dict[str, object]:
    """Return the parameters of `entries_query` about ids; None: of all ids."""
    return {"lowest": _LOWEST, "before": _HIGHEST if before is None else UUID(bytes=before)}


def find_query(wanted: Sequence[tuple[str, str]], before: TaskId | None) -> tuple[str, dict[str, object]]:
    """Return the query for tasks that have the first of these attributes, each with whether it has the others, and its parameters."""
    query = _with_others(wanted, entries_query("name_0", "value_0", before), "desc")
    return query, _parameters(wanted) | bounds(before) | {"most": MOST_READ}


def find_after_query(
    wanted: Sequence[tuple[str, str]], after: TaskId | None
) -> tuple[str, dict[str, object]]:
    """Return the same query for the oldest tasks above `after`, and its parameters."""
    edges: dict[str, object] = {"after": UUID(bytes=after) if after else _LOWEST, "highest": _HIGHEST}
    return _with_others(wanted, _OLDEST_ENTRIES, "asc"), _parameters(wanted) | edges | {"most": MOST_READ}


def _with_others(wanted: Sequence[tuple[str, str]], entries: str, order: str) -> str:
    others = [
        f"exists (select from task_attribute where {_HAVE.format(n=n)} and task_attribute.task_id = first.task_id)"
        for n in range(1, len(wanted))
    ]
    return f"""
select first.task_id, {" and ".join(others) or "true"} as has_all
from (
    {entries}
) as first
order by first.task_id {order}"""  # noqa: S608 (the names are our own)


async def _rarest_first(store: Store, wanted: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    counts = ", ".join(
        f"(select count(*) from ({entries_query(f'name_{n}', f'value_{n}', None)}) as some_) as count_{n}"  # noqa: S608 (the names are our own)
        for n in range(len(wanted))
    )
    parameters = _parameters(wanted) | bounds(None) | {"most": MOST_READ}
    (row,) = await select_text(store, f"select {counts}", parameters)
    return [wanted[n] for n in sorted(range(len(wanted)), key=lambda n: int(row[f"count_{n}"]))]


def _parameters(wanted: Sequence[tuple[str, str]]) -> dict[str, object]:
    names: dict[str, object] = {f"name_{n}": name for n, (name, _) in enumerate(wanted)}
    return names | {f"value_{n}": value for n, (_, value) in enumerate(wanted)}
