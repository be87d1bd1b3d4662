"""Reads ID tokens. The Frontend verifies the signature, with each call that shows one. No I/O."""

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc.errors import JoseError

from duly_core.oidc.errors import ProviderRefusedError


@dataclass(frozen=True, slots=True)
class IdToken:
    """What a client needs to know of one."""

    text: str
    subject: str
    expires_at: int
    """In seconds since 1970."""


def read_id_token(text: object, *, issuer: str, client_id: str, now: float, nonce: str = "") -> IdToken:
    """Return an ID token of the issuer for this client.

    Args:
        text: of the answer of the token endpoint, which TLS protects.
        issuer: that must have made it.
        client_id: whom it must be for.
        now: seconds since 1970.
        nonce: of the request; empty: it is the answer to a refresh token, which need not have one.

    Raises:
        ProviderRefusedError: it is something else, or has expired.
    """
    if not isinstance(text, str) or not text:
        raise ProviderRefusedError("the answer has no ID token: the scopes must have openid")
    header, payload = _parts(text)
    if str(header.get("alg", "none")).lower() == "none":
        raise ProviderRefusedError("the ID token is not signed")
    options = {
        "iss": {"essential": True, "value": issuer},
        "aud": {"essential": True, "value": client_id},
        "sub": {"essential": True},
    }
    claims = CodeIDToken(payload, header, options, {"client_id": client_id, "nonce": nonce})
    try:
        # its beginning is for the Frontend to judge, whose clock decides
        claims.validate(now=max(now, _number(payload, "iat"), _number(payload, "nbf")))
    except (JoseError, ValueError, TypeError) as error:
        raise ProviderRefusedError(f"the ID token is not for this sign-in: {_reason(error)}") from error
    subject, expires_at = payload["sub"], _number(payload, "exp")
    if not isinstance(subject, str) or not subject or expires_at <= now:
        raise ProviderRefusedError("the ID token names nobody, or has expired")
    return IdToken(text, subject, int(expires_at))


def _parts(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        header, payload, _signature = text.split(".")
        read = [json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (header, payload)]
    except (ValueError, RecursionError) as error:
        raise ProviderRefusedError("the ID token is no JWT") from error
    if not all(isinstance(part, dict) for part in read):
        raise ProviderRefusedError("the ID token is no JWT")
    return read[0], read[1]


def _number(payload: dict[str, Any], name: str) -> float:
    value = payload.get(name, 0)
    return (
        value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53 else 0
    )


def _reason(error: Exception) -> str:
    """Return the claim in question: texts of hostile tokens belong on no page."""
    claim = getattr(error, "claim", None)
    return f"its claim {claim!r} is missing or another" if isinstance(claim, str) else type(error).__name__
