"""Reads JWTs: signed by a key of the issuer's set, meant for us, not expired."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duly_core.access.principal import Principal
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError, UnauthenticatedError

if TYPE_CHECKING:
    import jwt

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
"""Asymmetric ones only: with the others, who can check a token can make one."""

_FETCHED_WITHIN_S = 5
_FRESH_S = 300
"""How long a key may still be accepted that the issuer took out of its set."""
_STALE_S = 3_600
"""How long the same while the issuer does not answer."""
_ASKED_EVERY_S = 10
_LONGEST_NAME = 255

JwtReader = Callable[[str], Awaitable[Principal]]


def open_jwt_reader(settings: AuthSettings) -> JwtReader | None:
    """Return what reads a JWT; None: JWTs are not accepted.

    Raises:
        SettingsError: the key set cannot be read.
    """
    if not settings.jwks:
        return None
    try:
        import jwt
    except ImportError as error:
        raise SettingsError("auth.jwks needs PyJWT: pip install 'duly[jwt]'") from error
    from duly_core.access.jwks_file import FileKeys  # it needs PyJWT

    find_key = _from_url(settings.jwks) if "://" in settings.jwks else FileKeys(Path(settings.jwks)).find

    def read(token: str) -> Principal:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                find_key(token),
                algorithms=_ALGORITHMS,
                audience=settings.jwt_audience,
                issuer=settings.jwt_issuer or None,
                options={"require": ["exp", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise UnauthenticatedError(f"this JWT is not accepted: {error}") from error
        name = claims.get(settings.jwt_principal_claim)
        if not isinstance(name, str) or not name:
            raise UnauthenticatedError(f"this JWT has no claim {settings.jwt_principal_claim!r}")
        if not name.isprintable() or len(name.encode()) > _LONGEST_NAME:
            raise UnauthenticatedError(
                f"this JWT's claim {settings.jwt_principal_claim!r} is no name: at most {_LONGEST_NAME} bytes, printable"
            )
        try:
            return Principal(name, datetime.fromtimestamp(int(claims["exp"]), UTC))
        except (ValueError, OverflowError, OSError) as error:
            raise UnauthenticatedError("this JWT is not accepted: its exp is no time") from error

    async def read_apart(token: str) -> Principal:
        # the key set may have to be fetched, and a signature takes a fraction of a millisecond
        return await asyncio.to_thread(read, token)

    return read_apart


def _from_url(url: str) -> Callable[[str], "jwt.PyJWK"]:
    import jwt

    if not url.startswith("https://"):
        raise SettingsError(f"auth.jwks: {url!r} must be a file or an https URL")
    # not `cache_keys`: a key that the issuer took out of its set would be accepted for ever
    return FetchedKeys(jwt.PyJWKClient(url, timeout=_FETCHED_WITHIN_S).get_signing_keys).find


class FetchedKeys:
    """The keys of an issuer, fetched again from time to time, and when a token names one that is unknown."""

    def __init__(self, fetch: Callable[..., list["jwt.PyJWK"]]) -> None:
        """Make one without keys; `fetch(refresh=True)` returns those of now."""
        self._fetch = fetch
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = self._asked_at = float("-inf")
        self._lock = threading.Lock()

    def find(self, token: str) -> "jwt.PyJWK":
        """Return the key that a token says it is signed by.

        Raises:
            PyJWTError: the issuer has no such key, or its keys cannot be fetched.
        """
        import jwt

        key_id = jwt.get_unverified_header(token).get("kid")
        is_known = key_id in self._keys
        if not is_known or time.monotonic() - self._read_at > _FRESH_S:
            self._refresh(waits=not is_known)
        key = self._keys.get(key_id)
        if key is None:
            raise jwt.InvalidKeyError(f"the issuer has no key {key_id!r}")
        return key

    def _refresh(self, *, waits: bool) -> None:
        """Fetch the keys, unless that was tried a moment ago: who sends nonsense must not load the issuer."""
        import jwt

        if not self._lock.acquire(blocking=waits):
            return  # another thread fetches them
        try:
            now = time.monotonic()
            if now - self._asked_at < _ASKED_EVERY_S:
                return
            self._asked_at = now
            self._keys = {key.key_id: key for key in self._fetch(refresh=True)}
            self._read_at = now
        except jwt.PyJWTError:
            if time.monotonic() - self._read_at > _STALE_S:
                self._keys = {}
                raise
        finally:
            self._lock.release()
