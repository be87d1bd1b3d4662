"""Judge the unique keys of tasks that callbacks scheduled, in the transaction that ends these callbacks' attempts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from duly_core.postgres.pool import Connection, fetch
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import NewTask, Result, Token
from duly_core.tasks.unique_keys import KeyOfTask, let_go, lock_and_look, look, take
from duly_core.tasks.unique_rules import Holder, Verdict, decide
from duly_wire.ids import TaskId


@dataclass(slots=True)
class Judged:
    """What becomes of children."""

    written: list[NewTask] = field(default_factory=list)
    """Those without a key, and those whose key nobody has."""
    refused: dict[Token, str] = field(default_factory=dict)
    """Why a child of this attempt cannot be written."""


async def lock_keys(connection: Connection, parents: Sequence[Result]) -> list[KeyOfTask]:
    """Lock the keys of children until the transaction ends, before it locks anything else.

    Returns:
        Those whose rows are to be removed if their tasks are not written. The others' tasks are there: a report that came before
        this one has written them.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    keys = list(_keys(child for each in parents for child in each.children))
    if not keys:
        return []
    looks = await lock_and_look(connection, keys)
    return [key for key, seen in zip(keys, looks, strict=True) if not seen.is_there]


async def judge(connection: Connection, parents: Sequence[Result]) -> Judged:
    """Judge the children of attempts that have ended in this transaction, as if one child came after the other.

    So an attempt has no key any more that its own task held while it was live.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    keys = list(_keys(child for each in parents for child in each.children))
    looks = dict(
        zip(
            (key.task_id for key in keys),
            await look(partial(fetch, connection), keys) if keys else [],
            strict=True,
        )
    )
    judged = Judged()
    taken: dict[tuple[str, str], Holder] = {}
    for each in parents:
        for child in each.children:
            if child.unique is None:
                judged.written.append(child)
                continue
            key = child.lambda_name, child.unique.key
            seen = looks[child.task_id]
            holder = taken.get(key, seen.holder)
            verdict = decide(child.unique, holder)
            if verdict is Verdict.CREATE:
                judged.written.append(child)
                taken[key] = _new_holder(child)
            elif verdict is not Verdict.IGNORE and holder is not None:
                judged.refused[each.token] = (
                    f"ctx.schedule: unique.key: task {UUID(bytes=holder.task_id)} has the key: nothing was scheduled"
                )
    return judged


async def settle(
    connection: Connection, judged: Judged, written: Collection[TaskId], locked: Iterable[KeyOfTask]
) -> None:
    """Give keys to the children that were written, and remove the rows that others of `lock_keys` have left.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    await take(connection, list(_keys(child for child in judged.written if child.task_id in written)))
    await let_go(connection, [key for key in locked if key.task_id not in written])


def _new_holder(child: NewTask) -> Holder:
    return Holder(child.task_id, datetime.now(UTC), timedelta(), Status.NEW)


def _keys(children: Iterable[NewTask]) -> Iterator[KeyOfTask]:
    for child in children:
        if child.unique is not None:
            yield KeyOfTask(child.task_id, child.lambda_name, child.unique.key)
