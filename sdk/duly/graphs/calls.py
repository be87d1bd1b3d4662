"""The part of AsyncClient that is about graphs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from duly.attachments.sending import encoded_payloads
from duly.errors import GraphWaitTimeoutError
from duly.graphs.definition import GraphDefinition, run_of
from duly.graphs.graph import CriticalStep, Graph, GraphNode, GraphRef, ScheduledGraph, graph_id_of
from duly.graphs.new_graph import NewGraph
from duly.tasks.new_task import domain_of
from duly.transport import error_mapping
from duly.transport.caller import DEFAULT_TIMEOUT, seconds
from duly.transport.client_part import ClientPart
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import graphs_pb2, task_pb2

Receipt = TypeVar("Receipt")

_LONGEST_POLL = timedelta(seconds=20)
_POLL_GRACE = timedelta(seconds=5)
_SHORTEST_POLL_S = 0.1
# A graph of 10,000 nodes takes its time.
_ONE_TRY = timedelta(seconds=30)


class _Block(NewGraph, Generic[Receipt]):
    """A graph with what schedules it."""

    def __init__(
        self,
        schedule: Callable[..., Receipt],
        name: str,
        graph_id: str | None,
        timeout: timedelta,
        *,
        fail_fast: bool,
    ) -> None:
        super().__init__(name, graph_id=graph_id, fail_fast=fail_fast)
        self._schedule: Callable[..., Receipt] = schedule
        self._timeout = timeout
        self.scheduled: ScheduledGraph | None = None
        """The receipt, after the block."""


class GraphBlock(_Block[ScheduledGraph]):
    """A graph that is scheduled at the end of its `with` block, unless the block raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.scheduled = self._schedule(self, timeout=self._timeout)


class AsyncGraphBlock(_Block[Awaitable[ScheduledGraph]]):
    """A graph that is scheduled at the end of its `async with` block, unless the block raises."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.scheduled = await self._schedule(self, timeout=self._timeout)


class GraphCalls(ClientPart):
    """Schedules graphs and follows them."""

    def graph(
        self,
        name: str,
        *,
        graph_id: str | None = None,
        fail_fast: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT * 6,
    ) -> AsyncGraphBlock:
        """Begin a graph, which is scheduled at the end of the block: all of it, or nothing.

            async with client.graph("discovery") as g:
                first = g.task("ipmi.read", {"node": "n1"})
                g.task("report.send", after=first)
            await client.wait_graph(g.graph_id)

        - `graph_id`: a UUID that makes a later repeat safe; None: a new one.
        - `fail_fast`: the first failure that the graph does not handle ends it: nodes that have not started are skipped.
        - `timeout`: for all tries together.

        The end of the block raises what `schedule_graph` does.
        """
        return AsyncGraphBlock(self.schedule_graph, name, graph_id, timeout, fail_fast=fail_fast)

    async def schedule_graph(
        self, graph: NewGraph, *, timeout: timedelta = DEFAULT_TIMEOUT * 6
    ) -> ScheduledGraph:
        """Schedule a graph; when this returns, all its tasks are durable.

        Raises InvalidTaskError (a cycle, an unknown label, too many nodes: the message names the nodes),
        UnknownLambdaError, PayloadTooLargeError, KeyConflictError, what uploading attachments raises, or UnavailableError (the outcome
        is then unknown).
        """
        caller = self._caller
        payloads = await encoded_payloads(caller, graph.attaching, timeout) if graph.attaching else None
        request = graph.to_proto(caller.codec, payloads)
        response = await caller.call(caller.graphs.ScheduleGraph, request, timeout, one_try=_ONE_TRY)
        _check(response.error)
        task_ids = dict(zip((node.label for node in request.nodes), response.task_ids, strict=True))
        return ScheduledGraph(response.graph_id, response.created, task_ids)

    async def get_graph(self, graph: GraphRef, *, nodes: bool = True) -> Graph:
        """Return a graph as it stands now, with its nodes unless told otherwise. Raises GraphNotFoundError."""
        caller = self._caller
        request = graphs_pb2.GetGraphRequest(graph_id=graph_id_of(graph), without_nodes=not nodes)
        response = await caller.call(caller.graphs.GetGraph, request)
        _check(response.error)
        return Graph.from_proto(
            response.graph,
            [GraphNode.from_proto(node) for node in response.nodes],
            [CriticalStep.from_proto(step) for step in response.critical_path],
        )

    async def wait_graph(self, graph: GraphRef, timeout: timedelta | None = None) -> Graph:
        """Return the graph, with its nodes, once all of them have ended.

        `timeout` None waits for ever. Raises GraphWaitTimeoutError, GraphNotFoundError.
        """
        caller = self._caller
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + seconds(timeout)
        while True:
            asked_at = clock()
            hold = _LONGEST_POLL
            if deadline is not None:
                hold = min(hold, timedelta(seconds=max(deadline - asked_at, 0)))
            request = graphs_pb2.WaitGraphRequest(graph_id=graph_id_of(graph), timeout=to_duration(hold))
            patience = 2 * (_LONGEST_POLL + _POLL_GRACE) if deadline is None else hold + _POLL_GRACE
            one_try = hold + _POLL_GRACE
            response = await caller.call(caller.graphs.WaitGraph, request, patience, one_try=one_try)
            _check(response.error)
            if response.graph.status != graphs_pb2.GRAPH_STATUS_RUNNING:
                return await self.get_graph(graph)
            if deadline is not None and clock() >= deadline:
                raise GraphWaitTimeoutError(Graph.from_proto(response.graph))
            await asyncio.sleep(max(0, asked_at + _SHORTEST_POLL_S - clock()))

    async def cancel_graph(self, graph: GraphRef) -> Graph:
        """Cancel the nodes of a graph that have not ended, and return the graph, without nodes.

        Nothing that waits runs any more. What runs has been asked to stop. Raises TaskFinalError if all had ended before,
        GraphNotFoundError.
        """
        caller = self._caller
        request = graphs_pb2.CancelGraphRequest(graph_id=graph_id_of(graph))
        response = await caller.call(caller.graphs.CancelGraph, request, one_try=DEFAULT_TIMEOUT)
        _check(response.error)
        return Graph.from_proto(response.graph)

    async def list_graphs(
        self, *, name: str = "", running: bool = False, cell: str = "", page_size: int = 100
    ) -> AsyncIterator[Graph]:
        """Yield graphs, newest first, without their nodes: of this name, that have not finished, or that live in this cell."""
        async for page in self.graph_pages(name=name, running=running, cell=cell, page_size=page_size):
            for graph in page:
                yield graph

    async def graph_pages(
        self, *, name: str = "", running: bool = False, cell: str = "", page_size: int = 100
    ) -> AsyncIterator[list[Graph]]:
        """Yield what `list_graphs` yields a page at a time; `page_size` is 1 to 1,000."""
        caller = self._caller
        request = graphs_pb2.ListGraphsRequest(name=name, running=running, cell=cell, page_size=page_size)
        async for page in caller.pages(caller.graphs.ListGraphs, request):
            yield [Graph.from_proto(state) for state in page.graphs]

    async def put_graph_definition(self, graph: NewGraph) -> GraphDefinition:
        """Store a graph under its name, as the next version, and return that version.

        The same nodes as the newest version make no new one. Raises InvalidTaskError.
        """
        caller = self._caller
        request = graphs_pb2.PutGraphDefinitionRequest(
            name=graph.name, nodes=graph.to_definition(caller.codec), fail_fast=graph.fail_fast
        )
        response = await caller.call(caller.graphs.PutGraphDefinition, request, one_try=_ONE_TRY)
        _check(response.error)
        return await self.get_graph_definition(graph.name, response.version)

    async def get_graph_definition(self, name: str, version: int = 0) -> GraphDefinition:
        """Return a version of a definition; 0: the newest. Raises GraphNotFoundError."""
        return GraphDefinition.from_proto(await self._definition(name, version))

    async def graph_definitions(self) -> list[GraphDefinition]:
        """Return the newest version of each definition, by name."""
        caller = self._caller
        request = graphs_pb2.ListGraphDefinitionsRequest(page_size=1000)
        pages = caller.pages(caller.graphs.ListGraphDefinitions, request)
        return [GraphDefinition.from_proto(each) async for page in pages for each in page.definitions]

    async def run_graph(
        self,
        name: str,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        version: int = 0,
        domain: str = "",
        timeout: timedelta = DEFAULT_TIMEOUT * 6,
    ) -> ScheduledGraph:
        """Schedule a graph of a stored definition.

            await client.run_graph("discovery", {"*": {"node": "n7"}, "report": {"to": "ann@example.org"}})

        - `options`: fields of the payloads, by label; those of '*' are for all nodes, and give way to a label's own.
        - `version`: of the definition; 0: the newest.
        - `domain`: only workers of this domain run its nodes, and those that callbacks add; a node that names one keeps it.

        Raises what `schedule_graph` raises, and GraphNotFoundError.
        """
        within = domain_of(domain)
        definition = await self._definition(name, version)
        graph = run_of(definition, options or {}, codec=self._caller.codec, domain=within)
        return await self.schedule_graph(graph, timeout=timeout)

    async def _definition(self, name: str, version: int) -> graphs_pb2.GraphDefinition:
        caller = self._caller
        request = graphs_pb2.GetGraphDefinitionRequest(name=name, version=version)
        response = await caller.call(caller.graphs.GetGraphDefinition, request)
        _check(response.error)
        definition: graphs_pb2.GraphDefinition = response.definition
        return definition


def _check(error: task_pb2.ItemError) -> None:
    """Raise the error of an answer that has one."""
    if error.code:
        raise error_mapping.of_graph(error)
