"""Signs a person in: at the provider, then at the Frontend, which says whether the sign-in counts."""

import asyncio
import os
import secrets
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import duly
from duly_cli.oidc import device
from duly_cli.oidc.loopback import Loopback, PortTakenError
from duly_cli.oidc.open_provider import LastFailure, open_provider
from duly_cli.oidc.sign_in_file import StoredSignIn
from duly_cli.output.browser import has_browser
from duly_cli.output.safe_text import say
from duly_cli.tasks.commands import UNREACHABLE_AFTER
from duly_core.access.issuer_metadata import is_secret_way
from duly_core.errors import DulyError
from duly_core.oidc.errors import ProviderAwayError, ProviderRefusedError
from duly_core.oidc.provider import Provider, Tokens, shown

_WITHIN = 600.0
"""Seconds that a person has to sign in at the provider."""
_CLOCKS = "; if it has expired at once, compare the clocks of this machine and of the provider"


class SignInError(Exception):
    """Nobody is signed in; says why, and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        """Make one; the command ends with `exit_code`."""
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class _Attempt:
    state: str
    nonce: str
    verifier: str


def sign_in(
    address: str, at: "duly.SignInProvider", *, port: int | None, opens: bool
) -> "tuple[StoredSignIn, duly.Access]":
    """Return the sign-in of the person, and the access that it has.

    Args:
        address: of the Frontend.
        at: where the person signs in.
        port: where the browser of this machine brings the answer, 0: any; None: the person signs in on another device.
        opens: whether a browser is opened, if there is one.

    Raises:
        SignInError: nobody is signed in.
    """
    if port is None:
        return asyncio.run(_on_another_device(address, at))
    return asyncio.run(_in_the_browser(address, at, port, opens=opens))


async def _in_the_browser(
    address: str, at: "duly.SignInProvider", port: int, *, opens: bool
) -> "tuple[StoredSignIn, duly.Access]":
    attempt = _Attempt(*(secrets.token_urlsafe(32) for _ in range(3)))
    try:
        loopback = Loopback(
            attempt.state, port, lambda reason: say(f"duly: {reason}; still waiting", err=True)
        )
    except PortTakenError as error:
        raise SignInError(
            f"--port: another program listens on {port}: name another, or leave out --port"
        ) from error
    except OSError as error:
        raise SignInError(f"--port: {port} cannot be used: {error.strerror}") from error
    with loopback:
        provider, failure = open_provider(at.issuer, at.client_id, at.scopes, loopback.redirect_uri)
        try:
            url = await provider.sign_in_url(attempt)
        except ProviderAwayError as error:
            raise SignInError(failure.told(error), os.EX_UNAVAILABLE) from error
        _show(url, opens=opens, offers_device=await _offers_device(provider))
        try:
            said = await asyncio.wait_for(loopback.answer(), _WITHIN)
        except TimeoutError as error:
            raise SignInError(
                f"nobody signed in within {_WITHIN / 60:.0f} minutes: run `duly login` again"
            ) from error
        try:
            tokens = await _redeem(provider, failure, said, attempt)
            found = await asyncio.to_thread(_accepted, address, at, tokens)
        except SignInError as error:
            loopback.show(f"You are not signed in: {error}.")
            raise
        loopback.show()
        # the page is sent by a thread of its own
        await asyncio.to_thread(loopback.drain)
        return found


def _show(url: str, *, opens: bool, offers_device: bool) -> None:
    if opens and has_browser():
        say("Sign in with the browser that opens. If none does, open this address on this machine:", err=True)
        say(url, err=True)
        webbrowser.open(url)
        return
    say("Open this address in a browser on this machine:", err=True)
    say(url, err=True)
    if offers_device:
        say("If this machine has no browser, take Ctrl-C and `duly login --device`.", err=True)


async def _offers_device(provider: Provider) -> bool:
    return bool((await provider.metadata()).get("device_authorization_endpoint"))


async def _redeem(
    provider: Provider, failure: LastFailure, said: Mapping[str, str], attempt: _Attempt
) -> Tokens:
    try:
        if not await provider.is_own(said.get("iss", "")):
            raise SignInError("the answer is of another provider: run `duly login` again")
        if "error" in said:
            more = shown(said.get("error_description", ""))
            raise SignInError(
                f"{provider.host} did not sign you in: {shown(said['error'])}{f' ({more})' if more else ''}"
            )
        return await provider.redeem(said.get("code", ""), attempt)
    except ProviderAwayError as error:
        raise SignInError(failure.told(error), os.EX_UNAVAILABLE) from error
    except ProviderRefusedError as error:
        raise SignInError(f"the sign-in is not accepted: {error}{_CLOCKS}") from error


async def _on_another_device(address: str, at: "duly.SignInProvider") -> "tuple[StoredSignIn, duly.Access]":
    provider, failure = open_provider(at.issuer, at.client_id, at.scopes)
    try:
        code = await device.begin(provider)
        say(f"Open {code.address} on any device, and enter the code {code.user_code}", err=True)
        say(
            f"The code lasts {code.lasts / 60:.0f} minutes. Enter no code that somebody else sent you.",
            err=True,
        )
        tokens = await device.poll(provider, code)
    except ProviderAwayError as error:
        raise SignInError(failure.told(error), os.EX_UNAVAILABLE) from error
    except ProviderRefusedError as error:
        raise SignInError(_device_problem(error, provider.host)) from error
    return await asyncio.to_thread(_accepted, address, at, tokens)


def _device_problem(error: ProviderRefusedError, host: str) -> str:
    if error.code == "access_denied":
        return f"the sign-in was refused at {host}"
    if error.code == "expired_token":
        return "nobody entered the code in time: run `duly login --device` again"
    return f"{error}: leave out --device, or let the provider allow it for this client"


def _accepted(address: str, at: "duly.SignInProvider", tokens: Tokens) -> "tuple[StoredSignIn, duly.Access]":
    """Return the sign-in, once the Frontend has taken its ID token."""
    found = tokens.id_token
    try:
        with duly.Client(address, token=found.text, unreachable_after=UNREACHABLE_AFTER) as client:
            access = client.access()
    except duly.UnauthenticatedError as error:
        raise SignInError(
            f"the Frontend at {address} does not accept this sign-in: {error}. It takes ID tokens of "
            f"auth.oidc_issuer for auth.oidc_cli_client_id and auth.oidc_audience; yours is of {at.issuer} for {at.client_id}"
        ) from error
    except duly.DulyError as error:
        code = os.EX_UNAVAILABLE if isinstance(error, duly.UnavailableError) else 1
        raise SignInError(str(error), code) from error
    if not access.principal:
        raise SignInError(f"auth.mode = none: the Frontend at {address} identifies nobody")
    stored = StoredSignIn(
        address=address,
        issuer=at.issuer,
        client_id=at.client_id,
        scopes=at.scopes,
        id_token=found.text,
        expires_at=found.expires_at,
        refresh_token=tokens.refresh_token,
    )
    return stored, access


def revoke(sign_in: StoredSignIn) -> str:
    """Let the provider refuse the refresh token from now on (RFC 7009); return why it did not, empty: it did."""
    return asyncio.run(_revoke(sign_in))


async def _revoke(sign_in: StoredSignIn) -> str:
    provider, failure = open_provider(sign_in.issuer, sign_in.client_id, sign_in.scopes)
    try:
        url = (await provider.metadata()).get("revocation_endpoint")
        if not isinstance(url, str) or not is_secret_way(url):
            return f"{provider.host} offers no end of sign-ins"
        form = urlencode({"token": sign_in.refresh_token, "token_type_hint": "refresh_token"})
        await provider.post("revoke", url, form)
    except DulyError as error:
        return f"the sign-in was not ended at the provider: {failure.told(error)}"
    return ""
