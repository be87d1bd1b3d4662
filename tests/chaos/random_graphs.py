"""Graphs and time tables of a run: small graphs of every shape; time tables that tick each second."""

from collections.abc import Mapping
from datetime import timedelta
from random import Random

import duly
from duly.graphs.new_graph import AnyOf, Edge, NewGraph, NewNode
from duly.time_tables.new_time_table import new_time_table
from duly_wire.v1 import time_tables_pb2
from tests.chaos.kinds import BY_NAME, IN_GRAPHS, TaskKind
from tests.chaos.scarce import SESSIONS, choose_needs, choose_session, choose_tenant

_NODES = (2, 8)
_MOST_EDGES = 3
_ONE_IN_IGNORING = 4
_ONE_IN_SESSION = 4
_SECOND = timedelta(seconds=1)
_WINDOW = timedelta(hours=1)


def random_graph(random: Random) -> tuple[NewGraph, Mapping[str, TaskKind]]:
    """Return a graph, and the kinds of its nodes by label; nodes wait for earlier ones."""
    graph = NewGraph("chaos")
    nodes: list[NewNode] = []
    kinds: dict[str, TaskKind] = {}
    for number in range(random.randint(*_NODES)):
        kind = BY_NAME[random.choice(IN_GRAPHS)]
        label = f"{number}-{kind.name}"
        sources = random.sample(nodes, random.randint(min(number, 1), min(number, _MOST_EDGES)))
        edges = tuple(_edge(random, source) for source in sources)
        nodes.append(
            graph.task(
                kind.lambda_name,
                kind.payload(random),
                label=label,
                after=AnyOf(edges) if edges and random.randrange(3) == 0 else edges,
                ignore_failure=random.randrange(_ONE_IN_IGNORING) == 0,
                priority=random.choice(list(duly.Priority)),
                session=choose_session(random) if random.randrange(_ONE_IN_SESSION) == 0 else None,
                resources=choose_needs(random),
            )
        )
        kinds[label] = kind
    return graph, kinds


def time_tables() -> list[time_tables_pb2.NewTimeTable]:
    """Return time tables of which no tick may be lost."""
    tables = []
    in_session = {"session": duly.Session(SESSIONS[0]), "resources": [choose_tenant(Random(0))]}
    for name, kind, overlap, places in (
        ("chaos.all", "quick", duly.Overlap.ALLOW, {}),
        ("chaos.skip", "nap", duly.Overlap.SKIP, {}),
        ("chaos.session", "quick", duly.Overlap.ALLOW, in_session),
    ):
        table = new_time_table(
            name,
            BY_NAME[kind].lambda_name,
            {"kind": kind},
            every=_SECOND,
            catch_up=duly.CatchUp.ALL,
            catch_up_window=_WINDOW,
            overlap=overlap,
            **places,
        )
        # no revision: a call that is repeated must not be refused
        tables.append(time_tables_pb2.NewTimeTable(table=table))
    return tables


def _edge(random: Random, source: NewNode) -> Edge:
    return random.choice((source.succeeded, source.succeeded, source.failed, source.finished))
