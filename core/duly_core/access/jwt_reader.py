"""Reads JWTs of services and ID tokens of people: signed by a key of the issuer's set, meant for us, not expired."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duly_core.access.issuer_metadata import issuer_problem
from duly_core.access.person_reader import audiences, is_meant, person_of
from duly_core.access.principal import LONGEST_NAME, Principal, check_not_reserved
from duly_core.access.settings import AuthSettings
from duly_core.errors import SettingsError, UnauthenticatedError

if TYPE_CHECKING:
    import jwt

    from duly_core.access.jwks_file import FileKeys
    from duly_core.access.jwks_url import FetchedKeys

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]
"""Asymmetric ones only: with the others, who can check a token can make one."""

JwtReader = Callable[[str], Awaitable[Principal]]

_LEEWAY = timedelta(minutes=1)
"""By how much a provider's clock may be ahead: people sign in a moment after their ID token was made."""

_Claims = dict[str, Any]


def open_jwt_reader(settings: AuthSettings) -> JwtReader | None:
    """Return what reads a JWT; None: JWTs are not accepted.

    Raises:
        SettingsError: the key set cannot be read, or settings do not fit.
    """
    if settings.oidc_audience and not settings.oidc_issuer:
        raise SettingsError("auth.oidc_audience needs auth.oidc_issuer: who makes the ID tokens")
    if settings.oidc_cli_client_id and not settings.oidc_issuer:
        raise SettingsError("auth.oidc_cli_client_id needs auth.oidc_issuer: where people sign in")
    if not settings.jwks and not settings.oidc_issuer:
        return None
    try:
        import jwt
    except ImportError as error:
        needing = "auth.jwks" if settings.jwks else "auth.oidc_issuer"
        raise SettingsError(f"{needing} needs PyJWT: pip install 'duly[jwt]'") from error
    read_service = _service_reader(settings) if settings.jwks else None
    if not settings.oidc_issuer:
        return read_service
    read_person = _person_reader(settings)

    async def read_either(token: str) -> Principal:
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError as error:
            raise UnauthenticatedError(f"this JWT is not accepted: {error}") from error
        # each verifies all of it
        if read_service is None or is_meant(claims, settings):
            return await read_person(token)
        return await read_service(token)

    return read_either


def _service_reader(settings: AuthSettings) -> JwtReader:
    from duly_core.access.jwks_file import FileKeys  # they need PyJWT
    from duly_core.access.jwks_url import FetchedKeys

    keys = FetchedKeys.of(settings.jwks) if "://" in settings.jwks else FileKeys(Path(settings.jwks))
    verify = _verifier(keys, settings.jwt_audience, settings.jwt_issuer or None)

    async def read(token: str) -> Principal:
        claims = await verify(token)
        name = claims.get(settings.jwt_principal_claim)
        if not isinstance(name, str) or not name:
            raise UnauthenticatedError(f"this JWT has no claim {settings.jwt_principal_claim!r}")
        if not name.isprintable() or len(name.encode()) > LONGEST_NAME:
            raise UnauthenticatedError(
                f"this JWT's claim {settings.jwt_principal_claim!r} is no name: at most {LONGEST_NAME} bytes, printable"
            )
        check_not_reserved(name)
        return Principal(name, _expiry(claims))

    return read


def _person_reader(settings: AuthSettings) -> JwtReader:
    from duly_core.access.issuer_keys import fetch_keys  # it needs PyJWT
    from duly_core.access.jwks_url import FetchedKeys

    if problem := issuer_problem(settings.oidc_issuer):
        raise SettingsError(f"auth.oidc_issuer: {problem}")
    if not audiences(settings):
        raise SettingsError("auth.oidc_issuer needs auth.oidc_audience: the client id of the console")
    if not settings.oidc_principal_claim:
        raise SettingsError("auth.oidc_principal_claim: name a claim, such as sub")
    keys = FetchedKeys(lambda **_how: fetch_keys(settings.oidc_issuer))
    verify = _verifier(keys, sorted(audiences(settings)), settings.oidc_issuer, _LEEWAY)

    async def read(token: str) -> Principal:
        claims = await verify(token)
        return replace(person_of(claims, settings), expires_at=_expiry(claims))

    return read


def _verifier(
    keys: "FetchedKeys | FileKeys",
    audience: str | list[str],
    issuer: str | None,
    leeway: timedelta = timedelta(0),
) -> Callable[[str], Awaitable[_Claims]]:
    """Return what verifies a JWT, and returns its claims. With a leeway, its beginning may be in the future by so much."""
    import jwt

    from duly_core.access.jwks_file import FileKeys

    required = ["exp", "aud"] if issuer is None else ["exp", "aud", "iss"]

    def decode(token: str, find_key: "Callable[[str], jwt.PyJWK]") -> _Claims:
        try:
            claims: _Claims = jwt.decode(
                token,
                find_key(token),
                algorithms=_ALGORITHMS,
                audience=audience,
                issuer=issuer,
                leeway=leeway,
                options={"require": required},
            )
        except jwt.PyJWTError as error:
            raise UnauthenticatedError(f"this JWT is not accepted: {error}") from error
        if _expiry(claims) <= datetime.now(UTC):  # the leeway is for its beginning only
            raise UnauthenticatedError("this JWT is not accepted: Signature has expired")
        return claims

    async def verify(token: str) -> _Claims:
        # a signature takes a fraction of a millisecond
        if isinstance(keys, FileKeys):
            return await asyncio.to_thread(decode, token, keys.find)
        try:
            key = await keys.find(token)
        except jwt.PyJWTError as error:
            raise UnauthenticatedError(f"this JWT is not accepted: {error}") from error
        return await asyncio.to_thread(decode, token, lambda _token: key)

    return verify


def _expiry(claims: _Claims) -> datetime:
    try:
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UnauthenticatedError("this JWT is not accepted: its exp is no time") from error
