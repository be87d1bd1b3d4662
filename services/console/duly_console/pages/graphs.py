"""Graphs: the list, and one with its nodes drawn; cancel."""

import asyncio

from starlette.responses import Response

from duly_console.graphs.summary import MOST_DRAWN, picture
from duly_console.graphs.times import WIDTH, path_of, times_of
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_wire.time_conversion import to_datetime
from duly_wire.v1 import graphs_pb2, task_pb2

_NODES_LISTED = 200
_STEPS_LISTED = 50


async def show_list(page: Page) -> Response:
    """List graphs, the newest first."""
    name, running, cell = page.asked("name"), bool(page.asked("running")), page.asked("cell")
    request = graphs_pb2.ListGraphsRequest(
        name=name, running=running, cell=cell, page_size=PAGE_SIZE, page_token=page.asked("page")
    )
    answer: graphs_pb2.ListGraphsResponse = await page.call(page.stubs.graphs.ListGraphs, request)
    said = {"name": name, "running": "1" if running else "", "cell": cell}
    return page.render(
        "graphs.html",
        graphs=answer.graphs,
        wanted=said,
        cells=answer.cell_names,
        first=query("/graphs", **said) if page.asked("page") else "",
        next=query("/graphs", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )


async def show(page: Page) -> Response:
    """Show a graph: drawn, and the nodes that have not succeeded as a list."""
    request = graphs_pb2.GetGraphRequest(graph_id=page.request.path_params["graph_id"])
    answer: graphs_pb2.GetGraphResponse = await page.call(page.stubs.graphs.GetGraph, request)
    check(answer.error)
    critical = [step.label for step in answer.critical_path]
    drawn = await asyncio.to_thread(picture, answer.nodes, critical)
    is_small = len(answer.nodes) <= MOST_DRAWN
    path = await asyncio.to_thread(path_of, answer, _STEPS_LISTED)
    now = to_datetime(answer.read_at)
    listed = [node for node in answer.nodes if is_small or node.status != task_pb2.TASK_STATUS_SUCCESS]
    may_change = page.viewer.may_somewhere("CHANGE")
    return page.render(
        "graph.html",
        graph=answer.graph,
        picture=drawn,
        nodes=[(node, times_of(node, now)) for node in listed[:_NODES_LISTED]],
        critical=path,
        on_path=set(critical),
        bar_width=WIDTH,
        left_out=max(0, len(listed) - _NODES_LISTED),
        is_small=is_small,
        can_cancel=may_change and answer.graph.status == graphs_pb2.GRAPH_STATUS_RUNNING,
    )


async def cancel(page: Page) -> Response:
    """Cancel the nodes of a graph that have not ended."""
    graph_id = page.request.path_params["graph_id"]
    back = f"/graphs/{graph_id}"
    if not page.is_confirmed:
        text = "All of its nodes that have not ended are cancelled. Callbacks that run are asked to stop."
        return page.confirm("Cancel this graph?", text, "Cancel the graph", back)
    request = graphs_pb2.CancelGraphRequest(graph_id=graph_id)
    answer: graphs_pb2.CancelGraphResponse = await page.call(page.stubs.graphs.CancelGraph, request)
    check(answer.error)
    return page.redirect(back, "The graph is cancelled. Running nodes end when their callbacks stop.")
