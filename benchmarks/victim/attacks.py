"""The thirteen attacks: what one principal asks for, and how much of it at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.victim.installation import ATTACKER
from duly_wire.v1 import explain_pb2, frontend_pb2, graphs_pb2, registry_pb2

LAMBDA = f"{ATTACKER}.work"
_NODES = 10_000
_EDGES = 100_000
_BULK = 4_900
"""Tasks of a call: with their fields, as many as a request may have."""
_A_DAY = 86_400
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of call, made over and over."""

    about: str
    method: str
    """The path of the call; empty: half requests to the console instead."""
    requests: Callable[[Sequence[str]], Sequence[bytes]]
    """Given ids of tasks of the attacker, returns what is sent, in turn."""
    at_a_time: int
    connections: int = 1


def _node(number: int, waits_for: Sequence[int]) -> graphs_pb2.GraphNode:
    node = graphs_pb2.GraphNode(
        label=f"n{number}", waits_for=[graphs_pb2.GraphEdge(label=f"n{each}") for each in waits_for]
    )
    setattr(node.task, "lambda", LAMBDA)
    node.task.payload = b"{}"
    node.task.delay.seconds = _A_DAY
    return node


def _graph(edges: int, *, cycle: bool = False) -> list[graphs_pb2.GraphNode]:
    each = edges // _NODES
    nodes = [_node(n, range(max(0, n - each), n)) for n in range(_NODES)]
    if cycle:
        nodes[0].waits_for.add(label=f"n{_NODES - 1}")
    return nodes


def _invalid_graphs(_: Sequence[str]) -> list[bytes]:
    return [graphs_pb2.ScheduleGraphRequest(name="bad", nodes=_graph(_EDGES, cycle=True)).SerializeToString()]


def _valid_graphs(_: Sequence[str]) -> list[bytes]:
    return [graphs_pb2.ScheduleGraphRequest(name="large", nodes=_graph(_NODES)).SerializeToString()]


def _definitions(_: Sequence[str]) -> list[bytes]:
    nodes = _graph(_EDGES - _NODES)
    return [
        graphs_pb2.PutGraphDefinitionRequest(name=f"{ATTACKER}-{n}", nodes=nodes).SerializeToString()
        for n in range(2)
    ]


def _bad_crons(_: Sequence[str]) -> list[bytes]:
    request = registry_pb2.RegisterLambdasRequest()
    for n in range(1_000):
        declared = request.lambdas.add(name=f"{ATTACKER}.cron{n}", version="1")
        for table in range(5):
            declared.time_tables.add(
                name=f"{ATTACKER}-{n}-{table}", cron=f"{n % 60} {24 + table} {1 + n % 28} * *"
            )
    return [request.SerializeToString()]


def _registrations(_: Sequence[str]) -> list[bytes]:
    return [
        registry_pb2.RegisterLambdasRequest(
            lambdas=[
                registry_pb2.Lambda(name=f"{ATTACKER}.l{n}", version=f"2026.{version}") for n in range(1_000)
            ]
        ).SerializeToString()
        for version in range(1, 40)
    ]


def _schedule(tasks: int, payload: bytes) -> bytes:
    request = frontend_pb2.ScheduleRequest()
    for _ in range(tasks):
        task = request.tasks.add(payload=payload)
        setattr(task, "lambda", LAMBDA)
        task.delay.seconds = _A_DAY
    return request.SerializeToString()


def _deep_json(_: Sequence[str]) -> list[bytes]:
    depth = _MIB // 2 - 1
    return [_schedule(6, b"[" * depth + b"]" * depth)]


def _lists(_: Sequence[str]) -> list[bytes]:
    request = frontend_pb2.ListTasksRequest(page_size=1_000)
    setattr(request, "lambda", LAMBDA)
    return [request.SerializeToString()]


def _waits(ids: Sequence[str]) -> list[bytes]:
    requests = []
    for start in range(0, len(ids), 1_000):
        request = frontend_pb2.WaitTaskRequest(task_ids=ids[start : start + 1_000])
        request.timeout.seconds = 20
        requests.append(request.SerializeToString())
    return requests


def _explains(ids: Sequence[str]) -> list[bytes]:
    return [explain_pb2.ExplainTaskRequest(task_id=each).SerializeToString() for each in ids[:100]]


def _bad_payloads(_: Sequence[str]) -> list[bytes]:
    bomb = b"\x0a\x00" * (4 * _MIB - 1_024)
    text = _schedule(_BULK, b"x" * 1_000)
    place = text.rfind(LAMBDA.encode())
    return [bomb, text[:place] + b"\xff" + text[place + 1 :]]


ATTACKS = {
    "invalid graphs": Attack(
        "ScheduleGraph: 10,000 nodes, 100,000 edges and one cycle",
        "/duly.v1.GraphService/ScheduleGraph", _invalid_graphs, 6,
    ),
    "bad crons": Attack(
        "RegisterLambdas: 1,000 lambdas with 5 invalid cron expressions each",
        "/duly.v1.RegistryService/RegisterLambdas", _bad_crons, 4,
    ),
    "valid graphs": Attack(
        "ScheduleGraph: 10,000 nodes", "/duly.v1.GraphService/ScheduleGraph", _valid_graphs, 4
    ),
    "deep JSON": Attack(
        "Schedule: 6 payloads of 1 MiB of brackets", "/duly.v1.FrontendService/Schedule", _deep_json, 8
    ),
    "lists": Attack("ListTasks: pages of 1,000", "/duly.v1.FrontendService/ListTasks", _lists, 16),
    "bulk": Attack(
        "Schedule: 4,900 tasks", "/duly.v1.FrontendService/Schedule", lambda _: [_schedule(_BULK, b"x" * 100)], 8
    ),
    "half POSTs": Attack("the console: half of a POST to /sign-in, by TLS", "", lambda _: [], 250),
    "waits": Attack(
        "WaitTask: 1,000 of 20,000 tasks that do not end", "/duly.v1.FrontendService/WaitTask", _waits, 200, 2
    ),
    "explains": Attack("ExplainTask", "/duly.v1.ExplainService/ExplainTask", _explains, 32),
    "bad payloads": Attack(
        "Schedule: 8 MiB of empty tasks; 4,900 tasks with one text that is not UTF-8",
        "/duly.v1.FrontendService/Schedule", _bad_payloads, 8,
    ),
    "definitions": Attack(
        "PutGraphDefinition: 10,000 nodes, 90,000 edges", "/duly.v1.GraphService/PutGraphDefinition", _definitions, 4
    ),
    "registrations": Attack(
        "RegisterLambdas: 1,000 lambdas, a new version each time",
        "/duly.v1.RegistryService/RegisterLambdas", _registrations, 2,
    ),
    "small calls": Attack(
        "Schedule: one task", "/duly.v1.FrontendService/Schedule", lambda _: [_schedule(1, b"x" * 100)], 256, 4
    ),
}  # fmt: skip
