"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.transport.message_fields import view, wire_member
from duly_wire.enums import SearchKind, TaskStatus

if TYPE_CHECKING:
    from datetime import datetime

    from duly_wire.v1 import inspection_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One thing that a search found."""

    kind: SearchKind
    # Of a task, graph or host; the name of a lambda; the key of a session; the fingerprint of a cause.
    id: str
    # Of a task or a cause; else empty.
    lambda_name: str = ""
    # Of a session; empty: the default one.
    namespace: str = ""
    # The name of a graph or host, the owner of a lambda, what failed of a cause.
    text: str = ""
    # Of a task; None: it is none.
    status: TaskStatus | None = None
    # When a task or graph was made; when a host reported last.
    at: datetime | None = None
    # Live ones of a session, dead letters of a cause, open nodes of a graph.
    tasks: int = 0
    # A session is blocked, a host has stopped, a graph has a failure that it does not handle.
    is_marked: bool = False

    @classmethod
    def from_proto(cls, hit: inspection_pb2.SearchHit) -> SearchHit:
        """Return the view of what came over the wire."""
        status = wire_member(TaskStatus, hit.status) if hit.status else None
        return view(cls, hit, status=status)
