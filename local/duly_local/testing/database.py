"""The database of a pytest session: the schema once, and no rows at the beginning of each test."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from shutil import disk_usage
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from duly_core.postgres.schema.migrate import migrate
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.testing.errors import DulyTestError
from duly_local.testing.owned_folder import MEMORY, owned_folder
from duly_server.stepped.clock import INSTALL

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""No test needs its data after a power cut."""

_ENOUGH = 2 * 2**30
"""Bytes that must be free in memory, to have the server's files there."""

_RESET = """
create table duly_stepped.seeded (name text primary key);
do $$ declare relation regclass; filled boolean; begin
    for relation in select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
        execute format('select exists (select from %s)', relation) into filled;
        if filled then
            insert into duly_stepped.seeded values (relation::text);
            execute format('create table duly_stepped.%I as table %s', relation::text, relation);
        end if;
    end loop;
end $$;

-- Removes all rows but those of a new store. A small table's rows are deleted: after a TRUNCATE each session plans again.
create function duly_stepped.reset(instant timestamptz) returns void language plpgsql as $$
declare relation regclass; seed text; begin
    for relation, seed in
        select class.oid, seeded.name
        from pg_class as class left join duly_stepped.seeded as seeded on seeded.name = class.oid::regclass::text
        where class.relkind = 'r' and class.relnamespace = 'public'::regnamespace and pg_relation_size(class.oid) > 0
    loop
        if pg_table_size(relation) > 131072 then
            execute format('truncate %s cascade', relation);
        else
            execute format('delete from %s', relation);
        end if;
        if seed is not null then
            execute format('insert into %s overriding system value table duly_stepped.%I', relation, seed);
        end if;
    end loop;
    perform setval(seqrelid::regclass, seqstart, false) from pg_sequence
    where seqrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace);
    update duly_stepped.clock set at = instant;
end $$;
"""


class TestDatabase:
    """One database with Duly's schema and a stepped clock."""

    __test__ = False  # to pytest

    def __init__(self, dsn: str) -> None:
        """Make the schema; the database must be new."""
        self.dsn = dsn
        migrate(dsn)
        self._connection = psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=5s")
        self._connection.execute(INSTALL)
        # this looks like what a service does first: it is not to be found out again in each test
        self._connection.execute(
            "update store_epoch set server = duly_server(), changed_at = 'epoch' where true"
        )
        self._connection.execute(_RESET.encode())

    def reset(self, instant: datetime) -> None:
        """Remove all rows, and set the clock.

        Raises:
            DulyTestError: an earlier test holds a lock.
        """
        try:
            self._connection.execute("select duly_stepped.reset(%s)", (instant,))
        except psycopg.errors.LockNotAvailable as error:
            raise DulyTestError(
                "the store cannot be emptied: an earlier test left a transaction open on duly_dsn; close its connection"
            ) from error

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


@contextmanager
def database_of_tests(given: str = "") -> Iterator[TestDatabase]:
    """Make a database of a server of our own, or of the server that `given` names; it is removed at the end."""
    if given:
        with _database_of(given) as dsn:
            yield from _opened(dsn)
        return
    in_memory = MEMORY.is_dir() and disk_usage(MEMORY).free > _ENOUGH
    with (
        owned_folder(MEMORY if in_memory else None) as folder,
        EmbeddedPostgres(Path(folder) / "data", settings=FAST) as postgres,
    ):
        yield from _opened(postgres.dsn)


def _opened(dsn: str) -> Iterator[TestDatabase]:
    database = TestDatabase(dsn)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _database_of(server: str) -> Iterator[str]:
    made = f"duly_test_{uuid4().hex[:12]}"
    name = sql.Identifier(made)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(name))
        try:
            yield make_conninfo(server, dbname=made)
        finally:
            connection.execute(sql.SQL("drop database {} with (force)").format(name))
