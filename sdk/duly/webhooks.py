"""Signs and verifies the HTTP requests of Duly. Free of gRPC, and of everything but the standard library.

A receiver of HTTP lambdas verifies each request before it acts on it:

    delivery = duly.webhooks.verify(request.headers, request.body, keys={"2026-11": key})
    ship(json.loads(delivery.body), once=delivery.task_id, fence=delivery.fence)

The scheme is Standard Webhooks (https://www.standardwebhooks.com): its libraries verify these requests, too. Their signature covers
the id, the time and the body. Duly's own one beside it also covers the lambda, the attempt, the fence and the deadline.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from duly.errors import SignatureError
from duly_wire import signatures
from duly_wire.signatures import KEY_ID, KEY_PREFIX, key_from_text, new_key, signed_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "COMPLETION_TOKEN",
    "KEY_ID",
    "KEY_PREFIX",
    "TOLERANCE",
    "Delivery",
    "Headers",
    "key_from_text",
    "new_key",
    "signed_headers",
    "verify",
]

TOLERANCE = timedelta(minutes=5)
"""How far the time of a request may be from the receiver's clock."""

_MOST_SIGNATURES = 20
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_COUNT = re.compile(r"[0-9]{1,19}")
_TASK, _TIME, _LAMBDA = signatures.ID, signatures.TIME, signatures.LAMBDA
_ATTEMPT, _FENCE, _DEADLINE = signatures.ATTEMPT, signatures.FENCE, signatures.DEADLINE
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
        key_id=_verified(_header(found, signatures.SIGNATURE), known, signatures.own_content(said, body)),
        body=body,
        completion_token=found.get(COMPLETION_TOKEN, ""),
    )


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


def _verified(made: str, keys: Mapping[str, bytes], content: bytes) -> str:
    """Return the id of the key that made one of these signatures."""
    for each in made.split(" ")[:_MOST_SIGNATURES]:
        version, _, rest = each.partition(",")
        key_id, _, signature = rest.partition(":")
        if version != signatures.OWN or (key := keys.get(key_id)) is None:
            continue
        if hmac.compare_digest(signature.encode(), signatures.sign(key, content).encode()):
            return key_id
        raise SignatureError(
            f"the signature with the key {key_id!r} is wrong: the request was forged or changed"
        )
    raise SignatureError(f"no signature with a key known here ({', '.join(sorted(keys)) or 'none'})")
