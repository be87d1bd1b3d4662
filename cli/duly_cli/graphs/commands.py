"""`duly graphs`: run graphs of definitions, show, list and cancel graphs."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

import duly
from duly_cli.graphs import drawing as graph_drawing
from duly_cli.output.cell_column import with_cells
from duly_cli.output.colour import status_style
from duly_cli.output.json_text import as_json as as_json_value
from duly_cli.output.json_text import as_object, show_all
from duly_cli.output.safe_text import counted, say
from duly_cli.output.table import columns
from duly_cli.output.task_text import moment_text
from duly_cli.startup.nouns import Noun
from duly_cli.startup.option_values import parse_duration
from duly_cli.startup.verbs import Verbs
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, connected
from duly_cli.tasks.filters import InCell
from duly_cli.tasks.wait_reasons import wait_graph_told

_Graph = Annotated[str, typer.Argument(metavar="GRAPH_ID", help="The graph's id.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The definition's name.")]

_graphs = Verbs(add_completion=False, cls=Noun)


def add_commands(app: typer.Typer) -> None:
    """Add `graphs` with its verbs."""
    app.add_typer(
        _graphs,
        name="graphs",
        rich_help_panel="Tasks",
        help="Run graphs of tasks from definitions; show, list and cancel graphs.",
    )


@_graphs.command("get", hidden=True)
@_graphs.command()
def show(
    graph_id: _Graph,
    drawn_as: Annotated[
        str, typer.Option("--format", help="text, mermaid or dot (Graphviz).", show_default=True)
    ] = "text",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Draw a graph with the status and times of each node, and its critical path."""
    if drawn_as not in graph_drawing.FORMATS:
        message = f"{drawn_as!r} is not a format: use {', '.join(graph_drawing.FORMATS)}"
        raise typer.BadParameter(message)
    with connected(address) as client:
        graph = client.get_graph(graph_id)
    if as_json:
        nodes = [as_object(node, status=graph_drawing.status_of(node)) for node in graph.nodes.values()]
        path = as_json_value(graph.critical_path)
        say(json.dumps(_as_json(graph) | {"critical_path": path, "nodes": nodes}))
    else:
        say("\n".join(graph_drawing.FORMATS[drawn_as](graph)))


@_graphs.command("list")
def list_graphs(
    name: Annotated[str, typer.Option(help="Of this name only.")] = "",
    running: Annotated[bool, typer.Option("--running", help="Only those that have not finished.")] = False,
    cell: InCell = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest first.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List graphs."""
    with connected(address) as client:
        pages = client.list_graphs(name=name, running=running, cell=cell, page_size=min(limit, 1000))
        found = list(islice(pages, limit))
    show_all(found, _table, _as_json, as_json=as_json)


@_graphs.command()
def cancel(graph_id: _Graph, address: Address = DEFAULT_ADDRESS) -> None:
    """Cancel the nodes of a graph that have not ended; what runs is asked to stop."""
    with connected(address) as client:
        graph = client.cancel_graph(graph_id)
    left = graph.total - graph.ended
    say(f"{graph_id}: cancelled" + (f"; {left} of its nodes still run or are about to end" if left else ""))


@_graphs.command("wait")
def wait_graph(
    graph_id: _Graph,
    timeout: Annotated[
        str | None, typer.Option(help="How long to wait: 30s, 5m.", show_default="no limit")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Wait until all nodes of a graph have ended, and draw it; exit 1 if it did not succeed. After 3 s, say what it waits for."""
    with connected(address) as client:
        ended = wait_graph_told(client, graph_id, parse_duration(timeout, "--timeout"))
    _show_ended(ended)


@_graphs.command()
def put(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON: label, taskName, waitOn {label: succeeded}, ...")
    ],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Store a graph definition, as the next version of its name."""
    try:
        definition = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{file} is not a JSON file: {error}"
        raise typer.BadParameter(message) from error
    if not isinstance(definition, dict):
        message = f"{file} must hold a JSON object"
        raise typer.BadParameter(message)
    with connected(address) as client:
        stored = client.put_graph_definition(duly.graph_from_json(definition))
    say(f"{stored.name}: version {stored.version}, {counted(len(stored.labels), 'node')}")


@_graphs.command()
def run(
    name: _Name,
    options: Annotated[
        str,
        typer.Argument(
            metavar="OPTIONS", help='Payload fields by label, "*" for all: \'{"*": {"node": "n1"}}\'.'
        ),
    ] = "{}",
    version: Annotated[int, typer.Option(min=0, help="0: the newest.")] = 0,
    domain: Annotated[
        str, typer.Option(help="Run its nodes only on workers of this domain.", show_default=False)
    ] = "",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for its end and draw it; exit 1 if it did not succeed. After 3 s, say what it waits for.",
        ),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Schedule a graph of a stored definition and print its id."""
    try:
        values = json.loads(options)
    except (ValueError, RecursionError) as error:
        message = f"OPTIONS is invalid JSON: {error}"
        raise typer.BadParameter(message) from error
    if not isinstance(values, dict):
        message = "OPTIONS must be a JSON object: payload fields by label"
        raise typer.BadParameter(message)
    with connected(address) as client:
        scheduled = client.run_graph(name, values, version=version, domain=domain)
        say(scheduled.graph_id)
        ended = wait_graph_told(client, scheduled.graph_id) if wait else None
    if ended is not None:
        _show_ended(ended)


@_graphs.command()
def definitions(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the stored graph definitions with their newest versions."""
    with connected(address) as client:
        found = client.graph_definitions()
    show_all(found, _definition_table, as_object, as_json=as_json)


def _definition_table(found: "Iterable[duly.GraphDefinition]") -> Iterator[str]:
    rows = [(each.name, str(each.version), moment_text(each.created_at)) for each in found]
    if not rows:
        return iter(["no definitions: `duly graphs put FILE` stores one"])
    return columns(("NAME", "VERSION", "CREATED"), rows)


def _show_ended(graph: "duly.Graph") -> None:
    say("\n".join(graph_drawing.text(graph)))
    if graph.status is not duly.GraphStatus.SUCCEEDED:
        raise typer.Exit(1)


def _as_json(graph: "duly.Graph") -> dict[str, Any]:
    return as_object(graph, left_out=["nodes", "critical_path"])


def _table(graphs: Iterable["duly.Graph"]) -> Iterator[str]:
    listed = list(graphs)
    rows = [
        (
            graph.graph_id,
            graph.name,
            graph.status.name.lower(),
            f"{graph.ended}/{graph.total}",
            moment_text(graph.created_at),
        )
        for graph in listed
    ]
    if not rows:
        return iter(["no graphs match: `duly graphs run NAME` runs a definition, `client.graph()` any"])
    heads = ("GRAPH ID", "NAME", "STATUS", "ENDED", "CREATED")
    cells = [graph.cell for graph in listed]
    return columns(*with_cells(heads, rows, cells, before="STATUS"), styles={"STATUS": status_style})
