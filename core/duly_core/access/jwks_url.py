"""The keys that sign JWTs, fetched from the issuer again from time to time."""

import asyncio
import time
from collections.abc import Callable
from http.client import HTTPException

import jwt
import structlog

from duly_core.errors import SettingsError

log = structlog.get_logger()

_FETCHED_WITHIN_S = 5
_FRESH_S = 300
"""How long a key may still be accepted that the issuer took out of its set."""
_STALE_S = 3_600
"""How long the same while the issuer does not answer."""
_ASKED_EVERY_S = 10
_LONGEST_ERROR = 500
"""Characters of a log line: an answer may be in it."""


class FetchedKeys:
    """The keys of an issuer. They are fetched again when they are old, and when a token names one that is unknown.

    One fetch runs at a time, in a thread. Whoever can be answered with the keys that are there does not wait for it, but for the
    caller that begins it: each 10 s, one call may take 5 s while the issuer does not answer.
    """

    def __init__(self, fetch: Callable[..., list[jwt.PyJWK]]) -> None:
        """Make one without keys; `fetch(refresh=True)` returns those of now."""
        self._fetch = fetch
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = self._asked_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._problem: Exception | None = None
        """Why the last fetch failed."""

    @classmethod
    def of(cls, url: str) -> "FetchedKeys":
        """Return the keys at an address.

        Raises:
            SettingsError: it is none of https.
        """
        if not url.startswith("https://"):
            raise SettingsError(f"auth.jwks: {url!r} must be a file or an https URL")
        # not `cache_keys`: a key that the issuer took out of its set would be accepted for ever
        return cls(jwt.PyJWKClient(url, timeout=_FETCHED_WITHIN_S).get_signing_keys)

    async def find(self, token: str) -> jwt.PyJWK:
        """Return the key that a token says it is signed by.

        Raises:
            PyJWTError: the issuer has no such key, or its keys cannot be fetched.
        """
        key_id = jwt.get_unverified_header(token).get("kid")
        is_known = key_id in self._keys
        begins = (not is_known or self._age() > _FRESH_S) and self._begin()
        if self._fetching is not None and (begins or not is_known or self._age() > _STALE_S):
            # a caller that gives up, or waits too long, does not end the fetch
            await asyncio.wait([self._fetching], timeout=_FETCHED_WITHIN_S)
        if self._age() > _STALE_S:
            raise jwt.PyJWKClientError("the issuer's keys cannot be fetched") from self._problem
        key = self._keys.get(key_id)
        if key is None:
            raise jwt.InvalidKeyError(f"the issuer has no key {key_id!r}")
        return key

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    def _begin(self) -> bool:
        """Begin a fetch, unless one runs or began a moment ago: who sends nonsense must not load the issuer."""
        if self._fetching is not None or time.monotonic() - self._asked_at < _ASKED_EVERY_S:
            return False
        self._asked_at = time.monotonic()
        self._fetching = asyncio.create_task(self._refresh())
        return True

    async def _refresh(self) -> None:
        began_at = time.monotonic()
        try:
            self._keys = {key.key_id: key for key in await asyncio.to_thread(self._fetch, refresh=True)}
            self._read_at = began_at
            self._problem = None
        except (jwt.PyJWTError, OSError, HTTPException, ValueError, TypeError, AttributeError) as error:
            # the last three: the answer is not JSON, or not of the shape of a key set
            self._problem = error
            log.warning("keys of JWTs not fetched", error=f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
        finally:
            self._fetching = None
