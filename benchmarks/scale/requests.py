"""What is asked for: every page of the console, and searches and lists of the Frontend."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import grpc
import httpx
import psycopg

import duly
from benchmarks.scale.meter import NoAnswerError
from duly_wire.v1 import inspection_pb2
from duly_wire.v1.inspection_pb2_grpc import InspectionServiceStub

_TOO_LONG = "took longer than"
PATIENCE = 60.0
_LISTED = 100
_SAMPLES = {
    "ended": "select task_id from task where status = 'success' order by task_id desc limit 1",
    "old": "select task_id from task where status = 'success' order by task_id offset 1000 limit 1",
    "dead": "select task_id from dead_letter order by finished_at desc limit 1",
    "due": "select task_id from task_assoc where status = 'new' and next_trigger_at < now() order by task_id desc limit 1",
    "later": "select task_id from task_assoc where status = 'new' and next_trigger_at > now() limit 1",
    "held": "select task_id from task_assoc where status = 'processing' limit 1",
    "graph": "select graph_id from graph order by graph_id desc limit 1",
    "session": "select split_part(key, '/', 2) from session where blocked_at is null limit 1",
    "namespace": "select split_part(key, '/', 1) from session where blocked_at is null limit 1",
    "key": "select key from idempotency_key limit 1",
    "order": "select value from task_attribute where name = 'order' limit 1",
    "failed_lambda": "select lambda from dead_letter order by finished_at desc limit 1",
    "busy_lambda": "select lambda from task_assoc where status = 'processing' limit 1",
}
PAGES = (
    "/", "/live", "/trends?range=24h", "/tasks", "/tasks?status=new", "/tasks?status=processing", "/tasks?status=success",
    "/tasks?status=fatal_failure", "/tasks?status=retriable_failure", "/tasks?status=waiting", "/tasks?status=cancelled",
    "/tasks?status=live", "/tasks?priority=high", "/tasks?failure=exception", "/tasks?lambda={busy_lambda}",
    "/tasks?lambda={failed_lambda}&status=fatal_failure", "/tasks?where=order%3D{order}", "/tasks?where=customer%3D50",
    "/tasks/{ended}", "/tasks/{old}", "/tasks/{dead}", "/tasks/{due}", "/tasks/{later}", "/tasks/{held}",
    "/dead-letters", "/dead-letters?by=task", "/dead-letters?lambda={failed_lambda}", "/lambdas", "/lambdas?name=7",
    "/lambdas/{busy_lambda}", "/lambdas/{failed_lambda}", "/sessions", "/sessions?blocked=1",
    "/sessions/session?namespace={namespace}&key={session}", "/graphs", "/graphs?running=1", "/graphs/{graph}",
    "/time-tables", "/queues", "/queues?order=age", "/queues?lambda={busy_lambda}", "/hosts", "/hosts/bench-host-1",
    "/pools", "/gates", "/resources", "/settings", "/audit",
)  # fmt: skip
SEARCHES = (
    ("a whole id", "{old}"), ("the begin of an id", "{old:.8}"), ("the end of an id", "{ended:.-12}"), ("an idempotency key", "{key}"),
    ("an attribute of one task", "order={order}"), ("an attribute of many", "customer=50"), ("words of a cause", "no address"),
    ("a part of a lambda's name", "job.0123"), ("a host", "worker-17"), ("the begin of a session", "s-12"), ("nothing", "zzzzzz"),
)  # fmt: skip


class Asked(NamedTuple):
    """One request."""

    name: str
    ask: Callable[[], str]
    """Returns a note. Raises NoAnswerError."""


def samples(dsn: str) -> dict[str, str]:
    """Return what is in the store, by what it stands for."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = {name: connection.execute(query.encode()).fetchone() for name, query in _SAMPLES.items()}
    return {name: str(row[0]) for name, row in rows.items() if row is not None}


def pages(console: str, known: dict[str, str]) -> Iterator[Asked]:
    """Yield every page, each with filters."""
    with httpx.Client(base_url=console, timeout=PATIENCE) as browser:
        for path in PAGES:
            yield Asked(path, _page(browser, path.format_map(known)))
        for name, text in SEARCHES:
            path = str(httpx.URL("/search.json", params={"q": _text(text, known)}))
            yield Asked(f"/search.json: {name}", _page(browser, path))


def _text(template: str, known: dict[str, str]) -> str:
    if template == "{ended:.-12}":
        return known["ended"][-12:]
    return template.format_map(known)


def _page(browser: httpx.Client, path: str) -> Callable[[], str]:
    def ask() -> str:
        answer = browser.get(path)
        size = f"{len(answer.content) / 1024:,.0f} KiB"
        if answer.status_code not in (200, 303):
            raise NoAnswerError(f"status {answer.status_code}")
        if _TOO_LONG in answer.text:
            raise NoAnswerError(f"took too long, {size}")
        return size

    return ask


def calls(frontend: str, known: dict[str, str]) -> Iterator[Asked]:
    """Yield calls of commands and clients."""
    with duly.Client(frontend) as client, grpc.insecure_channel(frontend) as channel:
        inspection = InspectionServiceStub(channel)
        counted = inspection_pb2.GetActivityRequest()

        def first(**which: Any) -> Callable[[], str]:
            return lambda: f"{len([*islice(client.list(page_size=_LISTED, **which), _LISTED)])} tasks"

        def activity() -> str:
            inspection.GetActivity(counted, timeout=PATIENCE)
            return ""

        yield Asked("GetActivity", activity)
        yield Asked("duly list", first())
        yield Asked("duly list --where order=...", first(attributes={"order": known["order"]}))
        yield Asked("duly list --where customer=50", first(attributes={"customer": 50}))
        yield Asked(
            "duly list --where customer=50 --status fatal_failure",
            first(attributes={"customer": 50}, statuses=[duly.TaskStatus.FATAL_FAILURE]),
        )
        yield Asked("duly list --lambda ...", first(lambda_name=known["busy_lambda"]))
        yield Asked("duly list --status processing", first(statuses=[duly.TaskStatus.PROCESSING]))
        yield Asked("duly list --status fatal_failure", first(statuses=[duly.TaskStatus.FATAL_FAILURE]))
        yield Asked("duly list --status cancelled", first(statuses=[duly.TaskStatus.CANCELLED]))
        yield Asked("duly explain (due)", lambda: _told(client.explain(known["due"])))
        yield Asked("duly explain (dead letter)", lambda: _told(client.explain(known["dead"])))


def _told(_explanation: object) -> str:
    return ""
