"""Reads the ID tokens of people: whom an identity provider signed in, and the groups that it says."""

from collections.abc import Mapping
from typing import Any

from duly_core.access.principal import LONGEST_NAME, PERSON, Principal, group_principal
from duly_core.access.settings import AuthSettings
from duly_core.errors import UnauthenticatedError


def is_meant(claims: Mapping[str, Any], settings: AuthSettings) -> bool:
    """Whether a JWT says that it is an ID token for us. Nothing of it has been verified yet."""
    return claims.get("iss") == settings.oidc_issuer and not audiences(settings).isdisjoint(
        _texts(claims.get("aud"))
    )


def audiences(settings: AuthSettings) -> frozenset[str]:
    """Return the client ids whose ID tokens count."""
    said = [*settings.oidc_audience.split(","), settings.oidc_cli_client_id]
    return frozenset(each.strip() for each in said if each.strip())


def person_of(claims: Mapping[str, Any], settings: AuthSettings) -> Principal:
    """Return the person of verified claims, without a time.

    Raises:
        UnauthenticatedError: the claims name nobody.
    """
    party = claims.get("azp")
    if party is not None and party not in audiences(settings):
        raise UnauthenticatedError("this ID token is not accepted: it was made for another client (azp)")
    claim = settings.oidc_principal_claim
    said = claims.get(claim)
    if not isinstance(said, str) or not said or not said.isprintable() or said != said.strip():
        raise UnauthenticatedError(f"this ID token has no name in its claim {claim!r}")
    if claim == "email" and claims.get("email_verified") is not True:
        # otherwise anybody could enter somebody else's address at the provider
        raise UnauthenticatedError(
            "this ID token is not accepted: the provider does not say that the email is verified"
        )
    name = f"{PERSON}{said}"
    if len(name.encode()) > LONGEST_NAME:
        raise UnauthenticatedError(
            f"this ID token's claim {claim!r} is too long: a name has at most {LONGEST_NAME} bytes"
        )
    return Principal(name, groups=_groups(claims, settings.oidc_groups_claim))


def _groups(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    if not claim:
        return ()
    elsewhere = claims.get("_claim_names")
    if claim not in claims and isinstance(elsewhere, dict) and claim in elsewhere:
        raise UnauthenticatedError(
            f"this ID token leaves out its claim {claim!r}: too many groups. Let the provider send only those of this application"
        )
    said = claims.get(claim, [])
    if not isinstance(said, (str, list)):
        raise UnauthenticatedError(f"this ID token's claim {claim!r} is no list of names")
    return tuple(sorted({each for each in _texts(said) if _is_group(each)}))


def _is_group(name: str) -> bool:
    """Whether grants can be given to a group of this name."""
    return bool(name) and name.isprintable() and len(group_principal(name).encode()) <= LONGEST_NAME


def _texts(said: Any) -> list[str]:
    if isinstance(said, str):
        return [said]
    return [each for each in said if isinstance(each, str)] if isinstance(said, list) else []
