"""Signing in by an identity provider: there, and back."""

from collections.abc import Mapping

import grpc
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duly_console.errors import SignInNeededError
from duly_console.events import SignInLog
from duly_console.guard import Guard
from duly_console.oidc.attempt import LASTS, Attempt
from duly_console.oidc.open_oidc import Oidc
from duly_console.page import local_path, render
from duly_console.pages.sign_in import show_sign_in
from duly_console.session_cookie import Session
from duly_console.viewer import Viewer
from duly_core.oidc.errors import ProviderAwayError, ProviderRefusedError
from duly_core.oidc.provider import shown

_UNKNOWN_ATTEMPT = "This sign-in did not begin in this browser, took longer than ten minutes, or was used before. Sign in again."
_NOBODY = "auth.mode = none: the Frontend identifies nobody. Set auth.mode = required there."


class _NotSignedInError(Exception):
    """Why somebody is not signed in: the text of the page, which the log has, too."""

    def __init__(self, text: str, status: int = 400, *, more: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.more = more
        """For the page only."""


class IdentityProviderPages:
    """The way to the provider and back. The tokens that it answers are checked here, and by the Frontend."""

    def __init__(self, guard: Guard, oidc: Oidc) -> None:
        self._guard = guard
        self._oidc = oidc
        self._log = SignInLog(by="oidc")

    @property
    def _cookie(self) -> str:
        return f"{self._guard.cookie}-sign-in"

    async def start(self, request: Request, _form: Mapping[str, str]) -> Response:
        """Send the browser to the provider. A page that makes it come here learns nothing, and signs nobody in."""
        attempt = Attempt.new(local_path(request.query_params.get("back", "")))
        try:
            url = await self._oidc.provider.sign_in_url(attempt)
        except ProviderAwayError:
            host = self._oidc.provider.host
            return self._refused(
                request,
                _NotSignedInError(f"{host} does not answer. Try again, or sign in with a token.", 503),
            )
        response = RedirectResponse(url, status_code=303)
        response.set_cookie(
            self._cookie,
            attempt.write(self._guard.cookies.keys),
            max_age=LASTS,
            httponly=True,
            samesite="lax",  # the provider's page makes the browser come back
            secure=self._guard.secure,
        )
        return response

    async def finish(self, request: Request, _form: Mapping[str, str]) -> Response:
        """Take what the provider sends the browser back with."""
        guard = self._guard
        attempt = Attempt.read(guard.cookies.keys, request.cookies.get(self._cookie, ""))
        said = request.query_params
        if attempt is None or not attempt.is_of(said.get("state", "")):
            return self._refused(request, _NotSignedInError(_UNKNOWN_ATTEMPT))
        try:
            session, viewer = await self._session(said, attempt)
        except _NotSignedInError as problem:
            response = self._refused(request, problem)
        else:
            self._log.accepted(viewer.principal, _peer(request))
            if before := guard.session(request):
                guard.end(before)
            # Browsers send a strict cookie only where a page of this site led them: a redirect from here is still the provider's.
            text = render(
                guard.templates,
                "signed_in.html",
                None,
                theme=request.cookies.get("duly_theme", ""),
                back=local_path(attempt.back),
            )
            # the address has the code, which is used up
            response = HTMLResponse(text, headers={"referrer-policy": "no-referrer"})
            guard.keep(response, session)
        response.delete_cookie(self._cookie, secure=guard.secure, httponly=True, samesite="lax")
        return response

    async def _session(self, said: Mapping[str, str], attempt: Attempt) -> tuple[Session, Viewer]:
        provider = self._oidc.provider
        try:
            is_own = await provider.is_own(said.get("iss", ""))
        except ProviderAwayError as error:
            raise _NotSignedInError(f"The sign-in could not be completed: {error}.", 503) from error
        if not is_own:
            raise _NotSignedInError("The answer is of another provider. Sign in again.")
        if "error" in said:
            more = f" It says: {shown(said['error_description'])}" if said.get("error_description") else ""
            raise _NotSignedInError(
                f"{provider.host} did not sign you in: {shown(said['error'])}.", more=more
            )
        try:
            tokens = await provider.redeem(said.get("code", ""), attempt)
        except ProviderRefusedError as error:
            raise _NotSignedInError(f"The sign-in is not accepted: {error}.") from error
        except ProviderAwayError as error:
            raise _NotSignedInError(f"The sign-in could not be completed: {error}.", 503) from error
        found = tokens.id_token
        session = Session.of_provider(found.text, tokens.refresh_token, found.expires_at)
        if not self._guard.cookies.fits(session):
            session = Session.of_provider(found.text, "", found.expires_at)
        if not self._guard.cookies.fits(session):
            raise _NotSignedInError(
                "The ID token is too large for a browser. Let the provider send fewer groups and claims."
            )
        return session, await self._viewer(found.text)

    async def _viewer(self, token: str) -> Viewer:
        try:
            viewer = await self._guard.viewer(self._guard.calls(token), token)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
            raise _NotSignedInError(
                f"The Frontend does not accept this sign-in: {error.details()}."
            ) from error
        except SignInNeededError as error:
            raise _NotSignedInError(_NOBODY) from error
        if not viewer.principal:
            raise _NotSignedInError(_NOBODY)
        return viewer

    def _refused(self, request: Request, problem: _NotSignedInError) -> Response:
        self._log.refused(problem.text, _peer(request))
        session = self._guard.session(request) or Session.new()
        return show_sign_in(
            self._guard, request, session, f"{problem.text}{problem.more}", status=problem.status
        )


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""
