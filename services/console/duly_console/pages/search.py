"""Search: what a text may mean, by kind, as a page and as JSON for scripts; one hit alone is opened."""

import uuid
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import JSONResponse, RedirectResponse, Response

from duly_console import formatting
from duly_console.formatting import counted
from duly_console.page import Page
from duly_console.rendering import query
from duly_core.lambdas.names import DEFAULT_NAMESPACE
from duly_wire.v1 import inspection_pb2

MOST = 20
"""Of each kind, on the page."""
_FEW = 5
"""Of each kind, for a script that shows them while somebody types."""
_LONGEST_TEXT = 160

_TITLES = {
    inspection_pb2.SEARCH_KIND_TASK: "Tasks",
    inspection_pb2.SEARCH_KIND_GRAPH: "Graphs",
    inspection_pb2.SEARCH_KIND_LAMBDA: "Lambdas",
    inspection_pb2.SEARCH_KIND_SESSION: "Sessions",
    inspection_pb2.SEARCH_KIND_IDEMPOTENCY_KEY: "Tasks with this idempotency key",
    inspection_pb2.SEARCH_KIND_UNIQUE_KEY: "Tasks with this unique key",
    inspection_pb2.SEARCH_KIND_HOST: "Hosts",
    inspection_pb2.SEARCH_KIND_CAUSE: "Causes of dead letters",
    inspection_pb2.SEARCH_KIND_ATTRIBUTE: "Tasks with this attribute",
}
_TASKS = frozenset(
    (
        inspection_pb2.SEARCH_KIND_TASK,
        inspection_pb2.SEARCH_KIND_IDEMPOTENCY_KEY,
        inspection_pb2.SEARCH_KIND_UNIQUE_KEY,
        inspection_pb2.SEARCH_KIND_ATTRIBUTE,
    )
)


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that was found."""

    title: str
    href: str
    detail: str = ""
    status: int = 0
    """Of a task; 0: it is none."""
    at: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """What was found of one kind."""

    kind: str
    title: str
    hits: list[Hit] = field(default_factory=list)
    has_more: bool = False

    @property
    def has_status(self) -> bool:
        """Whether one of them is a task."""
        return any(hit.status for hit in self.hits)

    @property
    def has_time(self) -> bool:
        """Whether it is known of one of them when something last happened to it."""
        return any(hit.at is not None and hit.at.seconds for hit in self.hits)


async def show(page: Page) -> Response:
    """Show what was found, by kind."""
    sought = page.asked("q")
    groups = await _found(page, sought, MOST)
    hits = [hit for group in groups for hit in group.hits]
    if len(hits) == 1:
        return RedirectResponse(hits[0].href, status_code=303)
    if not hits and (task_id := _whole_id(sought)):
        return RedirectResponse(f"/tasks/{task_id}", status_code=303)  # which says what became of it
    return page.render("search.html", sought=sought, groups=groups)


async def as_json(page: Page) -> Response:
    """Answer what was found: {"groups": [{"kind", "title", "has_more", "hits": [{"title", "detail", "status", "href"}]}]}."""
    groups = await _found(page, page.asked("q"), _FEW)
    return JSONResponse(
        {
            "groups": [
                {
                    "kind": group.kind,
                    "title": group.title,
                    "has_more": group.has_more,
                    "hits": [
                        {
                            "title": hit.title,
                            "detail": hit.detail,
                            "status": formatting.word(hit.status, "status") if hit.status else "",
                            "href": hit.href,
                        }
                        for hit in group.hits
                    ],
                }
                for group in groups
            ]
        }
    )


async def _found(page: Page, sought: str, limit: int) -> list[Group]:
    if not sought:
        return []
    request = inspection_pb2.SearchRequest(text=sought, limit=limit)
    answer: inspection_pb2.SearchResponse = await page.call(page.stubs.inspection.Search, request)
    more = frozenset(answer.more)
    return [
        Group(
            inspection_pb2.SearchKind.Name(kind).removeprefix("SEARCH_KIND_").lower(),
            _TITLES[kind],
            [_hit(each) for each in hits],
            kind in more,
        )
        for kind, hits in groupby(answer.hits, lambda each: each.kind)
        if kind in _TITLES
    ]


def _hit(found: inspection_pb2.SearchHit) -> Hit:
    kind, lambda_name = found.kind, getattr(found, "lambda")
    if kind in _TASKS:
        return Hit(found.id, f"/tasks/{found.id}", lambda_name, found.status, found.at)
    if kind == inspection_pb2.SEARCH_KIND_GRAPH:
        state = f"{found.tasks} of its tasks have not ended" if found.tasks else "finished"
        return Hit(found.id, f"/graphs/{found.id}", f"{found.text}, {state}", at=found.at)
    if kind == inspection_pb2.SEARCH_KIND_LAMBDA:
        return Hit(found.id, f"/lambdas/{quote(found.id)}", f"owner {found.text}" if found.text else "")
    if kind == inspection_pb2.SEARCH_KIND_SESSION:
        space = found.namespace or DEFAULT_NAMESPACE
        state = ", blocked" if found.is_marked else ""
        detail = f"namespace {space}, {counted(found.tasks, 'task')}{state}"
        href = query("/sessions/session", namespace=found.namespace, key=found.id)
        return Hit(found.id, href, detail)
    if kind == inspection_pb2.SEARCH_KIND_HOST:
        href = f"/hosts/{quote(found.id, safe='')}"
        return Hit(found.id, href, f"{found.text}, stopped" if found.is_marked else found.text, at=found.at)
    text = found.text if len(found.text) <= _LONGEST_TEXT else f"{found.text[:_LONGEST_TEXT]}…"
    href = query("/dead-letters", **{"lambda": lambda_name, "cause": found.id})
    return Hit(text or found.id, href, f"{lambda_name}, {counted(found.tasks, 'dead letter')}")


def _whole_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
