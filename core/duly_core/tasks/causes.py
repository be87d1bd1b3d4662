"""Groups failures by their cause: a lambda, a kind of failure, an exception and a message. No I/O."""

import hashlib
import re
from typing import NamedTuple

_LONGEST = 300
_EXHAUSTED = re.compile(r"failed \d+ times?; the last: ")
"""Heads what the last attempt said of a task that has no other."""
_EXCEPTION = re.compile(r"((?:\w+\.)*[A-Z]\w*)(?:: (.*))?")
_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "…"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\b0x[0-9a-f]+\b", re.IGNORECASE), "…"),
    (re.compile(r"'[^']{1,200}'"), "'…'"),
    (re.compile(r'"[^"]{1,200}"'), '"…"'),
    (re.compile(r"\d+(?:[.,]\d+)*"), "…"),
)
"""What differs from one failure to the next of the same cause: ids, numbers, what is quoted."""


class Cause(NamedTuple):
    """What failures have in common."""

    lambda_name: str
    kind: int
    exception: str
    """The type that the callback raised; empty: it raised nothing."""
    message: str
    """Without what varies."""

    @property
    def fingerprint(self) -> str:
        """What an address and a form name it by."""
        joined = "\0".join((self.lambda_name, str(self.kind), self.exception, self.message))
        return hashlib.sha256(joined.encode()).hexdigest()[:16]


def cause_of(lambda_name: str, kind: int, message: str) -> Cause:
    """Return the cause of a failure."""
    line = _EXHAUSTED.sub("", message.partition("\n")[0], count=1)
    found = _EXCEPTION.fullmatch(line)
    exception, text = (found[1], found[2] or "") if found else ("", line)
    return Cause(lambda_name, kind, exception, normalised(text))


def normalised(message: str) -> str:
    """Return a message without what varies from one failure to the next.

    >>> normalised("row 17 of 'ann' (0190a8a0-0000-7000-8000-000000000000) is gone")
    "row … of '…' (…) is gone"
    """
    for pattern, mark in _VARYING:
        message = pattern.sub(mark, message)
    return message[:_LONGEST]
