"""Fetches the keys of an identity provider from where its metadata says they are."""

import json
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from typing import Any

import jwt

from duly_core.access.issuer_metadata import LONGEST_ANSWER, metadata_url, read_metadata

_TIMEOUT_S = 5
_PART = 64 * 1024


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead from https to somewhere else."""

    def redirect_request(self, *_args: Any, **_others: Any) -> None:
        return None


def fetch_keys(issuer: str) -> list[jwt.PyJWK]:
    """Return the keys that sign an issuer's tokens.

    Raises:
        OSError: it does not answer, or answers with an error.
        ValueError: the answer is something else than metadata or keys.
        PyJWTError: there is no usable key.
    """
    ends_at = time.monotonic() + _TIMEOUT_S
    metadata = read_metadata(issuer, _get(metadata_url(issuer), ends_at), "jwks_uri")
    key_set = json.loads(_get(metadata["jwks_uri"], ends_at))
    if not isinstance(key_set, dict):
        raise ValueError("its key set is no JSON object")  # noqa: TRY004 (of an answer's content)
    return [key for key in jwt.PyJWKSet.from_dict(key_set).keys if key.public_key_use in ("sig", None)]


def _get(url: str, ends_at: float) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 (https or loopback)
    try:
        with opener.open(request, timeout=max(0.1, ends_at - time.monotonic())) as response:
            return _read(response, ends_at)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise OSError(f"{url} answers with status {error.code}") from None


def _read(response: HTTPResponse, ends_at: float) -> bytes:
    data = bytearray()
    while part := response.read1(_PART):
        data += part
        if len(data) > LONGEST_ANSWER:
            raise ValueError(f"the answer is longer than {LONGEST_ANSWER:,} bytes")
        if time.monotonic() > ends_at:  # a timeout of urllib is that of one read
            raise TimeoutError(f"no complete answer within {_TIMEOUT_S} s")
    return bytes(data)
