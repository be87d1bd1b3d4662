"""What an identity provider says of itself (OpenID Connect Discovery). No I/O."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from duly_core.config.addresses import is_loopback

LONGEST_ANSWER = 1 << 20
"""Bytes of what a provider answers."""


def is_secret_way(url: str) -> bool:
    """Whether nobody else can read or change what is exchanged with an address: https, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(f"{host}:0")))


def issuer_problem(issuer: str) -> str:
    """Return why an issuer cannot be used; empty: it can."""
    if not is_secret_way(issuer) or urlsplit(issuer).query or urlsplit(issuer).fragment:
        return f"{issuer!r} is no issuer: write its https URL, as its provider shows it"
    return ""


def metadata_url(issuer: str) -> str:
    """Return where an issuer's metadata is.

    >>> metadata_url("https://login.example.com/realms/duly/")
    'https://login.example.com/realms/duly/.well-known/openid-configuration'
    """
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def read_metadata(issuer: str, content: bytes, *needed: str) -> Mapping[str, Any]:
    """Return an issuer's metadata.

    Args:
        issuer: whose it must be.
        content: the answer.
        needed: the names of addresses that it must have.

    Raises:
        ValueError: it is something else, or lacks an address.
    """
    said = json.loads(content)
    if not isinstance(said, dict):
        raise ValueError("its metadata is no JSON object")  # noqa: TRY004 (of an answer's content)
    if said.get("issuer") != issuer:
        raise ValueError(f"its metadata is of the issuer {said.get('issuer')!r}, not of {issuer!r}")
    for name in needed:
        if not isinstance(said.get(name), str) or not is_secret_way(said[name]):
            raise ValueError(f"its metadata has no https address as {name}")
    return said
