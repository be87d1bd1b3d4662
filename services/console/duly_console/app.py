"""The application: pages, files, and the headers of every answer."""

from collections.abc import Awaitable, Callable, Sequence

import grpc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly_console.browser_checks import HEADERS, ONLY_BY_TLS, BrowserChecks
from duly_console.changes.streams import Streams
from duly_console.changes.subjects import PATH as FOLLOW
from duly_console.frontend_calls import FrontendStubs
from duly_console.guard import Guard
from duly_console.http_server import HEALTH
from duly_console.oidc.open_oidc import Oidc
from duly_console.pages.changes import ChangesPage
from duly_console.pages.event_address import EventAddressPages
from duly_console.pages.sign_in import START, SignIn
from duly_console.rendering import open_templates
from duly_console.routes import CHANGES, DOWNLOADS, PAGES
from duly_console.session_cookie import SessionCookies
from duly_console.settings import ConsoleSettings
from duly_console.static_files import StaticFiles


def build_app(guard: Guard, static: StaticFiles) -> ASGIApp:
    """Return the application."""
    sign_in = SignIn(guard)
    addresses = EventAddressPages(guard)
    changes = ChangesPage(
        guard.streams, lambda request: guard.session(request) is not None, guard.viewer_again
    )
    routes = [
        Route(HEALTH, _healthy),
        Route("/static/{version}/{name}", static.serve),
        Route("/sign-in", guard.open_page("sign in", sign_in.show), methods=["GET"]),
        Route("/sign-in", guard.open_page("sign in", sign_in.sign_in), methods=["POST"]),
        *_provider_routes(guard),
        Route("/sign-out", guard.open_page("sign out", sign_in.sign_out), methods=["POST"]),
        Route("/events/{token}", guard.bare_page("event address", addresses.show), methods=["GET"]),
        Route("/events/{token}", guard.bare_page("use event address", addresses.use), methods=["POST"]),
        Route("/theme", guard.open_page("theme", sign_in.set_theme), methods=["POST"]),
        Route(FOLLOW, guard.page("changes", changes.follow, is_marked=False), methods=["GET"]),
        *(
            Route(
                path,
                guard.page(name, make, is_marked=path not in ("/live", "/trends", "/search.json")),
                methods=["GET"],
            )
            for path, name, make in PAGES
        ),
        *(
            Route(path, guard.page(name, make, is_marked=False), methods=["GET"])
            for path, name, make in DOWNLOADS
        ),
        *(Route(path, guard.page(name, make), methods=["POST"]) for path, name, make in CHANGES),
    ]
    app = Starlette(routes=routes, exception_handlers={404: guard.not_found, 500: guard.went_wrong})
    app.router.redirect_slashes = False  # it would send browsers to whatever the Host names, unchecked
    return _with_headers(app, (*HEADERS, ONLY_BY_TLS) if guard.secure else HEADERS)


def _provider_routes(guard: Guard) -> list[Route]:
    if guard.oidc is None:
        return []
    from duly_console.oidc.console_provider import CALLBACK  # they need Authlib
    from duly_console.pages.identity_provider import IdentityProviderPages

    pages = IdentityProviderPages(guard, guard.oidc)
    return [
        Route(START, guard.open_page("begin sign in", pages.start), methods=["GET"]),
        Route(CALLBACK, guard.open_page("finish sign in", pages.finish), methods=["GET"]),
    ]


def console_app(
    settings: ConsoleSettings,
    cookies: SessionCookies,
    channel: grpc.aio.Channel,
    *,
    secure: bool,
    oidc: Oidc | None = None,
    streams: Streams | None = None,
) -> ASGIApp:
    """Return the application of a console.

    Args:
        settings: of the console.
        cookies: keep sessions.
        channel: to the Frontend; it must show no token of its own.
        secure: whether browsers come by TLS.
        oidc: signs people in by an identity provider; None: there are tokens only.
        streams: of pages that follow changes, for a caller that ends them; None: the app makes its own.
    """
    static = StaticFiles()
    guard = Guard(
        settings,
        FrontendStubs(channel),
        cookies,
        open_templates(static.version),
        BrowserChecks(settings.listen, settings.public_url),
        secure=secure,
        oidc=oidc,
        streams=Streams(most_streams(settings)) if streams is None else streams,
    )
    return build_app(guard, static)


def most_streams(settings: ConsoleSettings) -> int:
    """Return how many streams may be open: each keeps a connection, and half of them are for pages."""
    return max(1, settings.max_connections // 2)


async def _healthy(_request: Request) -> Response:
    """Tell a load balancer that the process serves; whether the Frontend does is its own health check's matter."""
    return PlainTextResponse("ok")


def _with_headers(
    app: ASGIApp, headers: Sequence[tuple[bytes, bytes]]
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    names = {name for name, _ in headers}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                said = {name for name, _ in own} & names
                message["headers"] = own + [each for each in headers if each[0] not in said]
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer
