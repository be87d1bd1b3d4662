"""The part of Client that is about graphs: a thin face on AsyncClient's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from duly.caller import DEFAULT_TIMEOUT
from duly.client import AsyncClient
from duly.graph import Graph, GraphRef, ScheduledGraph
from duly.graph_definition import GraphDefinition
from duly.new_graph import NewGraph

Value = TypeVar("Value")


class GraphBlock(NewGraph):
    """A graph that is scheduled at the end of its `with` block, unless the block raises."""

    def __init__(
        self, calls: BlockingGraphCalls, name: str, graph_id: str | None, timeout: timedelta
    ) -> None:
        super().__init__(name, graph_id=graph_id)
        self._calls = calls
        self._timeout = timeout
        self.scheduled: ScheduledGraph | None = None
        """The receipt, after the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.scheduled = self._calls.schedule_graph(self, timeout=self._timeout)


class BlockingGraphCalls(ABC):
    """Schedules graphs and follows them."""

    _client: AsyncClient

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the client's loop."""

    @abstractmethod
    def _each(self, pages: AsyncIterator[list[Value]]) -> Iterator[Value]:
        """Yield what pages have."""

    def graph(
        self, name: str, *, graph_id: str | None = None, timeout: timedelta = DEFAULT_TIMEOUT * 6
    ) -> GraphBlock:
        """Begin a graph, which is scheduled at the end of the block: all of it, or nothing.

            with client.graph("discovery") as g:
                first = g.task("ipmi.read", {"node": "n1"})
                g.task("report.send", after=first)
            client.wait_graph(g.graph_id)

        See AsyncClient.graph.
        """
        return GraphBlock(self, name, graph_id, timeout)

    def schedule_graph(self, graph: NewGraph, *, timeout: timedelta = DEFAULT_TIMEOUT * 6) -> ScheduledGraph:
        """Schedule a graph; see AsyncClient.schedule_graph."""
        return self._run(self._client.schedule_graph(graph, timeout=timeout))

    def get_graph(self, graph: GraphRef, *, nodes: bool = True) -> Graph:
        """Return a graph as it stands now; see AsyncClient.get_graph."""
        return self._run(self._client.get_graph(graph, nodes=nodes))

    def wait_graph(self, graph: GraphRef, timeout: timedelta | None = None) -> Graph:
        """Return the graph once all its nodes have ended; see AsyncClient.wait_graph."""
        return self._run(self._client.wait_graph(graph, timeout))

    def cancel_graph(self, graph: GraphRef) -> Graph:
        """Cancel the nodes of a graph that have not ended; see AsyncClient.cancel_graph."""
        return self._run(self._client.cancel_graph(graph))

    def list_graphs(self, *, name: str = "", running: bool = False, page_size: int = 100) -> Iterator[Graph]:
        """Yield graphs, newest first, without their nodes; see AsyncClient.list_graphs."""
        yield from self._each(self._client.graph_pages(name=name, running=running, page_size=page_size))

    def put_graph_definition(self, graph: NewGraph) -> GraphDefinition:
        """Store a graph under its name, as the next version; see AsyncClient.put_graph_definition."""
        return self._run(self._client.put_graph_definition(graph))

    def get_graph_definition(self, name: str, version: int = 0) -> GraphDefinition:
        """Return a version of a definition; 0: the newest. Raises GraphNotFoundError."""
        return self._run(self._client.get_graph_definition(name, version))

    def graph_definitions(self) -> list[GraphDefinition]:
        """Return the newest version of each definition, by name."""
        return self._run(self._client.graph_definitions())

    def run_graph(
        self,
        name: str,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        version: int = 0,
        timeout: timedelta = DEFAULT_TIMEOUT * 6,
    ) -> ScheduledGraph:
        """Schedule a graph of a stored definition; see AsyncClient.run_graph."""
        return self._run(self._client.run_graph(name, options, version=version, timeout=timeout))
