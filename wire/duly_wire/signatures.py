"""Signs HTTP requests of Duly, by Standard Webhooks and by a scheme of its own beside it. Standard library only.

`duly.webhooks` has the receiver's side.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

KEY_PREFIX = "whsec_"
"""Stands before the base64 of a key, as Standard Webhooks writes it."""
KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
OWN = "duly1"
"""Names Duly's own signature among those of a request."""
# In the order in which they are signed.
ID, TIME, LAMBDA = "webhook-id", "webhook-timestamp", "duly-lambda"
ATTEMPT, FENCE, DEADLINE = "duly-attempt", "duly-fence", "duly-deadline"
SIGNATURE = "webhook-signature"

_STANDARD = "v1"
_SHORTEST_KEY = 24
_LONGEST_KEY = 64


def key_from_text(text: str) -> bytes:
    """Return the key that `whsec_` and base64 stand for. Raises ValueError, which does not quote it."""
    text = text.strip()
    if not text.startswith(KEY_PREFIX):
        raise ValueError(f"a signing key begins with {KEY_PREFIX}: make one with duly.webhooks.new_key()")
    try:
        key = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"what follows {KEY_PREFIX} is not base64") from None
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise ValueError(f"a signing key has {_SHORTEST_KEY} to {_LONGEST_KEY} bytes, not {len(key)}")
    return key


def new_key() -> str:
    """Return a new signing key as text: `whsec_` and the base64 of 32 random bytes."""
    import secrets

    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed_headers(
    keys: Mapping[str, bytes],
    body: bytes,
    *,
    task_id: str,
    lambda_name: str,
    attempt: int,
    fence: int,
    deadline: datetime,
    now: float | None = None,
) -> dict[str, str]:
    """Return the headers of a request: what it says of the task, and a signature with each of the keys.

    For whatever sends such requests: Duly's HTTP lambdas, and tests of receivers. `now` is in seconds since 1970; None: the
    clock's.
    """
    timestamp = str(int(time.time() if now is None else now))
    headers = {
        ID: task_id,
        TIME: timestamp,
        LAMBDA: lambda_name,
        ATTEMPT: str(attempt),
        FENCE: str(fence),
        DEADLINE: deadline.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    standard, own = _standard_content(headers, body), own_content(headers, body)
    headers[SIGNATURE] = " ".join(
        f"{_STANDARD},{sign(key, standard)} {OWN},{key_id}:{sign(key, own)}" for key_id, key in keys.items()
    )
    return headers


def _standard_content(headers: Mapping[str, str], body: bytes) -> bytes:
    return f"{headers[ID]}.{headers[TIME]}.".encode() + body


def own_content(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return what Duly's own signature covers: a line each, which no header's value can break, then the body."""
    said = (OWN, *(headers[name] for name in (ID, TIME, LAMBDA, ATTEMPT, FENCE, DEADLINE)))
    return "".join(f"{each}\n" for each in said).encode() + body


def sign(key: bytes, content: bytes) -> str:
    """Return the base64 of the HMAC-SHA256."""
    return binascii.b2a_base64(hmac.digest(key, content, "sha256"), newline=False).decode()
