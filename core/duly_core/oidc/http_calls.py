"""Calls an identity provider: bounded in time and size, without redirects."""

import json
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import aiohttp

from duly_core.access.issuer_metadata import LONGEST_ANSWER
from duly_core.oidc.errors import ProviderAwayError

_WITHIN = aiohttp.ClientTimeout(total=5)
_HEADERS = {"Accept": "application/json"}


async def get(url: str) -> bytes:
    """Return what an address has.

    Raises:
        ProviderAwayError: no answer in time, or none that says OK.
    """
    status, content = await _call("GET", url, None, {})
    if status != 200:
        raise ProviderAwayError(f"{url} answers with status {status}")
    return content


async def post(url: str, body: str, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Send a form, and return the status and the JSON object of the answer, which may be empty.

    Raises:
        ProviderAwayError: no answer in time, or something else than JSON.
    """
    status, content = await _call("POST", url, body, headers)
    try:
        said = json.loads(content) if content else {}
    except ValueError:
        said = None
    if status >= 500 or status == 429 or not isinstance(said, dict):
        raise ProviderAwayError(f"{url} answers with status {status}")
    return status, said


async def _call(method: str, url: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    # a session for each call: people sign in seldom, and nothing is left to be closed
    try:
        async with (
            aiohttp.ClientSession(timeout=_WITHIN, trust_env=True) as session,
            session.request(
                method, url, data=body, headers={**_HEADERS, **headers}, allow_redirects=False, ssl=_tls()
            ) as response,
        ):
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > LONGEST_ANSWER:
                    raise ProviderAwayError(f"{url} answers with more than {LONGEST_ANSWER:,} bytes")
            return response.status, bytes(content)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        raise ProviderAwayError(f"{url} does not answer: {type(error).__name__}") from error


@cache
def _tls() -> ssl.SSLContext:
    """Return the authorities of the machine, or of SSL_CERT_FILE: reading them takes a while."""
    return ssl.create_default_context()
