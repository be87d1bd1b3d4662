"""The application: pages, files, and the headers of every answer."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly_console.browser_checks import HEADERS
from duly_console.guard import Guard
from duly_console.pages.sign_in import SignIn
from duly_console.routes import CHANGES, PAGES
from duly_console.static_files import StaticFiles


def build_app(guard: Guard, static: StaticFiles) -> ASGIApp:
    """Return the application."""
    sign_in = SignIn(guard)
    routes = [
        Route("/healthz", _healthy),
        Route("/static/{version}/{name}", static.serve),
        Route("/sign-in", guard.open_page("sign in", sign_in.show), methods=["GET"]),
        Route("/sign-in", guard.open_page("sign in", sign_in.sign_in), methods=["POST"]),
        Route("/sign-out", guard.open_page("sign out", sign_in.sign_out), methods=["POST"]),
        Route("/theme", guard.open_page("theme", sign_in.set_theme), methods=["POST"]),
        *(Route(path, guard.page(name, make), methods=["GET"]) for path, name, make in PAGES),
        *(Route(path, guard.page(name, make), methods=["POST"]) for path, name, make in CHANGES),
    ]
    return _with_headers(
        Starlette(routes=routes, exception_handlers={404: guard.not_found, 500: guard.went_wrong})
    )


async def _healthy(_request: Request) -> Response:
    """Tell a load balancer that the process serves; whether the Frontend does is its own health check's matter."""
    return PlainTextResponse("ok")


def _with_headers(app: ASGIApp) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    names = {name for name, _ in HEADERS}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                said = {name for name, _ in own} & names
                message["headers"] = own + [each for each in HEADERS if each[0] not in said]
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer
