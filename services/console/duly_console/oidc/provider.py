"""The identity provider: where its pages are, and what it answers to codes and refresh tokens."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from duly_console import events
from duly_console.oidc import http_calls
from duly_console.oidc.attempt import Attempt
from duly_console.oidc.errors import ProviderAwayError, ProviderRefusedError
from duly_console.oidc.id_token import IdToken, read_id_token
from duly_console.settings import ConsoleSettings
from duly_core.access.issuer_metadata import is_secret_way, metadata_url, read_metadata

CALLBACK = "/sign-in/callback"
"""The path to which the provider sends browsers back."""

_FRESH = 600
"""Seconds for which its metadata is not fetched again."""
_RETRY = 5
"""Seconds after a fetch without an answer until the next one."""
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LONGEST_TEXT = 200
_OUR_FAULT = frozenset({"invalid_client", "unauthorized_client"})
"""Errors that say nothing of the person."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What it answers."""

    id_token: IdToken
    refresh_token: str
    """Empty: there is none."""


class Provider:
    """One identity provider, to which this console is one client."""

    def __init__(
        self,
        settings: ConsoleSettings,
        base_url: str,
        read_secret: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make one.

        Args:
            settings: of the console.
            base_url: the console's address in browsers.
            read_secret: returns the client's secret; empty: it has none.
            clock: seconds since 1970.
        """
        self.issuer = settings.oidc_issuer
        self.base_url = base_url
        self.host = urlsplit(settings.oidc_issuer).netloc
        self._client_id = settings.oidc_client_id
        self._scopes = settings.oidc_scopes
        self._read_secret = read_secret
        self._now = clock
        self._metadata: Mapping[str, Any] = {}
        self._read_at = self._failed_at = float("-inf")
        self._reading = asyncio.Lock()

    async def metadata(self) -> Mapping[str, Any]:
        """Return what the provider says of itself. While it does not answer, that is what it said last.

        Raises:
            ProviderAwayError: it never answered.
        """
        if self._is_due():
            async with self._reading:
                if self._is_due():
                    await self._read()
        if not self._metadata:
            raise ProviderAwayError(f"{self.host} does not answer")
        return self._metadata

    def _is_due(self) -> bool:
        now = time.monotonic()
        return now - self._read_at > _FRESH and now - self._failed_at > _RETRY

    async def _read(self) -> None:
        try:
            content = await http_calls.get(metadata_url(self.issuer))
            self._metadata = read_metadata(self.issuer, content, "authorization_endpoint", "token_endpoint")
            self._read_at = time.monotonic()
            events.provider_answered("metadata")
        except (ProviderAwayError, ValueError) as error:
            self._failed_at = time.monotonic()
            events.provider_failed("metadata", str(error))

    async def sign_in_url(self, attempt: Attempt) -> str:
        """Return the address at which a person signs in.

        Raises:
            ProviderAwayError: the provider does not say.
        """
        url: str = prepare_grant_uri(
            (await self.metadata())["authorization_endpoint"],
            self._client_id,
            "code",
            redirect_uri=self._callback,
            scope=self._scopes,
            state=attempt.state,
            nonce=attempt.nonce,
            code_challenge=create_s256_code_challenge(attempt.verifier),
            code_challenge_method="S256",
        )
        return url

    async def sign_out_url(self) -> str:
        """Return the address at which a person signs out of the provider; empty: it has none, or does not answer.

        It has no ID token as a hint: that is valid for a while yet, and addresses stay in histories and logs.
        """
        try:
            url = (await self.metadata()).get("end_session_endpoint")
        except ProviderAwayError:
            return ""
        if not isinstance(url, str) or not is_secret_way(url):
            return ""
        said = [("client_id", self._client_id), ("post_logout_redirect_uri", f"{self.base_url}/sign-in")]
        return str(add_params_to_uri(url, said))

    async def is_own(self, issuer: str) -> bool:
        """Whether an answer that names an issuer (RFC 9207) is of this provider; empty: it names none.

        Raises:
            ProviderAwayError: the provider does not say whether it always names itself.
        """
        required = (await self.metadata()).get("authorization_response_iss_parameter_supported") is True
        return issuer == self.issuer or not (issuer or required)

    async def redeem(self, code: str, attempt: Attempt) -> Tokens:
        """Return the tokens of a person who has signed in.

        Raises:
            ProviderAwayError: the provider does not answer.
            ProviderRefusedError: the code is not valid, or its tokens are not for this attempt.
        """
        said = await self._ask(
            "code",
            "authorization_code",
            code=code,
            redirect_uri=self._callback,
            code_verifier=attempt.verifier,
        )
        return Tokens(self._id_token(said, nonce=attempt.nonce), _text(said.get("refresh_token")))

    async def refresh(self, refresh_token: str, before: IdToken) -> Tokens:
        """Return newer tokens of the same person.

        Raises:
            ProviderAwayError: the provider does not answer.
            ProviderRefusedError: the refresh token is no longer valid, or the tokens are somebody else's.
        """
        said = await self._ask("refresh", "refresh_token", refresh_token=refresh_token)
        if said.get("id_token") is None:  # a provider may leave it out: then the session ends as it was to
            return Tokens(before, "")
        found = self._id_token(said)
        if found.subject != before.subject:
            raise ProviderRefusedError("the refreshed ID token is somebody else's")
        return Tokens(found, _text(said.get("refresh_token")) or refresh_token)

    def read(self, id_token: str) -> IdToken:
        """Return an ID token that was read before, which may have expired."""
        return read_id_token(id_token, issuer=self.issuer, client_id=self._client_id, now=0)

    @property
    def _callback(self) -> str:
        return f"{self.base_url}{CALLBACK}"

    def _id_token(self, said: Mapping[str, Any], nonce: str = "") -> IdToken:
        return read_id_token(
            said.get("id_token"),
            issuer=self.issuer,
            client_id=self._client_id,
            now=self._now(),
            nonce=nonce,
        )

    async def _ask(self, call: str, grant_type: str, **form: str) -> dict[str, Any]:
        metadata = await self.metadata()
        body = prepare_token_request(grant_type, **form)
        try:
            secret = self._read_secret()
        except (OSError, ValueError) as error:
            events.provider_failed(call, f"console.oidc_client_secret_file cannot be read: {error}")
            raise ProviderAwayError("console.oidc_client_secret_file cannot be read") from error
        auth = ClientAuth(self._client_id, secret, _auth_method(metadata, secret))
        url, headers, body = auth.prepare("POST", metadata["token_endpoint"], dict(_FORM), body)
        try:
            status, said = await http_calls.post(url, body, headers)
        except ProviderAwayError as error:
            events.provider_failed(call, str(error))
            raise
        if status == 200:
            events.provider_answered(call)
            return said
        code = shown(_text(said.get("error")))
        events.provider_refused(call, code)
        if code in _OUR_FAULT:
            raise ProviderAwayError(
                f"{self.host} refuses this console ({code}): see console.oidc_client_id and console.oidc_client_secret_file"
            )
        raise ProviderRefusedError(f"{self.host} refuses: {code or status}")


def _auth_method(metadata: Mapping[str, Any], secret: str) -> str:
    if not secret:
        return "none"
    known = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"


def _text(said: object) -> str:
    return said if isinstance(said, str) else ""


def shown(text: str) -> str:
    """Return what a provider says, as far as it may be shown."""
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST_TEXT])


def secret_reader(path: str) -> Callable[[], str]:
    """Return what reads the client's secret: again for each call, so that it may be replaced."""
    return (lambda: Path(path).read_text("utf-8").strip()) if path else (lambda: "")
