"""Signing in with a token, signing out, and the choice of light or dark."""

from collections.abc import Mapping

import grpc
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duly_console.errors import SignInNeededError
from duly_console.events import SignInLog
from duly_console.guard import Guard
from duly_console.page import local_path, render
from duly_console.session_cookie import LONGEST_TOKEN, Session

START = "/sign-in/oidc"
"""The path that sends browsers to the identity provider."""

_YEAR = 365 * 24 * 3600


class SignIn:
    """The pages that everybody may open."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._log = SignInLog()

    async def show(self, request: Request, _form: Mapping[str, str]) -> Response:
        """Ask for a token, or offer the identity provider."""
        return self._ask(request, self._guard.session(request) or Session.new(), "")

    async def sign_in(self, request: Request, form: Mapping[str, str]) -> Response:
        """Take a token that the Frontend knows."""
        guard = self._guard
        token = form.get("token", "").strip()
        session = guard.session(request) or Session.new()
        peer = request.client.host if request.client else ""
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            self._log.refused("no token", peer)
            return self._ask(request, session, "Paste a token: a line such as duly_..., or a JWT.")
        if len(token) > LONGEST_TOKEN:
            self._log.refused("too long", peer)
            return self._ask(
                request, session, f"The token is too long: at most {LONGEST_TOKEN:,} characters."
            )
        try:
            viewer = await guard.viewer(guard.calls(token), token)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
            self._log.refused("unknown, revoked or expired", peer)
            return self._ask(request, session, "This token is unknown, revoked or expired.")
        except SignInNeededError:
            self._log.refused("unknown, revoked or expired", peer)
            return self._ask(request, session, "This token is unknown, revoked or expired.")
        self._log.accepted(viewer.principal, peer)
        response = RedirectResponse(local_path(form.get("back", "")), status_code=303)
        guard.end(session)
        guard.keep(response, Session.new(token))  # a new token for forms, too: the old one was known before
        return response

    async def sign_out(self, request: Request, _form: Mapping[str, str]) -> Response:
        """Forget the token, also of copies of the cookie; offer to sign out of the identity provider, too."""
        guard = self._guard
        session = guard.session(request)
        if session:
            guard.end(session)
        url = ""
        if session and session.is_of_provider and guard.oidc:
            url = await guard.oidc.provider.sign_out_url(f"{guard.oidc.base_url}/sign-in")
        response: Response = RedirectResponse("/sign-in", status_code=303)
        if session and url and guard.oidc:
            text = render(
                guard.templates,
                "signed_out.html",
                None,
                theme=request.cookies.get("duly_theme", ""),
                url=url,
                host=guard.oidc.provider.host,
            )
            response = HTMLResponse(text)
        guard.forget(request, response)
        return response

    async def set_theme(self, _request: Request, form: Mapping[str, str]) -> Response:
        """Remember light, dark, or what the browser prefers."""
        response = RedirectResponse(local_path(form.get("back", "")), status_code=303)
        theme = form.get("theme", "")
        if theme in ("light", "dark"):
            response.set_cookie(
                "duly_theme",
                theme,
                max_age=_YEAR,
                httponly=True,
                samesite="strict",
                secure=self._guard.secure,
            )
        else:
            response.delete_cookie("duly_theme")
        return response

    def _ask(self, request: Request, session: Session, problem: str) -> Response:
        return show_sign_in(self._guard, request, session, problem)


def show_sign_in(
    guard: Guard, request: Request, session: Session, problem: str, *, status: int = 400
) -> Response:
    """Return the page to sign in at; a problem is that of the sign-in before, with its status."""
    back = local_path(request.query_params.get("back", ""))
    oidc = guard.oidc
    text = render(
        guard.templates,
        "sign_in.html",
        None,
        csrf=session.csrf,
        theme=request.cookies.get("duly_theme", ""),
        problem=problem,
        back=back,
        # the whole address: the cookie of the attempt must be of the host to which the provider sends the browser back
        provider_url=f"{oidc.base_url}{START}" if oidc else "",
        provider_host=oidc.provider.host if oidc else "",
    )
    response = HTMLResponse(text, status_code=status if problem else 200)
    guard.keep(response, session)
    return response
