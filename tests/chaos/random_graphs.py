"""Graphs and time tables of a run: small graphs of every shape; time tables that tick each second."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

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
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_OPEN_MINUTES = 40
HOURS, HOLIDAYS = "every-other-minute", "closed-for-days"
"""Calendars. Their names are in no namespace, so everybody who reads may see them: nothing of the run is in them."""


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


def calendars(now: datetime) -> dict[str, dict[str, Any]]:
    """Return calendars by name, as they are put: one is open in every other minute, one is closed for days."""
    minutes = [(now + _MINUTE * number) for number in range(0, _OPEN_MINUTES * 2, 2)]
    today = now.date()
    return {
        HOURS: {"weekend": [], "hours": [_line(60 * at.hour + at.minute) for at in minutes]},
        HOLIDAYS: {"weekend": [], "closed": [today + _DAY * number for number in range(-1, 3)]},
    }


def _line(minute: int) -> str:
    begin, end = (f"{each // 60:02}:{each % 60:02}" for each in (minute, minute + 1))
    return f"MON-SUN {begin}-{end}"


def time_tables() -> list[time_tables_pb2.NewTimeTable]:
    """Return time tables of which no tick may be lost."""
    tables = []
    in_session = {"session": duly.Session(SESSIONS[0]), "resources": [choose_tenant(Random(0))]}
    hours = {"calendar": HOURS, "business_hours": True}
    for name, kind, overlap, every, places in (
        ("chaos.all", "quick", duly.Overlap.ALLOW, _SECOND, {}),
        ("chaos.skip", "nap", duly.Overlap.SKIP, _SECOND, {}),
        ("chaos.session", "quick", duly.Overlap.ALLOW, _SECOND, in_session),
        ("chaos.open", "quick", duly.Overlap.ALLOW, _SECOND, hours | {"on_closed": duly.OnClosed.SKIP}),
        ("chaos.moved", "quick", duly.Overlap.ALLOW, 7 * _SECOND, hours | {"on_closed": duly.OnClosed.NEXT}),
        (
            "chaos.never",
            "quick",
            duly.Overlap.ALLOW,
            _SECOND,
            {"calendar": HOLIDAYS, "on_closed": duly.OnClosed.SKIP},
        ),
    ):
        table = new_time_table(
            name,
            BY_NAME[kind].lambda_name,
            {"kind": kind},
            every=every,
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
