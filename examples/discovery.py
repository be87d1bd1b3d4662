"""A workflow as RackHD runs it: what is known of a server is read, in part side by side, and put into a catalogue.

duly up examples.discovery:app
python -m examples.discovery n1          # in another terminal: runs the graph and draws it

Each callback stands for one that talks to hardware. A node of which the last digit is 9 has no disks, and one whose name
begins with "dead" does not answer at all.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import duly

app = duly.App(owner="you@example.org", version="1")

_RETRY = duly.Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(milliseconds=200))


@dataclass
class Server:
    """What most of the callbacks take."""

    name: str


@app.callback("discovery.power-on")
def power_on(server: Server) -> dict[str, object]:
    """Start the server from the network."""
    if server.name.startswith("dead"):
        raise duly.FatalFailure(f"{server.name} does not answer")
    return {"booted_from": "network"}


@app.callback("discovery.read-ipmi", backoff=_RETRY)
def read_ipmi(server: Server, ctx: duly.TaskContext) -> dict[str, object]:
    """Read the sensors. The first attempt always finds the controller busy: a retry is part of the node."""
    if ctx.attempt == 1:
        raise duly.RetriableFailure("the controller is busy")
    return {"fans": 4, "server": server.name}


@app.callback("discovery.read-disks")
def read_disks(server: Server) -> dict[str, object]:
    """List the disks."""
    if server.name.endswith("9"):
        raise duly.FatalFailure(f"{server.name} has no disks")
    return {"disks": ["sda", "sdb"]}


@app.callback("discovery.catalogue")
def catalogue(server: Server, ctx: duly.TaskContext) -> dict[str, object]:
    """Put together what the nodes before this one returned; one that failed returned nothing."""
    found = {label: before.result for label, before in ctx.predecessors.items()}
    return {"server": server.name, "found": found}


@app.callback("discovery.alarm")
def alarm(server: Server, ctx: duly.TaskContext) -> str:
    """Tell somebody which node failed."""
    failed = [
        label for label, before in ctx.predecessors.items() if before.status is duly.TaskStatus.FATAL_FAILURE
    ]
    return f"{server.name}: {', '.join(failed)} failed"


def write_graph(graph: duly.NewGraph, name: str) -> None:
    """Add the nodes of the workflow for one server."""
    server = Server(name)
    power = graph.task(power_on, server, label="power-on")
    ipmi = graph.task(read_ipmi, server, label="ipmi", after=power, max_runtime=timedelta(minutes=1))
    disks = graph.task(read_disks, server, label="disks", after=power, ignore_failure=True)
    graph.task(catalogue, server, label="catalogue", after=[ipmi, disks])
    graph.task(alarm, server, label="alarm", after=duly.any_of(power.failed, ipmi.failed))


def main(names: Sequence[str]) -> int:
    """Run the workflow for each server; 1 if one of them failed."""
    with duly.Client() as client:
        graphs = []
        for name in names:
            with client.graph(f"discovery of {name}") as graph:
                write_graph(graph, name)
            graphs.append(graph)
        ended = [client.wait_graph(graph.graph_id, timedelta(minutes=2)) for graph in graphs]
        for each in ended:
            print(f"{each.name}: {each.status.name.lower()}")
            for node in each.nodes.values():
                result = client.get(node.task_id).result
                print(f"  {node.label}: {node.status and node.status.name.lower()} {result or ''}")
    return int(any(each.status is not duly.GraphStatus.SUCCEEDED for each in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["n1"]))
