"""What stands before each page: host, origin, session and form are checked, and errors become pages."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import grpc
import jinja2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duly_console import cookie_parts, events
from duly_console.attachment_links import AttachmentLinks
from duly_console.board import cards_of, is_store_away
from duly_console.browser_checks import BrowserChecks, is_token
from duly_console.changes.streams import Streams
from duly_console.errors import PageError, SignInNeededError, of_call
from duly_console.frontend_calls import FrontendCalls, FrontendStubs
from duly_console.oidc.open_oidc import Oidc
from duly_console.page import Page, render
from duly_console.session_cookie import Session, SessionCookies
from duly_console.settings import ConsoleSettings
from duly_console.viewer import Viewer, viewer_of
from duly_core.access.grants import Access
from duly_core.config.addresses import is_loopback
from duly_core.errors import DulyError
from duly_core.process.outcomes import take_outcome
from duly_wire.v1 import access_pb2, problems_pb2

MakePage = Callable[[Page], Awaitable[Response]]

_MARK_TIMEOUT = 3.0
"""Seconds that a page waits for what is wrong: it is shown beside the page, which goes without. Longer than a Frontend waits for
a store that stands still: that it does is what the page then says."""
_MOST_FORM_BYTES = 64 * 1024
_MOST_FIELDS = 200
_TOO_LATE = (
    "The Frontend or Postgres did not answer in time. If only this page fails, ask for less: use its filters."
)
_VIEWER_TIMEOUT = 0.5
"""Seconds that a page waits for the name of its caller, once it has heard that the store is away."""
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_FOR_SCRIPTS = frozenset({"/live", "/trends", "/changes", "/search.json"})
_PASSING = frozenset({500, 502, 503, 504})
"""Statuses of pages that may be shown a moment later: a browser asks for such a page again by itself."""


@dataclass
class Guard:
    """Wraps the functions of pages."""

    settings: ConsoleSettings
    stubs: FrontendStubs
    cookies: SessionCookies
    templates: jinja2.Environment
    checks: BrowserChecks
    secure: bool
    """Whether browsers come by TLS."""
    oidc: Oidc | None = None
    """Signs people in by an identity provider; None: there are tokens only."""
    streams: Streams = field(default_factory=lambda: Streams(100))
    """Those of pages that follow changes: they end with their session."""

    @property
    def cookie(self) -> str:
        """The name of the cookie: consoles on one machine differ by their ports only."""
        if self.secure:
            return "__Host-duly"
        return f"duly_{urlsplit(f'//{self.settings.listen}').port}"

    @property
    def _timeout(self) -> float:
        return self.settings.page_timeout.total_seconds()

    def session(self, request: Request) -> Session | None:
        """Return the session of a request; None: there is none."""
        value = cookie_parts.join(self.cookie, request.cookies)
        return self.cookies.read(value) if value else None

    async def _renewed(self, session: Session) -> Session:
        """Return the session of a request, with an ID token that lasts.

        Raises:
            SignInNeededError: the identity provider has ended it.
            PageError: the identity provider does not answer.
        """
        if self.oidc is None:
            raise SignInNeededError("this console has no identity provider any longer")
        renewed = await self.oidc.renewals.fresh(session)
        return renewed if self.cookies.fits(renewed) else replace(renewed, refresh="")

    def calls(self, token: str) -> FrontendCalls:
        """Return the calls of a person."""
        return FrontendCalls(self.stubs, token, self._timeout)

    async def viewer(self, calls: FrontendCalls, token: str) -> Viewer:
        """Ask the Frontend whose token it is.

        Raises:
            SignInNeededError: nobody's.
            grpc.aio.AioRpcError: the Frontend does not answer.
        """
        viewer = viewer_of(await calls(self.stubs.access.GetAccess, access_pb2.GetAccessRequest()))
        if (
            not token and viewer.principal
        ):  # the certificate of the console itself: nobody is to borrow its rights
            raise SignInNeededError("nobody is signed in")
        return viewer

    def keep(self, response: Response, session: Session) -> None:
        """Send the session's cookie with an answer."""
        for name, value in cookie_parts.split(self.cookie, self.cookies.write(session)):
            response.set_cookie(
                name,
                value,
                max_age=max(0, self.cookies.left(session)),
                httponly=True,
                samesite="strict",
                secure=self.secure,
            )

    def end(self, session: Session) -> None:
        """Read copies of this session's cookie as none of ours, and forget what a provider gave it."""
        self.cookies.end(session)
        self.streams.end(session.csrf)
        if self.oidc is not None:
            self.oidc.renewals.forget(session)

    def forget(self, request: Request, response: Response) -> None:
        """Let the browser forget the session's cookie."""
        for name in cookie_parts.names(self.cookie, request.cookies):
            response.delete_cookie(name, secure=self.secure, httponly=True, samesite="strict")

    def page(
        self, name: str, make: MakePage, *, is_marked: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return what serves a page to those who are signed in; `is_marked`: its menu says whether something is wrong."""

        async def serve(request: Request) -> Response:
            return await self._answer(
                name, request, lambda: self._guarded(request, make, is_marked=is_marked)
            )

        return serve

    def open_page(
        self, name: str, make: Callable[[Request, Mapping[str, str]], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return what serves a page to everybody, such as the one to sign in at."""

        async def serve(request: Request) -> Response:
            async def checked() -> Response:
                self._check_host(request, is_anonymous=False)
                form = await self._form(request, self.session(request))
                return await make(request, form)

            return await self._answer(name, request, checked)

        return serve

    def bare_page(
        self, name: str, make: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return what serves a page to the holder of its address: no session, no form of ours, no name that the address must have."""

        async def serve(request: Request) -> Response:
            return await self._answer(name, request, lambda: make(request))

        return serve

    async def _answer(self, name: str, request: Request, make: Callable[[], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        status = 500
        try:
            try:
                async with asyncio.timeout(self._timeout):
                    response = await make()
            except grpc.aio.AioRpcError as error:
                response = self._failed(request, of_call(error))
            except TimeoutError:
                response = self._failed(request, PageError(504, _TOO_LATE))
            except DulyError as error:
                response = self._failed(request, error)
            status = response.status_code
            return response
        finally:
            events.page_served(name, status, time.perf_counter() - started)

    async def viewer_again(self, page: Page) -> Viewer:
        """Ask the Frontend again what the person of a page may do.

        Raises:
            grpc.aio.AioRpcError: the Frontend does not answer, or the token is not valid.
        """
        return viewer_of(await page.call(page.stubs.access.GetAccess, access_pb2.GetAccessRequest()))

    async def _problems(self, calls: FrontendCalls) -> problems_pb2.ListProblemsResponse | None:
        """Return what is wrong now; None: the Frontend does not say in time."""
        asked = calls.within(min(_MARK_TIMEOUT, self._timeout / 2))
        try:
            answer: problems_pb2.ListProblemsResponse = await asked(
                self.stubs.problems.ListProblems, problems_pb2.ListProblemsRequest()
            )
        except grpc.aio.AioRpcError:
            return None
        return answer

    async def _guarded(self, request: Request, make: MakePage, *, is_marked: bool) -> Response:
        self._check_host(request, is_anonymous=False)
        session = self.session(request)
        form = await self._form(request, session)
        known = session or Session.new()
        if known.is_of_provider:
            known = await self._renewed(known)
            request.state.renewed = known
        calls = self.calls(known.token)
        # a part of a page has no menu; that of the overview has the board
        is_part = request.headers.get("hx-request") == "true" and request.url.path != "/"
        asking = asyncio.create_task(self.viewer(calls, known.token))
        asking.add_done_callback(take_outcome)  # a page that is too late does not wait for it
        try:
            problems = await self._problems(calls) if is_marked and not is_part else None
            if known.token and is_store_away(problems):
                # nothing can tell who the caller is: everybody with a session may hear that the store is away
                done, _ = await asyncio.wait({asking}, timeout=_VIEWER_TIMEOUT)
                if not done or _is_away(asking):
                    return self._kept(request, self._away(request, known, problems))
            viewer = await asking
        finally:
            asking.cancel()
        if not viewer.principal:
            self._check_host(request, is_anonymous=True)
            if not (is_loopback(self.settings.listen) or self.settings.allow_remote_anonymous):
                raise PageError(
                    403,
                    "auth.mode = none: callers are not identified, and this console can be reached from other "
                    "machines. Set auth.mode = required, or console.allow_remote_anonymous = true.",
                )
        links = AttachmentLinks(self.cookies.keys)
        page = Page(request, known, viewer, self.templates, calls, form, problems, links=links)
        try:
            response = await make(page)
        except grpc.aio.AioRpcError as error:
            response = self._failed(request, of_call(error), page)
        except PageError as error:
            response = self._failed(request, error, page)
        is_told = bool(page.notice or page.warning)
        if known is not session or is_told or ((known.notice or known.warning) and not page.is_fragment):
            # a fragment does not show the notice: the next page is to
            next_ = known if page.is_fragment and not is_told else page
            self.keep(response, replace(known, notice=next_.notice, warning=next_.warning))
        return response

    def _away(
        self, request: Request, session: Session, problems: problems_pb2.ListProblemsResponse | None
    ) -> Response:
        """Say that the store is away to a person whose roles cannot be read: nothing of what is in it."""
        nobody = Viewer("", Access("", ()))
        text = render(
            self.templates,
            "store_away.html",
            None,
            cards=cards_of(problems, nobody, "/")[:1],
            is_change=request.method != "GET",
            theme=request.cookies.get("duly_theme", ""),
            csrf=session.csrf,
            timeout=self._timeout,
        )
        return HTMLResponse(text, 503)

    async def not_found(self, request: Request, _error: Exception) -> Response:
        """Answer for an address that no page has."""
        return self._failed(request, PageError(404, "There is no such page."))

    async def went_wrong(self, request: Request, error: Exception) -> Response:
        """Answer for an error that nobody foresaw: the log has it, the page has not."""
        events.log.error("page failed unexpectedly", path=request.scope["path"], exc_info=error)
        return self._failed(request, PageError(500, "The console's log says what went wrong."))

    def _check_host(self, request: Request, *, is_anonymous: bool) -> None:
        if problem := self.checks.host_problem(request.headers.get("host", ""), is_anonymous=is_anonymous):
            raise PageError(421, problem)

    async def _form(self, request: Request, session: Session | None) -> Mapping[str, str]:
        """Return the form of a POST of one of our own pages."""
        if request.method != "POST":
            return {}
        if problem := self.checks.origin_problem(request.headers):
            raise PageError(403, f"{problem} Nothing was changed.")
        data = bytearray()
        try:
            async for part in request.stream():
                data += part
                if len(data) > _MOST_FORM_BYTES:
                    raise PageError(413, "The form is too large. Nothing was changed.")
        except ClientDisconnect as error:
            raise PageError(400, "The request did not arrive completely.") from error
        try:
            form = dict(
                parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
            )
        except ValueError as error:
            raise PageError(400, "The form cannot be read. Nothing was changed.") from error
        if session is None or not is_token(session.csrf, form.pop("csrf", "")):
            raise PageError(
                403,
                "The form is of another session, or the session has ended. Load the page again. Nothing was changed.",
            )
        return form

    def _failed(self, request: Request, error: DulyError, page: Page | None = None) -> Response:
        if isinstance(error, SignInNeededError):
            return self._to_sign_in(request)
        response = self._problem(request, error, page)
        return self._kept(request, response) if page is None else response

    def _kept(self, request: Request, response: Response) -> Response:
        """Return an answer without a page, with the session if it was renewed: the provider takes its old refresh token no more."""
        if renewed := getattr(request.state, "renewed", None):
            self.keep(response, renewed)
        return response

    def _problem(self, request: Request, error: DulyError, page: Page | None) -> Response:
        status = error.status if isinstance(error, PageError) else 500
        if request.headers.get("hx-request") == "true":
            return HTMLResponse(render(self.templates, "problem.html", None, message=str(error)), status)
        extra: dict[str, Any] = {"is_retried": request.method == "GET" and status in _PASSING}
        if page is None:
            session = self.session(request)  # without one there is no form: nobody could send it
            theme = request.cookies.get("duly_theme", "")
            extra |= {"theme": theme, "csrf": session.csrf if session else "", "timeout": self._timeout}
        return HTMLResponse(
            render(self.templates, "error.html", page, status=status, message=str(error), **extra), status
        )

    def _to_sign_in(self, request: Request) -> Response:
        if request.headers.get("hx-request") == "true" or request.url.path in _FOR_SCRIPTS:
            return Response("sign in again", status_code=401, media_type="text/plain")
        where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        back = where if request.method == "GET" and where != "/" else ""
        response = RedirectResponse(
            f"/sign-in?back={quote(back, safe='')}" if back else "/sign-in", status_code=303
        )
        self.forget(request, response)
        return response


def _is_away(asking: asyncio.Task[Viewer]) -> bool:
    """Whether the Frontend could not name the caller."""
    error = asking.exception()
    return isinstance(error, grpc.aio.AioRpcError) and error.code() in _AWAY
