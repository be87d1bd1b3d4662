"""Reads JWTs: signed by a key of the issuer's set, meant for us, not expired."""

import asyncio
import json
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
    find_key = _from_url(settings.jwks) if "://" in settings.jwks else _from_file(Path(settings.jwks))

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
        return Principal(name, datetime.fromtimestamp(claims["exp"], UTC))

    async def read_apart(token: str) -> Principal:
        # the key set may have to be fetched, and a signature takes a fraction of a millisecond
        return await asyncio.to_thread(read, token)

    return read_apart


def _from_url(url: str) -> Callable[[str], "jwt.PyJWK"]:
    import jwt

    if not url.startswith("https://"):
        raise SettingsError(f"auth.jwks: {url!r} must be a file or an https URL")
    client = jwt.PyJWKClient(url, cache_keys=True, timeout=_FETCHED_WITHIN_S)
    return client.get_signing_key_from_jwt


def _from_file(path: Path) -> Callable[[str], "jwt.PyJWK"]:
    import jwt

    try:
        keys = {key.key_id: key for key in jwt.PyJWKSet.from_dict(json.loads(path.read_text())).keys}
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise SettingsError(f"auth.jwks: {path} is no JSON Web Key Set: {error}") from error

    def find(token: str) -> "jwt.PyJWK":
        key_id = jwt.get_unverified_header(token).get("kid")
        if key_id not in keys:
            raise jwt.InvalidKeyError(f"no key {key_id!r} in {path}")
        return keys[key_id]

    return find
