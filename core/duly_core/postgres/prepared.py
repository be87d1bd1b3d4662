"""Runs prepared statements on a connection without a cursor: psycopg's cost more Python than all else of a small statement.

What is sent, and what comes back, is psycopg's work as before: its dumpers, loaders and generators.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

Row = TypeVar("Row")

_MOST: Final = 100
"""Statements that a session keeps, as psycopg has it: the one that was not used for the longest time goes."""
_PLACEHOLDER: Final = re.compile(rb"%(?:%|\((\w+)\)([sbt]))")
_FORMATS: Final = {b"s": PyFormat.AUTO, b"b": PyFormat.BINARY, b"t": PyFormat.TEXT}
_NUMBERS: Final = count()
_DONE: Final = (ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC)
_READ: Final = Wait.R
_READABLE: Final = Ready.R
_INTERRUPTED: Final = (asyncio.CancelledError, KeyboardInterrupt)


Shape: TypeAlias = Callable[[Any], Callable[[Sequence[Any]], Row]]
"""Makes rows, as psycopg's row factories do."""


class Query(NamedTuple):
    """A statement to run together with others."""

    shape: Shape[Any]
    sql: str
    parameters: Mapping[str, Any]


class Rows(NamedTuple):
    """What a row factory is given in place of a cursor."""

    pgresult: PGresult


class Prepared:
    """The statements that are prepared in the session of one connection in autocommit mode."""

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._transformer = Transformer.from_context(connection)
        self.names: OrderedDict[tuple[bytes, tuple[int, ...]], bytes] = OrderedDict()
        """By the text, and the types of the parameters. The one used last is the last."""

    async def fetch(self, shape: Shape[Row], sql: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement and return its rows, all in binary.

        Raises:
            psycopg.Error: as a cursor does.
        """
        async with self._connection.lock:
            name, values, sent_as = await self._bound(sql, parameters)
            self._connection.pgconn.send_query_prepared(name, values, sent_as, Format.BINARY)
            try:
                result = await self._result(ExecStatus.TUPLES_OK)
            except InvalidSqlStatementName:  # somebody cleared the session: the next use of each prepares it
                self.forget()
                raise
        return self._rows(shape, result)

    async def fetch_together(self, queries: Sequence[Query]) -> list[list[Any]]:
        """Run statements in one transaction and one round trip; the rows of each.

        Raises:
            psycopg.Error: of the first that failed; nothing is written.
        """
        pgconn = self._connection.pgconn
        async with self._connection.lock:
            bound = [await self._bound(query.sql, query.parameters) for query in queries]
            pgconn.enter_pipeline_mode()
            try:
                for name, values, sent_as in bound:
                    pgconn.send_query_prepared(name, values, sent_as, Format.BINARY)
                pgconn.pipeline_sync()
                results = [(await self._run(execute(pgconn)))[-1] for _ in range(len(bound) + 1)]
                pgconn.exit_pipeline_mode()
            except BaseException:  # some answers are not read yet
                pgconn.finish()
                raise
        for result in results:
            if result.status not in _DONE:
                error = error_from_result(result, encoding=self._connection.info.encoding)
                if isinstance(error, InvalidSqlStatementName):
                    self.forget()
                raise error
        *answers, _ = results  # the last one says that the transaction has ended
        return [self._rows(query.shape, answer) for query, answer in zip(queries, answers, strict=True)]

    async def _bound(
        self, sql: str, parameters: Mapping[str, Any]
    ) -> tuple[bytes, Sequence[Any], Sequence[Format]]:
        """Return the name of a statement, and its parameters as they are sent and in which formats."""
        text, order, formats = _parsed(sql)
        transformer = self._transformer
        values = transformer.dump_sequence([parameters[name] for name in order], formats)
        sent_as, types = transformer.formats, transformer.types or ()
        name = self.names.get((text, types))
        if name is None:
            name = await self._prepare(text, types)
        else:
            self.names.move_to_end((text, types))
        return name, values, sent_as or ()

    def _rows(self, shape: Shape[Row], result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        try:
            return self._transformer.load_rows(0, result.ntuples, shape(Rows(result)))
        finally:
            self._transformer.set_pgresult(None)  # it may be large, and the connection stays

    def forget(self) -> None:
        """Take note that the session has none of the statements any more."""
        self.names.clear()

    async def _prepare(self, text: bytes, types: tuple[int, ...]) -> bytes:
        pgconn = self._connection.pgconn
        if len(self.names) >= _MOST:
            _, oldest = self.names.popitem(last=False)
            pgconn.send_query(b"deallocate " + oldest)
            await self._result(ExecStatus.COMMAND_OK)
        name = b"duly_%d" % next(_NUMBERS)  # never twice: one that was given up may be there
        pgconn.send_prepare(name, text, types)
        await self._result(ExecStatus.COMMAND_OK)
        self.names[text, types] = name
        return name

    async def _result(self, expected: ExecStatus) -> PGresult:
        result: PGresult = (await self._run(execute(self._connection.pgconn)))[-1]
        if result.status != expected:
            raise error_from_result(result, encoding=self._connection.info.encoding)
        return result

    async def _run(self, generator: Any) -> Any:
        """Do as `AsyncConnection.wait`, but only waits to read: without its timer and its closures."""
        loop = asyncio.get_running_loop()
        socket = self._connection.pgconn.socket
        try:
            state = next(generator)
            while state == _READ:
                readable: asyncio.Future[Ready] = loop.create_future()
                loop.add_reader(socket, _wake, readable)
                try:
                    ready = await readable
                finally:
                    loop.remove_reader(socket)
                state = generator.send(ready)
        except StopIteration as end:
            return end.value
        except _INTERRUPTED as error:  # psycopg cancels the statement, and reads what is left
            rest: Any = _Rest(generator, error)
        else:  # it waits to write, too
            rest = _Rest(generator, state)
        return await self._connection.wait(rest)


class _Rest:
    """A generator that psycopg goes on with: first comes what was seen of it already."""

    def __init__(self, generator: Any, first: Wait | BaseException) -> None:
        self._generator = generator
        self._first: Wait | BaseException | None = first

    def __next__(self) -> Any:
        first, self._first = self._first, None
        if isinstance(first, BaseException):
            raise first
        return next(self._generator) if first is None else first

    def send(self, ready: Any) -> Any:
        return self._generator.send(ready)


def _wake(readable: "asyncio.Future[Ready]") -> None:
    if not readable.done():
        readable.set_result(_READABLE)


@lru_cache(maxsize=1_000)
def _parsed(sql: str) -> tuple[bytes, tuple[str, ...], tuple[PyFormat, ...]]:
    """Return a statement with numbers in place of its parameters' names, these names in order, and how each is sent.

    Raises:
        psycopg.ProgrammingError: a parameter is written in two formats.
    """
    places: dict[str, int] = {}
    formats: list[PyFormat] = []

    def number(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return b"%"
        name, wanted = found[1].decode(), _FORMATS[found[2]]
        if name not in places:
            places[name] = len(formats)
            formats.append(wanted)
        if formats[places[name]] is not wanted:
            raise psycopg.ProgrammingError(f"the parameter {name} has two formats")
        return b"$%d" % (places[name] + 1)

    return _PLACEHOLDER.sub(number, sql.encode()), (*places,), (*formats,)
