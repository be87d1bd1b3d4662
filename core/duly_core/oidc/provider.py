"""The identity provider: where its pages are, and what it answers to codes and refresh tokens."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from duly_core.access.issuer_metadata import is_secret_way, metadata_url, read_metadata
from duly_core.oidc import http_calls
from duly_core.oidc.errors import ClientRefusedError, ProviderAwayError, ProviderRefusedError
from duly_core.oidc.id_token import IdToken, read_id_token

_FRESH = 600
"""Seconds for which its metadata is not fetched again."""
_RETRY = 5
"""Seconds after a fetch without an answer until the next one."""
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LONGEST_TEXT = 200
_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client"})
"""Errors that say nothing of the person."""


class SignIn(Protocol):
    """What binds the provider's answer to the sign-in that began here: three secrets of one use."""

    @property
    def state(self) -> str: ...
    @property
    def nonce(self) -> str: ...
    @property
    def verifier(self) -> str:
        """Of PKCE."""
        ...


class Calls(Protocol):
    """Who is told of the calls of a provider."""

    def answered(self, call: str) -> None:
        """A call has its answer."""
        ...

    def refused(self, call: str, error: str) -> None:
        """The answer is an error, with this code."""
        ...

    def failed(self, call: str, reason: str) -> None:
        """No usable answer came."""
        ...


@dataclass(frozen=True, slots=True)
class OidcClient:
    """What a provider knows of one client."""

    issuer: str
    client_id: str
    scopes: str
    redirect_uri: str
    """Where the provider sends browsers back."""
    unknown: str
    """What an error says if the provider does not know this client, such as `see console.oidc_client_id`."""
    read_secret: Callable[[], str] = str
    """Returns the client's secret; empty: it has none. Raises OSError or ValueError."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What it answers."""

    id_token: IdToken
    refresh_token: str
    """Empty: there is none."""


class Provider:
    """One identity provider, as one of its clients sees it."""

    def __init__(self, client: OidcClient, calls: Calls, clock: Callable[[], float] = time.time) -> None:
        """Make one; `clock` returns seconds since 1970."""
        self.client = client
        self.host = urlsplit(client.issuer).netloc
        self._calls = calls
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
        issuer = self.client.issuer
        try:
            content = await http_calls.get(metadata_url(issuer))
            self._metadata = read_metadata(issuer, content, "authorization_endpoint", "token_endpoint")
            self._read_at = time.monotonic()
            self._calls.answered("metadata")
        except (ProviderAwayError, ValueError) as error:
            self._failed_at = time.monotonic()
            self._calls.failed("metadata", str(error))

    async def sign_in_url(self, sign_in: SignIn) -> str:
        """Return the address at which a person signs in.

        Raises:
            ProviderAwayError: the provider does not say.
        """
        url: str = prepare_grant_uri(
            (await self.metadata())["authorization_endpoint"],
            self.client.client_id,
            "code",
            redirect_uri=self.client.redirect_uri,
            scope=self.client.scopes,
            state=sign_in.state,
            nonce=sign_in.nonce,
            code_challenge=create_s256_code_challenge(sign_in.verifier),
            code_challenge_method="S256",
        )
        return url

    async def sign_out_url(self, back: str) -> str:
        """Return the address at which a person signs out of the provider; empty: it has none, or does not answer.

        It has no ID token as a hint: that is valid for a while yet, and addresses stay in histories and logs.
        """
        try:
            url = (await self.metadata()).get("end_session_endpoint")
        except ProviderAwayError:
            return ""
        if not isinstance(url, str) or not is_secret_way(url):
            return ""
        said = [("client_id", self.client.client_id), ("post_logout_redirect_uri", back)]
        return str(add_params_to_uri(url, said))

    async def is_own(self, issuer: str) -> bool:
        """Whether an answer that names an issuer (RFC 9207) is of this provider; empty: it names none.

        Raises:
            ProviderAwayError: the provider does not say whether it always names itself.
        """
        required = (await self.metadata()).get("authorization_response_iss_parameter_supported") is True
        return issuer == self.client.issuer or not (issuer or required)

    async def redeem(self, code: str, sign_in: SignIn) -> Tokens:
        """Return the tokens of a person who has signed in.

        Raises:
            ProviderAwayError: the provider does not answer.
            ProviderRefusedError: the code is not valid, or its tokens are not for this sign-in.
        """
        said = await self.grant(
            "code",
            "authorization_code",
            code=code,
            redirect_uri=self.client.redirect_uri,
            code_verifier=sign_in.verifier,
        )
        return self.tokens(said, nonce=sign_in.nonce)

    async def refresh(self, refresh_token: str, before: IdToken) -> Tokens:
        """Return newer tokens of the same person.

        Raises:
            ProviderAwayError: the provider does not answer.
            ProviderRefusedError: the refresh token is no longer valid, or the tokens are somebody else's.
        """
        said = await self.grant("refresh", "refresh_token", refresh_token=refresh_token)
        if said.get("id_token") is None:  # a provider may leave it out: then the session ends as it was to
            return Tokens(before, "")
        found = self.tokens(said)
        if found.id_token.subject != before.subject:
            raise ProviderRefusedError("the refreshed ID token is somebody else's")
        return Tokens(found.id_token, found.refresh_token or refresh_token)

    def read(self, id_token: str) -> IdToken:
        """Return an ID token that was read before, which may have expired."""
        client = self.client
        return read_id_token(id_token, issuer=client.issuer, client_id=client.client_id, now=0)

    def tokens(self, said: Mapping[str, Any], nonce: str = "") -> Tokens:
        """Return the tokens of an answer; `nonce`: that of the request, empty if it had none.

        Raises:
            ProviderRefusedError: they are not for this sign-in.
        """
        found = read_id_token(
            said.get("id_token"),
            issuer=self.client.issuer,
            client_id=self.client.client_id,
            now=self._now(),
            nonce=nonce,
        )
        return Tokens(found, _text(said.get("refresh_token")))

    async def grant(self, call: str, grant_type: str, **form: str) -> dict[str, Any]:
        """Return the token endpoint's answer to a grant; `call` is its name in reports.

        Raises:
            ProviderAwayError: the provider does not answer.
            ClientRefusedError: it does not know this client.
            ProviderRefusedError: it answers with an error.
        """
        metadata = await self.metadata()
        return await self.post(call, metadata["token_endpoint"], prepare_token_request(grant_type, **form))

    async def post(self, call: str, url: str, body: str) -> dict[str, Any]:
        """Send a form to one of the provider's addresses, as this client; otherwise as `grant`."""
        metadata = await self.metadata()
        try:
            secret = self.client.read_secret()
        except (OSError, ValueError) as error:
            self._calls.failed(call, f"the client's secret cannot be read: {error}")
            raise ProviderAwayError("the client's secret cannot be read") from error
        auth = ClientAuth(self.client.client_id, secret, _auth_method(metadata, secret))
        url, headers, body = auth.prepare("POST", url, dict(_FORM), body)
        try:
            status, said = await http_calls.post(url, body, headers)
        except ProviderAwayError as error:
            self._calls.failed(call, str(error))
            raise
        if status == 200:
            self._calls.answered(call)
            return said
        code = shown(_text(said.get("error")))
        self._calls.refused(call, code)
        if code in _CLIENT_ERRORS:
            raise ClientRefusedError(f"{self.host} refuses this client ({code}): {self.client.unknown}")
        raise ProviderRefusedError(f"{self.host} refuses: {code or status}", code)


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
