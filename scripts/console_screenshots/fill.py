"""Schedules what the pictures show, and waits until it stands as it should."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duly

_PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True)
class Filled:
    """What pages are opened for."""

    running: str
    dead: str
    ended: str
    graph: str
    large_graph: str
    session: str


def fill(client: duly.Client) -> Filled:
    """Schedule tasks of every kind."""
    client.put_resource("database", 2, note="connections of the reporting replica")
    client.put_resource("mail", rate=duly.Rate(20, burst=5), note="what the provider allows")
    client.put_resource("lambda:image.resize", 2)
    client.set_setting("store_consumer.poll_interval", "1s")
    ended = client.schedule_many(
        [duly.NewTask("billing/invoice.create", number, collection="black-friday") for number in range(60)]
    )
    dead = [
        client.schedule("mail.send", {"to": f"customer{number}@closed.invalid"}, collection="newsletter")
        for number in range(12)
    ]
    client.schedule_many(
        [duly.NewTask("mail.send", {"to": f"c{number}@example.org"}) for number in range(40)]
    )
    images = [
        client.schedule("image.resize", f"photo-{number}.jpg", priority=duly.Priority.LOW)
        for number in range(9)
    ]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    client.schedule_many([duly.NewTask("report.build", f"weekly {n}", at=tomorrow) for n in range(5)])
    session = "customer/4711"
    blocking = duly.Session(session, on_failure=duly.SessionPolicy.BLOCK)
    client.schedule("mail.send", {"to": "anna@closed.invalid"}, session=blocking)
    for number in range(4):
        client.schedule("billing/invoice.create", 9000 + number, session=duly.Session(session))
    for number in range(3):
        client.schedule("image.resize", f"album-{number}", session=duly.Session(f"album/{number % 2}"))
    graph, large = _graph(client), _large_graph(client)
    _until(lambda: client.get(dead[-1]).status.is_final and client.get(ended[-1]).status.is_final)
    _until(lambda: any(client.get(image).progress for image in images))
    _until(lambda: (found := client.get_session(session)) is not None and found.is_blocked)
    client.put_gate(
        "black-friday",
        duly.GateKind.PAUSE,
        "mail.send",
        collection="newsletter",
        duration=timedelta(hours=2),
        reason="the shop needs the mail server today",
        owner="ops@example.org",
    )
    client.put_breaker("node.read", 0.5, reason="racks are moved this week", owner="ops@example.org")
    client.schedule("mail.send", {"to": "c@example.org"}, collection="newsletter")
    running = next(image.task_id for image in images if client.get(image).progress)
    return Filled(running, dead[0].task_id, ended[0].task_id, graph, large, session)


def plotted_tasks(number: int) -> list[duly.NewTask]:
    """Return tasks to schedule beside the others, for the plots: now more, now fewer."""
    return [duly.NewTask("billing/invoice.create", each) for each in range(3 + (number + 1) % 7)]


def _graph(client: duly.Client) -> str:
    with client.graph("discovery of rack 12") as graph:
        begin = graph.task("report.build", "begin", label="begin")
        nodes = [
            graph.task("node.read", f"n{number}", label=f"read n{number}", after=begin)
            for number in range(4, 9)
        ]
        merge = graph.task("billing/invoice.create", 1, label="merge", after=nodes[:3])
        graph.task("image.resize", "rack-12.png", label="draw the rack", after=merge)
        graph.task(
            "mail.send",
            {"to": "ops@example.org"},
            label="report failures",
            after=duly.any_of(*(node.failed for node in nodes)),
        )
    return graph.graph_id


def _large_graph(client: duly.Client) -> str:
    with client.graph("index of the archive") as graph:
        first = [graph.task("report.build", f"list {n}", label=f"list {n}") for n in range(20)]
        parts = [
            graph.task("billing/invoice.create", n, label=f"part {n}", after=first[n % 20])
            for n in range(400)
        ]
        graph.task("report.build", "all", label="join", after=parts)
    return graph.graph_id


def _until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the pictures' tasks do not come to where they should be")
        time.sleep(0.2)
