"""The Postgres queue, mangled: its messages are hints, and nothing that is done to them may be worse than late."""

import asyncio

from psycopg import AsyncConnection, AsyncCursor

from tests.chaos.plan import Fault
from tests.chaos.stack import System

_EMPTY = "delete from queue_message"
_COPY = """
insert into queue_message (lambda, priority, reference_count, visible_at, body)
select lambda, priority, reference_count, duly_now() + random() * interval '3 s', body from queue_message
"""
_SHUFFLE = "update queue_message set visible_at = visible_at + (random() - 0.5) * interval '4 s'"
_DELAY = "update queue_message set visible_at = greatest(visible_at, duly_now()) + make_interval(secs => %s)"
_SAVE = "select lambda, priority, reference_count, body from queue_message"
# References to tasks that ended long ago, or run now: what a queue that resurrects messages delivers.
_REVIVE = """
insert into queue_message (lambda, priority, reference_count, visible_at, body)
select lambda, priority, 1, duly_now(), convert_to('duly1:', 'UTF8') || uuid_send(task_id)
from (
    (select lambda, priority, task_id from task order by task_id desc limit 300)
    union all (select lambda, priority, task_id from task_assoc where status in ('claimed', 'processing') limit 100)
) as any_task
"""
_INSERT = """
insert into queue_message (lambda, priority, reference_count, visible_at, body)
values (%s, %s, %s, duly_now(), %s)
"""
_QUEUES = "select name from lambda"
_FORGED = (
    b"",
    b"duly1:",
    b"duly1:short",
    b"duly9:" + bytes(16),
    b"duly1:" + bytes(16),
    b"duly1:" + bytes(16 * 100),
    bytes(range(256)),
    b'{"task_id": "1"}',
)
_FILL = 500
"""References of no task, in each queue."""


async def inject(system: System, fault: Fault) -> str:
    """Do what the fault's kind says."""
    async with system.postgres.lifecycle, await system.postgres.connect() as connection:
        return await _HOW[fault.kind](connection, fault)


async def _empty(connection: AsyncConnection, _: Fault) -> str:
    return _changed(await connection.execute(_EMPTY), "removed")


async def _duplicate(connection: AsyncConnection, _: Fault) -> str:
    first = await connection.execute(_COPY)
    revived = await connection.execute(_REVIVE)
    return f"{first.rowcount} messages copied, {revived.rowcount} references sent again"


async def _shuffle(connection: AsyncConnection, _: Fault) -> str:
    return _changed(await connection.execute(_SHUFFLE), "shuffled")


async def _delay(connection: AsyncConnection, fault: Fault) -> str:
    return _changed(await connection.execute(_DELAY, (fault.seconds,)), "delayed")


async def _resurrect(connection: AsyncConnection, fault: Fault) -> str:
    """What is there now comes again later, whatever became of it."""
    saved = await (await connection.execute(_SAVE)).fetchall()
    revived = await connection.execute(_REVIVE)
    await asyncio.sleep(fault.seconds)
    for row in saved:
        await connection.execute(_INSERT, row)
    return f"{len(saved)} messages inserted again after {fault.seconds:g} s, {revived.rowcount} references sent again"


async def _forge(connection: AsyncConnection, _: Fault) -> str:
    queues = [row[0] for row in await (await connection.execute(_QUEUES)).fetchall()]
    for number, name in enumerate(queues):
        for body in _FORGED:
            await connection.execute(_INSERT, (name, 1 + number % 4, 1, body))
    return f"{len(_FORGED) * len(queues)} bodies forged"


async def _fill(connection: AsyncConnection, fault: Fault) -> str:
    """A queue that says it is full, for a while."""
    filled = await connection.execute(
        """
        with inserted as (
            insert into queue_message (lambda, priority, reference_count, visible_at, body)
            select name, priority, 100, duly_now() + interval '1 h', %s
            from lambda, generate_series(1, 4) as priority, generate_series(1, %s)
            returning message_id
        ) select array_agg(message_id) from inserted
        """,
        (b"duly1:" + bytes(16), _FILL // 100),
    )
    row = await filled.fetchone()
    message_ids = row[0] if row else []
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        await connection.execute("delete from queue_message where message_id = any(%s)", (message_ids,))
    return f"{len(message_ids)} hidden messages of {_FILL} references a queue for {fault.seconds:g} s"


def _changed(cursor: AsyncCursor, what: str) -> str:
    return f"{cursor.rowcount} messages {what}" if cursor.rowcount else ""


_HOW = {
    "queue_empty": _empty,
    "queue_duplicate": _duplicate,
    "queue_shuffle": _shuffle,
    "queue_delay": _delay,
    "queue_resurrect": _resurrect,
    "queue_forge": _forge,
    "queue_fill": _fill,
}
