"""Draws graphs: as text, in Mermaid's notation, and in Graphviz's."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import duly
from duly_cli.output.safe_text import printable
from duly_cli.output.table import columns
from duly_cli.output.watching import age_text

_COLOURS = {
    duly.TaskStatus.SUCCESS: "#c8e6c9",
    duly.TaskStatus.FATAL_FAILURE: "#ffcdd2",
    duly.TaskStatus.CANCELLED: "#e0e0e0",
    duly.TaskStatus.DROPPED: "#f5f5f5",
    duly.TaskStatus.CLAIMED: "#fff9c4",
    duly.TaskStatus.PROCESSING: "#fff9c4",
}


def status_of(node: "duly.GraphNode") -> str:
    """Return a node's status in a word."""
    if node.status is None:
        return "removed"
    if node.timed_out:
        return "timed_out"
    return "skipped" if node.is_skipped else node.status.name.lower()


def text(graph: "duly.Graph") -> Iterator[str]:
    """Yield a line for the graph, and a table of its nodes."""
    yield (
        f"{printable(graph.name)} {graph.graph_id}: {graph.status.name.lower()}, "
        f"{graph.ended} of {graph.total} nodes have ended"
    )
    rows = [
        (
            node.label,
            status_of(node),
            _span(node.waited),
            _span(node.duration),
            node.lambda_name,
            node.task_id,
            _waits(node),
        )
        for node in graph.nodes.values()
    ]
    heads = ("LABEL", "STATUS", "WAITED", "TOOK", "LAMBDA", "TASK ID", "WAITS FOR")
    yield from columns(heads, rows, left_out_first=("WAITED", "TOOK"))
    yield from _critical_path(graph)


def _critical_path(graph: "duly.Graph") -> Iterator[str]:
    """Yield the chain of nodes that decided how long the graph took, and the part of each."""
    path = graph.critical_path
    if not path:
        return
    whole = path[-1].ends_at - path[0].begins_at
    yield ""
    if path[-1].open:
        now = graph.nodes.get(path[-1].label)
        goes_on = f"node {printable(path[-1].label)} {status_of(now)}" if now else printable(path[-1].label)
        yield f"critical path so far: {_span(whole)}, now {goes_on}"
    else:
        yield f"critical path: {_span(whole)}"
    rows = []
    for step in path:
        share = (step.ends_at - step.begins_at) / whole if whole else 0.0
        ran = "" if step.started_at is None else _span(step.ran)
        rows.append((f"{share:.0%}", _span(step.waited), ran, step.label))
    yield from columns(("SHARE", "WAITED", "TOOK", "NODE"), rows)


def mermaid(graph: "duly.Graph") -> Iterator[str]:
    """Yield a flowchart."""
    numbers = {label: f"n{place}" for place, label in enumerate(graph.nodes)}
    yield "flowchart TD"
    for label, node in graph.nodes.items():
        yield f'    {numbers[label]}["{_quoted(label)}<br/>{status_of(node)}"]'
        if node.status in _COLOURS:
            yield f"    style {numbers[label]} fill:{_COLOURS[node.status]}"
    for label, node in graph.nodes.items():
        arrow = "-.->" if node.any_of else "-->"
        for source, conditions in node.waits_for.items():
            yield f"    {numbers[source]} {arrow}|{_either(conditions)}| {numbers[label]}"


def dot(graph: "duly.Graph") -> Iterator[str]:
    """Yield a digraph."""
    numbers = {label: f"n{place}" for place, label in enumerate(graph.nodes)}
    yield "digraph duly {"
    for label, node in graph.nodes.items():
        colour = _COLOURS.get(node.status, "white") if node.status else "white"
        caption = f"{_escaped(label)}\\n{status_of(node)}"
        yield f'    {numbers[label]} [shape=box, style=filled, fillcolor="{colour}", label="{caption}"];'
    for label, node in graph.nodes.items():
        style = ", style=dashed" if node.any_of else ""
        for source, conditions in node.waits_for.items():
            yield f'    {numbers[source]} -> {numbers[label]} [label="{_either(conditions)}"{style}];'
    yield "}"


def _span(length: timedelta | None) -> str:
    """Return how long something took; None: nothing.

    >>> _span(timedelta(milliseconds=12)), _span(timedelta(seconds=2.34)), _span(timedelta(minutes=75))
    ('12 ms', '2.3 s', '1h15m')
    """
    if length is None:
        return ""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else age_text(length)


def _waits(node: "duly.GraphNode") -> str:
    if node.awaited_events:
        since = f" since {node.awaited_since_at:%Y-%m-%d %H:%M:%S}Z" if node.awaited_since_at else ""
        until = f", until {node.awaited_until_at:%Y-%m-%d %H:%M:%S}Z" if node.awaited_until_at else ""
        return f"the event {node.awaited_events}{since}{until}"
    waits = [
        label if conditions == (duly.EdgeCondition.SUCCEEDED,) else f"{label} {_either(conditions)}"
        for label, conditions in node.waits_for.items()
    ]
    return f"any of {', '.join(waits)}" if node.any_of else ", ".join(waits)


def _either(conditions: Iterable["duly.EdgeCondition"]) -> str:
    return " or ".join(condition.name.lower() for condition in conditions)


def _quoted(label: str) -> str:
    return printable(label).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _escaped(label: str) -> str:
    return printable(label).replace("\\", "\\\\").replace('"', '\\"')


FORMATS: dict[str, Callable[["duly.Graph"], Iterator[str]]] = {"text": text, "mermaid": mermaid, "dot": dot}
