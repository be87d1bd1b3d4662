"""The token of a person who has signed in with `duly login`: renewed before it ends, by one command at a time."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import duly
from duly_cli.oidc.sign_in_file import StoredSignIn, locked, prepared, read_sign_in

EARLY = 30
"""Seconds before its end from which on an ID token is renewed: the clocks of this machine and of the Frontend may differ by as much."""


def token_names_of_environment() -> list[str]:
    """Return the variables that have a token."""
    from duly_wire.credentials import TOKEN, TOKEN_FILE  # it loads gRPC, which help does not need

    return [name for name in (TOKEN, TOKEN_FILE) if os.environ.get(name)]


def has_token_of_environment() -> bool:
    """Return whether the environment has a token, which counts for more than a sign-in."""
    return bool(token_names_of_environment())


def signed_in_token(address: str, clock: Callable[[], float] = time.time) -> "SignedInToken | None":
    """Return the token for an installation; None: nobody has signed in there, or the environment has a token.

    Raises:
        CredentialsError: the file of the sign-in cannot be used.
    """
    if has_token_of_environment():
        return None
    found = read_sign_in(address)
    return SignedInToken(found, clock) if found is not None else None


class SignedInToken:
    """Returns the ID token of now."""

    def __init__(self, sign_in: StoredSignIn, clock: Callable[[], float] = time.time) -> None:
        """Begin with what was read; `clock` returns seconds since 1970."""
        self._sign_in = sign_in
        self._now = clock

    def __call__(self) -> str:
        """Return it.

        Raises:
            CredentialsError: it has ended, and cannot be renewed.
        """
        if self._is_due(self._sign_in):
            # the caller may be an event loop; and a Ctrl-C must not lose the only use of a refresh token
            with ThreadPoolExecutor(1) as thread:
                self._sign_in = thread.submit(self._renewed).result()
        return self._sign_in.id_token

    def _is_due(self, sign_in: StoredSignIn) -> bool:
        left = sign_in.expires_at - self._now()
        return left <= 0 or (left <= EARLY and bool(sign_in.refresh_token))

    def _renewed(self) -> StoredSignIn:
        address = self._sign_in.address
        with locked(address):
            found = read_sign_in(address)
            if found is None:
                raise duly.CredentialsError(f"you have signed out of {address} meanwhile: run `duly login`")
            if not self._is_due(found):  # another command has renewed it
                return found
            if not found.refresh_token:
                raise duly.CredentialsError(_ended(address))
            try:
                with prepared(address) as keep:
                    return self._ask(found, keep)
            except OSError as error:
                if found.expires_at > self._now():
                    return found
                raise duly.CredentialsError(
                    f"your sign-in at {address} has to be renewed, and its file cannot be written: {error}"
                ) from error

    def _ask(self, before: StoredSignIn, keep: Callable[[StoredSignIn], None]) -> StoredSignIn:
        try:
            from duly_cli.oidc.open_provider import open_provider  # it needs Authlib
            from duly_core.oidc.errors import ProviderAwayError, ProviderRefusedError
        except ModuleNotFoundError as error:
            if before.expires_at > self._now():
                return before
            raise duly.CredentialsError(
                f"your sign-in at {before.address} has to be renewed, which needs Authlib and aiohttp: "
                "pip install 'duly[oidc]', or set DULY_TOKEN"
            ) from error

        provider, failure = open_provider(before.issuer, before.client_id, before.scopes)
        try:
            tokens = asyncio.run(provider.refresh(before.refresh_token, provider.read(before.id_token)))
        except ProviderAwayError as error:
            if before.expires_at > self._now():
                return before
            raise duly.CredentialsError(
                f"your sign-in at {before.address} has to be renewed: {failure.told(error)}. Try again, or set DULY_TOKEN"
            ) from error
        except ProviderRefusedError as error:
            keep(replace(before, refresh_token=""))
            if before.expires_at > self._now():
                return before
            raise duly.CredentialsError(_ended(before.address, str(error))) from error
        found = tokens.id_token
        renewed = replace(
            before, id_token=found.text, expires_at=found.expires_at, refresh_token=tokens.refresh_token
        )
        keep(renewed)
        if renewed.expires_at <= self._now():
            raise duly.CredentialsError(_ended(before.address))
        return renewed


def _ended(address: str, reason: str = "") -> str:
    return f"your sign-in at {address} has ended{f' ({reason})' if reason else ''}: run `duly login`"
