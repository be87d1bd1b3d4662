"""Reads JWTs: signed by a key of the issuer's set, meant for us, not expired."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duly_core.access.principal import Principal
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError, UnauthenticatedError

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
"""Asymmetric ones only: with the others, who can check a token can make one."""

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
    from duly_core.access.jwks_file import FileKeys  # they need PyJWT
    from duly_core.access.jwks_url import FetchedKeys

    keys = FetchedKeys.of(settings.jwks) if "://" in settings.jwks else FileKeys(Path(settings.jwks))

    def read(token: str, find_key: "Callable[[str], jwt.PyJWK]") -> Principal:
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
        # a signature takes a fraction of a millisecond
        if isinstance(keys, FileKeys):
            return await asyncio.to_thread(read, token, keys.find)
        try:
            key = await keys.find(token)
        except jwt.PyJWTError as error:
            raise UnauthenticatedError(f"this JWT is not accepted: {error}") from error
        return await asyncio.to_thread(read, token, lambda _token: key)

    return read_apart
