"""What a page's function is given: who looks, what was asked, and how to call the Frontend and to answer."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duly_console.attachment_links import AttachmentLinks
from duly_console.board import status_of
from duly_console.changes.subjects import may_follow, subject_of
from duly_console.errors import PageError
from duly_console.frontend_calls import FrontendCalls, FrontendStubs
from duly_console.session_cookie import Session
from duly_console.viewer import Viewer
from duly_wire import missing_cells
from duly_wire.v1 import problems_pb2, task_pb2

Answer = TypeVar("Answer")

PAGE_SIZE = 50
"""Rows of a list."""

_WAY = 2.0
"""Seconds by which a browser waits longer than the console does: an answer's way."""

_STATUSES = {
    task_pb2.ERROR_CODE_NOT_FOUND: 404,
    task_pb2.ERROR_CODE_UNKNOWN_LAMBDA: 404,
    task_pb2.ERROR_CODE_UNKNOWN_TIME_TABLE: 404,
    task_pb2.ERROR_CODE_UNKNOWN_RESOURCE: 404,
    task_pb2.ERROR_CODE_UNKNOWN_POOL: 404,
    task_pb2.ERROR_CODE_PERMISSION_DENIED: 403,
    task_pb2.ERROR_CODE_NOT_OWNER: 403,
}


@dataclass
class Page:
    """One request of one person."""

    request: Request
    session: Session
    viewer: Viewer
    templates: jinja2.Environment
    _calls: FrontendCalls
    form: Mapping[str, str] = field(default_factory=dict)
    """Of a POST."""
    problems: problems_pb2.ListProblemsResponse | None = None
    """What is wrong now; None: the Frontend did not say, or the page has no menu."""
    links: AttachmentLinks = field(kw_only=True)
    """To attachments."""
    notice: str = ""
    """What the page that follows a redirect tells."""
    warning: str = ""
    """What it warns of."""

    @property
    def calls(self) -> FrontendCalls:
        """Calls of the Frontend as the person who looks."""
        return self._calls

    @property
    def stubs(self) -> FrontendStubs:
        """The services of the Frontend."""
        return self._calls.stubs

    @property
    def timeout(self) -> float:
        """How many seconds the page may take (console.page_timeout)."""
        return self._calls.timeout

    async def call(self, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Call the Frontend as the person who looks.

        Raises:
            grpc.aio.AioRpcError: it failed.
        """
        return await self._calls(method, request)

    def asked(self, name: str) -> str:
        """Return a parameter of the address; empty: it is not there."""
        return self.request.query_params.get(name, "").strip()

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        return HTMLResponse(render(self.templates, template, self, **values), status_code=status)

    def back(self, usual: str) -> str:
        """Return the page of this console from which a form was sent; `usual`: if it does not say."""
        return local_path(self.form.get("back", "") or usual)

    def redirect(self, path: str, notice: str = "") -> Response:
        """Send the browser to another page after a change, which tells what was done, and which cells get it later."""
        self.notice = notice
        self.warning = _of_cells(self.calls.late_cells, missing_cells.LATER)
        return RedirectResponse(path, status_code=303)

    @property
    def is_confirmed(self) -> bool:
        """Whether the person has seen what the change does."""
        return self.form.get("confirm") == "yes"

    def confirm(self, title: str, text: str, button: str, back: str, /, **sent: object) -> Response:
        """Ask whether to do it; the answer is sent to the same address with `sent`, which may have any names."""
        return self.render(
            "confirm.html",
            title=title,
            text=text,
            button=button,
            back=back,
            sent={name: value for name, value in sent.items() if value not in ("", None)},
        )

    @property
    def is_fragment(self) -> bool:
        """Whether a script asks for a part of a page, or for a stream."""
        headers = self.request.headers
        return headers.get("hx-request") == "true" or headers.get("accept", "") == "text/event-stream"


def render(templates: jinja2.Environment, template: str, page: Page | None, **values: Any) -> str:
    """Return the text of a template; without a page there is no menu."""
    timeout = page.timeout if page else values.pop("timeout", _WAY)
    theme = page.request.cookies.get("duly_theme", "") if page else values.pop("theme", "")
    known = {
        "page": page,
        "viewer": page.viewer if page else None,
        "csrf": page.session.csrf if page else values.pop("csrf", ""),
        "mark": status_of(page.problems, page.viewer) if page else None,
        "notice": page.session.notice if page else "",
        "warning": page.session.warning or _of_cells(page.calls.late_cells, missing_cells.LATER)
        if page
        else "",
        "missing": _of_cells(page.calls.missing_cells) if page else "",
        "path": page.request.url.path if page else "",
        "address": _address(page.request) if page else "",
        "follows": page is not None and may_follow(subject_of(page.request.url.path), page.viewer),
        "now": datetime.now(UTC),
        "deadline": round((timeout + _WAY) * 1000),
        "theme": theme if theme in ("light", "dark") else "",
    }
    return templates.get_template(template).render(known | values)


def _of_cells(cells: Collection[str], key: str = missing_cells.METADATA) -> str:
    """Return a sentence about cells that are away; empty: there are none."""
    text = missing_cells.sentence(cells, key) if cells else ""
    return text[:1].upper() + text[1:]


def _address(request: Request) -> str:
    """Return the path and the query of a page: of a list, what it is a list of."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def local_path(path: str) -> str:
    """Return a path of this console; another address becomes the first page."""
    is_ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_ours else "/"


def check(error: task_pb2.ItemError) -> None:
    """Let an item of an answer pass.

    Raises:
        PageError: it was not carried out.
    """
    if error.code:
        raise PageError(_STATUSES.get(error.code, 409), error.message)
