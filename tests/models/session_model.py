"""Sessions in plain Python: which task of each may run, and what an end does to the others."""

from dataclasses import dataclass, field
from datetime import datetime

from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Session
from duly_wire.enums import SessionOrder, SessionPolicy
from duly_wire.ids import TaskId


@dataclass
class Member:
    """A task of a session."""

    task_id: TaskId
    session: Session
    due_at: datetime
    seq: int
    status: Status = Status.WAITING
    is_doomed: bool = False
    was_claimed: bool = False

    @property
    def place(self) -> tuple[float, int]:
        return (self.due_at.timestamp() if self.session.order is SessionOrder.DUE else 0.0, self.seq)


@dataclass
class Line:
    """A session with live tasks, or a blocked one."""

    live: list[Member] = field(default_factory=list)
    head: Member | None = None
    blocked_by: TaskId | None = None

    @property
    def waiting(self) -> list[Member]:
        """Those that wait for their turn, the next one first."""
        turn = [each for each in self.live if each.status is Status.WAITING and not each.is_doomed]
        return sorted(turn, key=lambda each: each.place)


class SessionModel:
    """All sessions, and every task that ever was in one."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.members: dict[TaskId, Member] = {}
        self._seq = 0

    def join(self, task_id: TaskId, session: Session, due_at: datetime) -> Member:
        """Note a member that is scheduled, or redriven; `settle` says who is the head."""
        self._seq += 1
        was_claimed = task_id in self.members
        member = self.members[task_id] = Member(task_id, session, due_at, self._seq, was_claimed=was_claimed)
        line = self.lines.setdefault(session.key, Line())
        line.live.append(member)
        if line.blocked_by == task_id:
            line.blocked_by, line.head, member.status = None, member, Status.NEW
        return member

    def settle(self, keys: set[str]) -> None:
        """After a schedule or a redrive: the first of a new session runs; an earlier one goes before an untouched head."""
        for key in keys:
            line = self.lines[key]
            if line.head is None and line.blocked_by is None:
                self._elect(line)
            first = next(iter(line.waiting), None)
            head = line.head
            if head is None or first is None or first.session.order is not SessionOrder.DUE:
                continue
            if head.status is Status.NEW and not head.was_claimed and first.place < head.place:
                head.status, first.status, line.head = Status.WAITING, Status.NEW, first

    def end(self, task_id: TaskId, status: Status) -> None:
        """A task ends: the session goes on, is blocked, or fails."""
        member = self.members[task_id]
        line = self.lines[member.session.key]
        member.status = status
        line.live.remove(member)
        if line.head is member:
            line.head = None
            policy = member.session.policy if status is Status.FATAL_FAILURE else SessionPolicy.SKIP
            if policy is SessionPolicy.FAIL_REST and line.waiting:
                line.blocked_by = task_id
                for each in line.waiting:
                    each.is_doomed = True
            elif policy is SessionPolicy.BLOCK:
                line.blocked_by = task_id
                return
            else:
                self._elect(line)
        elif member.is_doomed and not any(each.is_doomed for each in line.live) and line.head is None:
            line.blocked_by = None
            self._elect(line)
        self._close(member.session.key)

    def unblock(self, key: str) -> bool:
        """End the block of a session; whether there was one."""
        line = self.lines.get(key)
        if line is None or line.blocked_by is None or any(each.is_doomed for each in line.live):
            return False
        line.blocked_by = None
        self._elect(line)
        self._close(key)
        return True

    def _elect(self, line: Line) -> None:
        if first := next(iter(line.waiting), None):
            line.head, first.status = first, Status.NEW

    def _close(self, key: str) -> None:
        line = self.lines[key]
        if not line.live and line.blocked_by is None:
            del self.lines[key]
