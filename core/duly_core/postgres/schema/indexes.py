"""Builds one index while others read and write its table, and starts again after a cut."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, Protocol

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from duly_core.postgres.statements import load

_CREATE = re.compile(
    r"\s*create\s+(?P<unique>unique\s+)?index\s+concurrently\s+(?P<name>\w+)\s+on\s+(?P<table>\w+)\s+(?P<rest>.+?);?\s*",
    re.DOTALL | re.IGNORECASE,
)
_COMMENT = re.compile(r"--[^\n]*\n")

_FIND = "select indisvalid from pg_index where indexrelid = to_regclass(%s)"
_PARTITIONS = load("postgres/catalogue.sql")["partitions_of_index"]

_CONCURRENT = timedelta(minutes=5)
"""What is done concurrently waits for older transactions, and nobody waits behind it."""

Connection = psycopg.Connection[TupleRow]


class Patiently(Protocol):
    """Does what has to wait for locks, again if it must: for so long each time, or else briefly, for others wait behind it."""

    def __call__(self, work: Callable[[], None], timeout: timedelta = ..., /) -> object: ...


class Index(NamedTuple):
    """What a step of kind `index` says."""

    unique: str
    name: str
    table: str
    rest: str


def parse(text: str) -> Index:
    """Return the index that a statement builds.

    Raises:
        ValueError: it is another statement.

    >>> parse("create index concurrently a_by_b on a (b) where b > 1;")
    Index(unique='', name='a_by_b', table='a', rest='(b) where b > 1')
    """
    found = _CREATE.fullmatch(_COMMENT.sub("", text))
    if found is None:
        raise ValueError("a step of kind index is one `create index concurrently NAME on TABLE (...)`")
    return Index((found["unique"] or "").strip(), found["name"], found["table"], found["rest"].strip())


def build(connection: Connection, text: str, patiently: Patiently) -> None:
    """Build the index of a statement, if it is not there; an invalid one of this name is what a cut left.

    Of a partitioned table each partition gets its own, one after another. Partitions that are made meanwhile come with theirs.
    """
    index = parse(text)
    kind = connection.execute(
        "select relkind from pg_class where oid = %s::regclass", [index.table]
    ).fetchone()
    if kind != ("p",):
        patiently(lambda: _build_one(connection, index), _CONCURRENT)
        return
    if connection.execute(_FIND, [index.name]).fetchone() is None:
        # not concurrently: Postgres cannot, and it reads nothing
        create = f"create {index.unique} index {index.name} on only {index.table} {index.rest}".encode()
        patiently(lambda: _run(connection, create))
    names = {"table": index.table, "name": index.name}
    for partition, is_attached in connection.execute(_PARTITIONS.sql, names).fetchall():
        if not is_attached:
            with suppress(psycopg.errors.UndefinedTable):  # retention has dropped it meanwhile
                _build_part(connection, index, partition, patiently)


def _build_part(connection: Connection, index: Index, partition: str, patiently: Patiently) -> None:
    own = Index(index.unique, f"{partition}_{index.name}"[:63], partition, index.rest)
    attach = sql.SQL("alter index {} attach partition {}").format(
        sql.Identifier(index.name), sql.Identifier(own.name)
    )
    patiently(lambda: _build_one(connection, own), _CONCURRENT)
    patiently(lambda: _run(connection, attach))


def _build_one(connection: Connection, index: Index) -> None:
    there = connection.execute(_FIND, [index.name]).fetchone()
    if there == (True,):
        return
    if there is not None:
        connection.execute(f"drop index concurrently {index.name}".encode())
    connection.execute(
        f"create {index.unique} index concurrently {index.name} on {index.table} {index.rest}".encode()
    )


def _run(connection: Connection, statement: bytes | sql.Composed) -> None:
    connection.execute(statement)
