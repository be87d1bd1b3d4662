"""Sessions: tasks that run one at a time, in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly.errors import InvalidTaskError
from duly.tasks.arguments import wrong_type
from duly.transport.enum_members import member
from duly.transport.message_fields import view
from duly_wire.enums import SessionOrder, SessionPolicy, TaskStatus

if TYPE_CHECKING:
    from duly_wire.v1 import sessions_pb2


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a task: its tasks run one at a time, in order, whatever their hosts and their lambdas, of one namespace.

    >>> Session("vlan-7", on_failure=SessionPolicy.BLOCK).order.name
    'SCHEDULED'
    """

    key: str
    # Use one order for all tasks of a session.
    order: SessionOrder = SessionOrder.SCHEDULED
    # What becomes of the session if this task ends as FATAL_FAILURE.
    on_failure: SessionPolicy = SessionPolicy.SKIP

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of its message. Raises InvalidTaskError for an empty key, an order or a policy that is invalid."""
        if not self.key:
            raise InvalidTaskError("a session's key must not be empty", "session.key")
        return {
            "key": self.key,
            "order": member("session.order", self.order, SessionOrder),
            "on_failure": member("session.on_failure", self.on_failure, SessionPolicy),
        }


def session_of(session: Session | str) -> Session:
    """Return a session, of which the key alone may be given. Raises InvalidTaskError for what is neither."""
    made = session if isinstance(session, Session) else Session(session)
    if not isinstance(made.key, str):
        raise wrong_type("session", made.key, "a key, which is a text, or a duly.Session")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """A session that has live tasks or is blocked, as it stood when the Frontend was asked."""

    key: str
    # Of the lambdas of its tasks; empty: the default one.
    namespace: str
    # Tasks that have not ended.
    length: int
    # The one task that may run, and its status; None while the session is blocked.
    head_task_id: str | None
    head_status: TaskStatus | None
    # The dead letter that blocks the session, or whose failure ends the tasks that wait.
    blocked_by_task_id: str | None
    blocked_at: datetime | None
    # Tasks that end because of that failure, without a run.
    failing: int
    # Those that wait, in the order in which they will run; from `get_session` only.
    waiting_task_ids: tuple[str, ...] = ()
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @property
    def is_blocked(self) -> bool:
        """True if no task runs until the failed one is redriven or the session is unblocked."""
        return self.blocked_by_task_id is not None and not self.failing

    @classmethod
    def from_proto(cls, state: sessions_pb2.SessionState, waiting: tuple[str, ...] = ()) -> SessionState:
        """Return the view of a session as it came over the wire."""
        return view(
            cls,
            state,
            head_task_id=state.head_task_id or None,
            blocked_by_task_id=state.blocked_by_task_id or None,
            waiting_task_ids=waiting,
        )
