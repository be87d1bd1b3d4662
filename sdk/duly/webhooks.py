"""Signs and verifies the HTTP requests of Duly. Free of gRPC, and of everything but the standard library.

A receiver of HTTP lambdas verifies each request before it acts on it:

    delivery = duly.webhooks.verify(request.headers, request.body, keys={"2026-11": key})
    ship(json.loads(delivery.body), once=delivery.task_id, fence=delivery.fence)

The scheme is Standard Webhooks (https://www.standardwebhooks.com): its libraries verify these requests, too. Their signature covers
the id, the time and the body. Duly's own one beside it also covers the lambda, the attempt, the fence and the deadline.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from duly.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY_PREFIX = "whsec_"
"""Stands before the base64 of a key, as Standard Webhooks writes it."""
KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
TOLERANCE = timedelta(minutes=5)
"""How far the time of a request may be from the receiver's clock."""

_SHORTEST_KEY = 24
_LONGEST_KEY = 64
_STANDARD = "v1"
_OWN = "duly1"
_MOST_SIGNATURES = 20
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_COUNT = re.compile(r"[0-9]{1,19}")
# In the order in which they are signed.
_TASK, _TIME, _LAMBDA = "webhook-id", "webhook-timestamp", "duly-lambda"
_ATTEMPT, _FENCE, _DEADLINE = "duly-attempt", "duly-fence", "duly-deadline"
_SIGNATURE = "webhook-signature"
COMPLETION_TOKEN = "duly-completion-token"  # noqa: S105 (the name of a header)
"""The header with the token by which a receiver completes the task later; no signature covers it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request that was verified: nobody changed what is said here."""

    task_id: str
    """The same for each attempt of the task: use it as the idempotency key."""
    lambda_name: str
    attempt: int
    """From 1: failures and crashes so far, plus one."""
    fence: int
    """Greater with each claim of the task: refuse a write whose fence is smaller than one that you have seen."""
    deadline: datetime
    """When Duly gives the request up (aware, UTC)."""
    sent_at: datetime
    key_id: str
    """Of the key that verified it."""
    body: bytes = field(repr=False)
    completion_token: str = field(repr=False, default="")
    """Answer 202 without Retry-After, and complete the task with it later (`Client.complete`). Keep it out of logs. No signature covers
    it; a wrong one completes nothing."""


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
        _TASK: task_id,
        _TIME: timestamp,
        _LAMBDA: lambda_name,
        _ATTEMPT: str(attempt),
        _FENCE: str(fence),
        _DEADLINE: deadline.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    standard, own = _standard_content(headers, body), _own_content(headers, body)
    headers[_SIGNATURE] = " ".join(
        f"{_STANDARD},{_sign(key, standard)} {_OWN},{key_id}:{_sign(key, own)}"
        for key_id, key in keys.items()
    )
    return headers


class Headers(Protocol):
    """Headers of a request as frameworks have them: a mapping, or a message of `http.server`."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return names and values."""


def verify(
    headers: Headers,
    body: bytes,
    keys: Mapping[str, bytes | str],
    *,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> Delivery:
    """Return what a request says, if one of the keys signed it and it is not too old.

    - `headers`: of the request, in any case; `body`: its bytes as they arrived, before anything parses them.
    - `keys`: by id: bytes, or text that begins with `whsec_`. Name the old and the new one while you change keys.
    - `tolerance`: how far its time may be from this clock. A request that is sent again within it passes: act once for each
      `task_id`, and refuse a `fence` that is smaller than the greatest that you have seen.
    - `now`: this clock; None: the system's.

    Raises SignatureError: answer 401, and do nothing. Raises ValueError for a key that is none.
    """
    known = {key_id: key if isinstance(key, bytes) else key_from_text(key) for key_id, key in keys.items()}
    found = {name.lower(): value for name, value in headers.items()}
    said = {name: _header(found, name) for name in (_TASK, _TIME, _LAMBDA, _ATTEMPT, _FENCE, _DEADLINE)}
    sent_at = _time(said[_TIME], datetime.now(UTC) if now is None else now, tolerance)
    return Delivery(
        task_id=said[_TASK],
        lambda_name=said[_LAMBDA],
        attempt=_count(said, _ATTEMPT),
        fence=_count(said, _FENCE),
        deadline=_deadline(said[_DEADLINE]),
        sent_at=sent_at,
        key_id=_verified(_header(found, _SIGNATURE), known, _own_content(said, body)),
        body=body,
        completion_token=found.get(COMPLETION_TOKEN, ""),
    )


def _standard_content(headers: Mapping[str, str], body: bytes) -> bytes:
    return f"{headers[_TASK]}.{headers[_TIME]}.".encode() + body


def _own_content(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return what Duly's own signature covers: a line each, which no header's value can break, then the body."""
    said = (_OWN, *(headers[name] for name in (_TASK, _TIME, _LAMBDA, _ATTEMPT, _FENCE, _DEADLINE)))
    return "".join(f"{each}\n" for each in said).encode() + body


def _sign(key: bytes, content: bytes) -> str:
    return binascii.b2a_base64(hmac.digest(key, content, "sha256"), newline=False).decode()


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise SignatureError(f"the request has no header {name}")
    if not value.isascii() or not value.isprintable():
        raise SignatureError(f"the header {name} is not one line of ASCII")
    return value


def _time(text: str, now: datetime, tolerance: timedelta) -> datetime:
    if _TIMESTAMP.fullmatch(text) is None:
        raise SignatureError(f"{_TIME} must be seconds since 1970")
    try:
        sent_at = datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError):
        raise SignatureError(f"{_TIME} must be seconds since 1970") from None
    if abs(now - sent_at) > tolerance:
        raise SignatureError(
            f"the request was sent {abs(now - sent_at).total_seconds():,.0f} s "
            f"{'before' if sent_at < now else 'after'} this clock's time, and {tolerance.total_seconds():g} s are allowed: "
            "it was replayed, or a clock is wrong"
        )
    return sent_at


def _count(said: Mapping[str, str], name: str) -> int:
    if _COUNT.fullmatch(said[name]) is None:
        raise SignatureError(f"{name} must be a whole number")
    return int(said[name])


def _deadline(text: str) -> datetime:
    try:
        deadline = datetime.fromisoformat(text)
    except ValueError:
        raise SignatureError(f"{_DEADLINE} must be a time of RFC 3339") from None
    if deadline.tzinfo is None:
        raise SignatureError(f"{_DEADLINE} must be a time of RFC 3339, with its zone")
    return deadline


def _verified(signatures: str, keys: Mapping[str, bytes], content: bytes) -> str:
    """Return the id of the key that made one of these signatures."""
    for each in signatures.split(" ")[:_MOST_SIGNATURES]:
        version, _, rest = each.partition(",")
        key_id, _, signature = rest.partition(":")
        if version != _OWN or (key := keys.get(key_id)) is None:
            continue
        if hmac.compare_digest(signature.encode(), _sign(key, content).encode()):
            return key_id
        raise SignatureError(
            f"the signature with the key {key_id!r} is wrong: the request was forged or changed"
        )
    raise SignatureError(f"no signature with a key known here ({', '.join(sorted(keys)) or 'none'})")
