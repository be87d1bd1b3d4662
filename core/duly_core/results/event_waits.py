"""Write that callbacks wait for events: their tasks wait, or are due at once if the events are there."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from duly_core.events.rules import MOST_RECEIVED, MOST_RECEIVED_BYTES
from duly_core.events.store import lock_waited, put_aside
from duly_core.postgres.arrays import bools, intervals, texts, timestamps, uuids
from duly_core.postgres.pool import Connection, fetch
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS
from duly_core.results.kept import keep_uses
from duly_core.results.successes import claims_of, refused
from duly_core.tasks.task import Result, Token
from duly_wire.ids import TaskId

_FULL = (
    f"ctx.wait_for: the task has received as many events as one may: {MOST_RECEIVED}, or {MOST_RECEIVED_BYTES // 1024} KiB "
    "together; wait in another task"
)


async def refuse_full(
    connection: Connection, failed: list[Result], waiting: list[Result]
) -> tuple[list[Result], list[Result]]:
    """Move waits of tasks that received as much as one may to the failures, as such."""
    if not waiting:
        return failed, waiting
    named = [
        (each.task_id, each.event_wait.name, told.key)
        for each in waiting
        if each.event_wait
        for told in each.event_wait.refused
    ]
    asked = {
        "task_ids": uuids(result.task_id for result in waiting),
        "refused_task_ids": uuids(task_id for task_id, _, _ in named),
        "waits": texts([name for _, name, _ in named]),
        "keys": texts([key for _, _, key in named]),
        "most": MOST_RECEIVED,
        "most_bytes": MOST_RECEIVED_BYTES,
    }
    full = {row[0] for row in await fetch(connection, READS["received_much"], asked)}
    more = [refused(each, _FULL) for each in waiting if each.task_id in full]
    return (
        sorted([*failed, *more], key=lambda result: result.task_id) if more else failed,
        [each for each in waiting if each.task_id not in full],
    )


async def wait_for_events(
    connection: Connection, results: Sequence[Result]
) -> tuple[set[Token], list[tuple[Any, ...]]]:
    """Let tasks wait for events, or take those that are there; return what was written, and rows without a task.

    What is to be cancelled ends at once, in the same transaction.
    """
    async with connection.transaction():
        # keys before tasks, as a send locks them
        keys = await lock_waited(
            connection,
            [(each.task_id, each.token, each.event_wait.keys) for each in results if each.event_wait],
        )
        await fetch(connection, LOCKS["lock_cancelled"], claims_of(results))
        until = await _refuse(connection, results)
        found = await fetch(
            connection, TRANSITIONS["wait_for_event"], _wait_parameters(results, until) | keys
        )
        released = [(None, None, row[4], row[5]) for row in found if not row[0]]
        rows = [row for row in found if row[0]]
        released += [(None, None, row[4], timedelta()) for row in rows if row[2]]
        for name, is_over in (("cancel_waiting", False), ("cancel", True)):
            if cancelled := sorted(row[0] for row in rows if row[3] and row[2] is is_over):
                ending = {
                    "task_ids": uuids(cancelled),
                    "without_session": uuids([]),
                    "only_if_requested": True,
                    "by": None,
                }
                ended = await fetch(connection, TRANSITIONS[name], ending)
                released += [(None, None, *row[1:]) for row in ended if not row[0]]
        written = {row[1] for row in rows}
        await keep_uses(connection, [each for each in results if each.token in written])
    return written, released


async def _refuse(connection: Connection, results: Sequence[Result]) -> dict[TaskId, datetime]:
    """Put aside what these callbacks refused; return until when they wait: as long as they would have waited for the first."""
    refusing = [
        (each.task_id, each.token, each.event_wait)
        for each in results
        if each.event_wait and each.event_wait.refused
    ]
    return await put_aside(connection, refusing) if refusing else {}


def _wait_parameters(results: Sequence[Result], until: Mapping[TaskId, datetime]) -> dict[str, Any]:
    waits = [each.event_wait for each in results if each.event_wait is not None]
    return claims_of(results) | {
        "waits": texts([wait.name for wait in waits]),
        "needs_all": bools([wait.needs_all for wait in waits]),
        "timeouts": intervals([wait.timeout for wait in waits]),
        "until_at": timestamps([until.get(each.task_id) for each in results]),
    }
