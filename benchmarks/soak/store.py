"""Sizes, dead rows, connections and WAL of the Postgres under a soak; short partitions for a new one."""

import asyncio
import time
from typing import Any

import psycopg

_MIB = 2**20
KEPT_BY_DESIGN = ("audit_event",)
"""Tables that keep rows longer than a soak runs: measured, and not judged."""

_TABLES = """
select coalesce(parent.relname, part.relname), count(*), sum(pg_table_size(part.oid)), sum(pg_indexes_size(part.oid)),
    sum(stat.n_live_tup), sum(stat.n_dead_tup)
from pg_class part
join pg_stat_user_tables stat on stat.relid = part.oid
left join pg_inherits on inhrelid = part.oid
left join pg_class parent on parent.oid = inhparent
where part.relkind = 'r' and part.relnamespace = 'public'::regnamespace
group by 1
"""
_CATALOG = """
select sum(pg_total_relation_size(oid)) from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'
"""
_CONNECTIONS = """
select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
"""
_WAL = "select sum(size) from pg_ls_waldir()"
_DATABASE = "select pg_database_size(current_database()) - pg_total_relation_size('audit_event')"
_LIVE = "select count(*), count(*) filter (where next_trigger_at < now() and status in ('new', 'retriable_failure')) from task_assoc"
_PARTITIONS = "select relname from pg_inherits join pg_class on pg_class.oid = inhrelid where inhparent = 'task'::regclass"
_FIRST = "drop table if exists task_first, attempt_first"
_HAS_NOW = """
select count(*) > 0 from pg_inherits join pg_class on pg_class.oid = inhrelid
where inhparent = 'task'::regclass and relname <> 'task_rest' and relname < 'task_' || to_char(now() at time zone 'UTC', 'YYYYMMDD"t"HH24MISS')
"""
_WITHIN = 240.0
_LOOK_EVERY = 1.0


async def use_short_partitions(dsn: str) -> None:
    """Drop the first partition, which takes two days, while it is empty; return when the Store Consumer has made one for now.

    Raises:
        TimeoutError: it made none within four minutes.
    """
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(_FIRST)
        deadline = time.monotonic() + _WITHIN
        while (await _row(connection, _HAS_NOW)) != (True,):
            if time.monotonic() > deadline:
                raise TimeoutError("the Store Consumer made no partition for now")
            await asyncio.sleep(_LOOK_EVERY)


class StoreWatch:
    """Reads Postgres, and remembers which partitions were there."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._partitions: set[str] = set()
        self.dropped: set[str] = set()
        """Partitions that were removed while it watched."""

    async def sample(self) -> tuple[dict[str, float], dict[str, float]]:
        """Read the values that are judged, and those that are only kept, by the names of series."""
        judged: dict[str, float] = {}
        kept: dict[str, float] = {}
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            judged["connections"] = float((await _row(connection, _CONNECTIONS))[0])
            judged["wal"] = float((await _row(connection, _WAL))[0]) / _MIB
            judged["size: catalog"] = float((await _row(connection, _CATALOG))[0]) / _MIB
            judged["size: database"] = float((await _row(connection, _DATABASE))[0]) / _MIB
            live, due = await _row(connection, _LIVE)
            judged["queue: not ended"], judged["queue: due"] = float(live), float(due)
            cursor = await connection.execute(_TABLES)
            for name, parts, table, indexes, rows, dead in await cursor.fetchall():
                to = kept if name in KEPT_BY_DESIGN else judged
                to[f"size: {name}"] = float(table) / _MIB
                to[f"size: indexes of {name}"] = float(indexes) / _MIB
                to[f"live rows: {name}"] = float(rows)
                to[f"dead rows: {name}"] = float(dead)
                if parts > 1:
                    kept[f"partitions: {name}"] = float(parts)
            cursor = await connection.execute(_PARTITIONS)
            there = {name for (name,) in await cursor.fetchall()}
        self.dropped |= self._partitions - there
        self._partitions |= there
        return judged, kept


async def _row(connection: psycopg.AsyncConnection[Any], query: str) -> tuple[Any, ...]:
    row = await (await connection.execute(query)).fetchone()
    return row or ()
