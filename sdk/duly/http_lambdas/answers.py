"""Turns an HTTP answer into the outcome of an attempt. No I/O; no part of a body gets into a message."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from duly.attachments.attachment import MARK
from duly.callbacks.outcomes import (
    CallbackOutcome,
    CompleteLater,
    FatalFailure,
    RetriableFailure,
    Snooze,
    Success,
)
from duly.callbacks.payload import decode, encode
from duly.errors import PayloadError
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_RETRY_AFTER = timedelta(days=1)
"""What a receiver may ask for; a longer one counts as this."""

_SHORTEST_SNOOZE = timedelta(seconds=1)
"""A receiver that says 0 would be asked without a pause."""
_LONGEST_HOST = 253
_ACCEPTED = 202
_TOO_EARLY = frozenset((408, 425))
"""Answers of 4xx that say nothing of the request itself."""
_BUSY = frozenset((429, 503))


def outcome_of(
    status: int,
    headers: Mapping[str, str],
    body: bytes | None,
    now: datetime,
    completion_timeout: timedelta | None,
) -> CallbackOutcome:
    """Return what an answer means; `headers` by names in lower case, `body` None: it is too large.

    `completion_timeout`: how long a receiver has that completes the task by token; None: it completes nothing, and 202 says that it
    has what was posted.
    """
    if status == _ACCEPTED:
        delay = retry_after(headers, now)
        if delay is not None:
            return Snooze(max(delay, _SHORTEST_SNOOZE))
        if "retry-after" in headers:  # it asks to be asked again, and so completes nothing
            return RetriableFailure(
                "the receiver answered 202 with a Retry-After that is neither seconds nor a date"
            )
        return Success() if completion_timeout is None else CompleteLater(completion_timeout)
    if 200 <= status < 300:
        return _success(headers, body)
    if 300 <= status < 400:
        return FatalFailure(
            f"the receiver answered {status}, a redirect{_target(headers)}: Duly follows none"
        )
    if status in _BUSY:
        return RetriableFailure(f"the receiver answered {status}", retry_after(headers, now))
    if 400 <= status < 500 and status not in _TOO_EARLY:
        return FatalFailure(f"the receiver answered {status}")
    return RetriableFailure(f"the receiver answered {status}")


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return the delay that Retry-After asks for, in seconds or as a date; None: none that can be read."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        seconds = min(int(text[:12]), int(LONGEST_RETRY_AFTER.total_seconds()))
        return timedelta(seconds=seconds)
    try:
        at = email.utils.parsedate_to_datetime(text)
        delay = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(delay, timedelta()), LONGEST_RETRY_AFTER)


def _success(headers: Mapping[str, str], body: bytes | None) -> CallbackOutcome:
    if body is None:
        return FatalFailure(
            "the receiver's answer is larger than the lambda's result_limit: answer with less"
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        return FatalFailure("the receiver compressed its answer, which Duly had not asked for")
    if not body:
        return Success()
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _json(body)
    if kind.startswith("text/"):
        try:
            return Success(body.decode())
        except UnicodeDecodeError:
            return Success(body)
    return Success(body)


def _json(body: bytes) -> CallbackOutcome:
    if MARK in body:  # a receiver may not name what others stored
        return FatalFailure("the receiver's answer names an attachment, which only callbacks in Python can")
    try:
        value = decode(body, task_pb2.ENCODING_JSON)
    except PayloadError as error:
        return FatalFailure(f"the receiver's answer says that it is JSON, and is {error.problem}")
    if b"\\" in body and MARK in encode(value)[0]:  # written with escapes
        return FatalFailure("the receiver's answer names an attachment, which only callbacks in Python can")
    return Success(value)


def _target(headers: Mapping[str, str]) -> str:
    """Return where a redirect leads: the host only, for the rest of a URL may be a secret."""
    try:
        host = urlsplit(headers.get("location", "")).hostname or ""
    except ValueError:
        host = ""
    return f" to {host[:_LONGEST_HOST]!r}" if host else ""
