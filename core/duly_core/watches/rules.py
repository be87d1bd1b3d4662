"""What a watch is of, and where a reader of it is. Pure."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from duly_core.lambdas import patterns
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.lambdas.session_names import SessionId
from duly_wire.ids import id_text

WATCH_BEGAN, RUN_ENDED, TASK_ENDED, GRAPH_FINISHED = 0, 1, 2, 3
"""Kinds of events; constants.sql has them, too."""

_VERSION = 1
_BYTES = 1 + 16 + 8 + 1 + 8
_MOST_KIND = 127
_MOST_NUMBER = (1 << 63) - 1


class Cursor(NamedTuple):
    """Behind which event a reader is: they are in the order of transactions."""

    xid: int
    kind: int = 0
    seq: int = 0


class Event(NamedTuple):
    """What happened, as the store has it."""

    xid: int
    kind: int
    seq: int
    at: datetime
    lambda_name: str | None
    task_id: bytes | None
    graph: bytes | None
    session: str | None
    status: str | None
    run: int | None
    failure_kind: int | None
    next_at: datetime | None

    @property
    def cursor(self) -> Cursor:
        """Where a reader is that has read it."""
        return Cursor(self.xid, self.kind, self.seq)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a watch goes on: opaque to callers."""

    watch_id: bytes
    cursor: Cursor

    def __str__(self) -> str:
        xid, kind, seq = self.cursor
        numbers = xid.to_bytes(8) + kind.to_bytes(1) + seq.to_bytes(8)
        return (
            base64.urlsafe_b64encode(bytes([_VERSION]) + self.watch_id + numbers).rstrip(b"=").decode("ascii")
        )

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the position that a caller was told; None: it is none."""
        try:
            raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError, ValueError):
            return None
        if len(raw) != _BYTES or raw[0] != _VERSION:
            return None
        xid, kind, seq = int.from_bytes(raw[17:25]), raw[25], int.from_bytes(raw[26:])
        if max(xid, seq) > _MOST_NUMBER or kind > _MOST_KIND:
            return None
        return cls(raw[1:17], Cursor(xid, kind, seq))


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """What a watch is of: all that is named must fit. Nothing named: everything."""

    lambdas: tuple[str, ...] = ()
    """Patterns (patterns.py): one must cover the lambda."""
    graph: bytes | None = None
    session: SessionId | None = None

    def __str__(self) -> str:
        return json.dumps(
            {
                "lambdas": sorted(set(self.lambdas)),
                "graph": id_text(self.graph) if self.graph else "",
                "session": str(self.session) if self.session else "",
            },
            separators=(",", ":"),
        )

    def keys(self, readable: Sequence[str] = (EVERYTHING,)) -> list[str]:
        """Return what is to be written for it, at least: the narrowest that an index finds.

        `readable`: patterns of what the caller may read: nothing else is written for it.
        """
        if self.graph is not None:
            return [f"graph:{id_text(self.graph)}"]
        if self.session is not None:
            return [f"session:{self.session}"]
        wanted = self.lambdas or (EVERYTHING,)
        found = {patterns.shared(each, other) for each in wanted for other in readable} - {None}
        if EVERYTHING in found:
            return ["*"]
        keys = {_key_of(pattern) for pattern in found if pattern is not None}
        if EVERYTHING in wanted:
            keys.add("graphs")
        return sorted(keys)

    def fits(self, event: Event) -> bool:
        """Whether it is told of an event."""
        if self.graph is not None and event.graph != self.graph:
            return False
        if self.session is not None and event.session != str(self.session):
            return False
        if not self.lambdas:
            return True
        name = event.lambda_name
        if name is None:
            return EVERYTHING in self.lambdas
        return any(patterns.covers(pattern, name) for pattern in self.lambdas)


def _key_of(pattern: str) -> str:
    return f"prefix:{pattern[:-1]}" if patterns.is_prefix(pattern) else f"lambda:{pattern}"
