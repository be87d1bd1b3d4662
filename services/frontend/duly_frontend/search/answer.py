"""Answers a search: asks the store for each meaning of the text, and leaves out what the caller may not read."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from duly_core.access.current import restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_text
from duly_core.search import store as queries
from duly_core.search.rules import LONGEST, Sought, read
from duly_core.search.store import CauseFound, Query
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskRow
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import inspection_pb2

_DEFAULT = 5
_MOST = 20
_LONGEST_KEY = 255
_FEWEST_OF_CAUSES = 3
"""Characters: fewer are in most messages."""


@dataclass(frozen=True, slots=True)
class _Search:
    """One search of one caller."""

    store: Store
    sought: Sought
    limit: int
    scope: Scope | None
    """None: the caller may read everything."""

    async def tasks(self) -> list[TaskRow]:
        """Return tasks with such ids."""
        rows: dict[UUID, TaskRow] = {}
        for part in self.sought.ids:
            query = (
                queries.tasks_by_begin(part, self.scope, self.limit + 1)
                if part.begin
                else queries.tasks_by_end(part.end, self.scope, self.limit + 1)
            )
            rows |= {row["task_id"]: row for row in await queries.run(self.store, query)}
        return [*rows.values()]

    async def graphs(self) -> list[TaskRow]:
        """Return graphs with such ids or names."""
        rows: dict[UUID, TaskRow] = {}
        for part in self.sought.ids:
            if part.begin:
                rows |= await self._graphs(queries.graphs_by_begin(part, self.scope, self.limit + 1))
        if self.sought.is_name:
            end = next((part.end for part in self.sought.ids if not part.begin), "")
            rows |= await self._graphs(
                queries.graphs_by_text(self.sought.text, end, self.scope, self.limit + 1)
            )
        return [*rows.values()]

    async def _graphs(self, query: Query) -> dict[UUID, TaskRow]:
        return {row["graph_id"]: row for row in await queries.run(self.store, query)}

    async def named(self, query: Query) -> list[TaskRow]:
        """Return what has such a name."""
        return await queries.run(self.store, query) if self.sought.is_name else []

    async def keyed(self, table: str) -> list[TaskRow]:
        """Return tasks with this key."""
        if len(self.sought.text.encode()) > _LONGEST_KEY:
            return []
        return await queries.run(
            self.store, queries.tasks_by_key(table, self.sought.text, self.scope, self.limit + 1)
        )

    async def attributed(self) -> list[TaskRow]:
        """Return tasks with this attribute."""
        if self.sought.attribute is None:
            return []
        name, value = self.sought.attribute
        return await queries.run(
            self.store, queries.tasks_by_attribute(name, value, self.scope, self.limit + 1)
        )

    async def sessions(self) -> list[TaskRow]:
        """Return sessions whose key begins so, of namespaces of which the caller may read all tasks."""
        if self.scope is None:
            namespaces = None
        else:
            namespaces = [*self.scope.namespaces, *([""] if self.scope.covers_namespace("") else [])]
            if not namespaces:
                return []
        return await queries.run(
            self.store, queries.sessions_by_begin(self.sought.text, namespaces, self.limit + 1)
        )

    async def causes(self) -> list[CauseFound]:
        """Return causes, of dead letters whose failures the caller may see."""
        if len(self.sought.text) < _FEWEST_OF_CAUSES:
            return []
        payloads = restriction(Action.READ_PAYLOAD)
        if payloads is not None and payloads.is_empty:
            return []
        rows = await queries.run(self.store, queries.newest_letters(payloads))
        return await asyncio.to_thread(queries.causes_that_match, rows, self.sought.text, self.limit + 1)


async def search(store: Store, request: inspection_pb2.SearchRequest) -> inspection_pb2.SearchResponse:
    """Return what a text may mean.

    Raises:
        InvalidRequestError: the text or the limit is out of bounds.
        StoreUnavailableError: the store does not answer.
    """
    check_text("text", request.text, LONGEST, least=1)
    if not 0 <= request.limit <= _MOST:
        raise InvalidRequestError("limit", f"must be from 1 to {_MOST}, or 0 for {_DEFAULT}")
    sought = read(request.text)
    if not sought.text:
        raise InvalidRequestError("text", "must not be blank")
    limit = request.limit or _DEFAULT
    asked = _Search(store, sought, limit, restriction(Action.READ))
    response = inspection_pb2.SearchResponse()
    text, scope = sought.text, asked.scope
    _add(response, limit, inspection_pb2.SEARCH_KIND_TASK, map(_task, await asked.tasks()))
    _add(response, limit, inspection_pb2.SEARCH_KIND_GRAPH, map(_graph, await asked.graphs()))
    lambdas = await asked.named(queries.lambdas_by_name(text, scope, limit + 1))
    _add(response, limit, inspection_pb2.SEARCH_KIND_LAMBDA, map(_lambda, lambdas))
    _add(response, limit, inspection_pb2.SEARCH_KIND_SESSION, map(_session, await asked.sessions()))
    for kind, table in (
        (inspection_pb2.SEARCH_KIND_IDEMPOTENCY_KEY, "idempotency_key"),
        (inspection_pb2.SEARCH_KIND_UNIQUE_KEY, "unique_key"),
    ):
        _add(response, limit, kind, map(_task, await asked.keyed(table)))
    hosts = await asked.named(queries.hosts_by_name(text, scope, limit + 1))
    _add(response, limit, inspection_pb2.SEARCH_KIND_HOST, map(_host, hosts))
    _add(response, limit, inspection_pb2.SEARCH_KIND_CAUSE, map(_cause, await asked.causes()))
    attributed = await asked.attributed()
    _add(response, limit, inspection_pb2.SEARCH_KIND_ATTRIBUTE, map(_task, attributed))
    return response


def _add(
    response: inspection_pb2.SearchResponse,
    limit: int,
    kind: inspection_pb2.SearchKind.ValueType,
    found: Iterable[inspection_pb2.SearchHit],
) -> None:
    hits = [*found]
    for hit in hits[:limit]:
        hit.kind = kind
        response.hits.append(hit)
    if len(hits) > limit:
        response.more.append(kind)


def _task(row: TaskRow) -> inspection_pb2.SearchHit:
    hit = inspection_pb2.SearchHit(
        id=str(row["task_id"]),
        status=STATUS_TO_WIRE[Status(row["status"])],
        at=to_timestamp(row["created_at"]),
    )
    setattr(hit, "lambda", row["lambda"])
    return hit


def _graph(row: TaskRow) -> inspection_pb2.SearchHit:
    return inspection_pb2.SearchHit(
        id=str(row["graph_id"]),
        text=row["name"],
        at=to_timestamp(row["created_at"]),
        tasks=row["open"],
        is_marked=row["unhandled"] > 0,
    )


def _lambda(row: TaskRow) -> inspection_pb2.SearchHit:
    return inspection_pb2.SearchHit(id=row["name"], text=row["owner"])


def _session(row: TaskRow) -> inspection_pb2.SearchHit:
    session = SessionId.parse(row["key"])
    return inspection_pb2.SearchHit(
        id=session.key, namespace=session.namespace, tasks=row["length"], is_marked=row["is_blocked"]
    )


def _host(row: TaskRow) -> inspection_pb2.SearchHit:
    return inspection_pb2.SearchHit(
        id=row["host_id"], text=row["name"], at=to_timestamp(row["reported_at"]), is_marked=row["stopped"]
    )


def _cause(found: CauseFound) -> inspection_pb2.SearchHit:
    cause = found.cause
    text = ": ".join(filter(None, (cause.exception, cause.message)))
    hit = inspection_pb2.SearchHit(id=cause.fingerprint, text=text, tasks=found.tasks)
    setattr(hit, "lambda", cause.lambda_name)
    return hit
