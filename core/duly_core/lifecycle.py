"""The state machine as data: every status a task can have, and every move between them.

Nothing here does anything. `store/transitions.sql` writes the moves; a test holds its headers
against this table, and docs/lifecycle.md draws the same arrows.
"""

import enum
from dataclasses import dataclass


class Status(enum.StrEnum):
    """A task's status, spelled as the store spells it."""

    NEW = "new"
    WAITING = "waiting"
    ENQUEUED = "enqueued"
    CLAIMED = "claimed"
    PROCESSING = "processing"
    RETRIABLE_FAILURE = "retriable_failure"
    SUCCESS = "success"
    FATAL_FAILURE = "fatal_failure"
    CANCELLED = "cancelled"
    DROPPED = "dropped"


FINAL = frozenset({Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED, Status.DROPPED})
"""Statuses of a task that ended; its assoc row is gone. Nothing but a redrive, of fatal_failure, leads out of them."""

LIVE = frozenset(Status) - FINAL
"""Statuses of an assoc row; each has a next trigger, but WAITING may have none: the end of another task releases it."""

HELD = frozenset({Status.CLAIMED, Status.PROCESSING})
"""Statuses in which somebody holds a claim token, and every write must carry it."""

READY = frozenset({Status.NEW, Status.RETRIABLE_FAILURE})
"""Statuses that the Store Consumer enqueues once their next trigger passes."""


class Writer(enum.StrEnum):
    """Who makes a move."""

    FRONTEND = "frontend"
    STORE_CONSUMER = "store_consumer"
    HSC = "hsc"


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow: a named statement that takes a task from one of `before` to one of `after`."""

    name: str
    before: frozenset[Status]
    after: frozenset[Status]
    writer: Writer


def _move(
    name: str,
    before: frozenset[Status] | set[Status],
    after: Status | set[Status],
    writer: Writer,
) -> Move:
    return Move(name, frozenset(before), frozenset(after if isinstance(after, set) else {after}), writer)


_S, _W = Status, Writer

MOVES: tuple[Move, ...] = (
    _move("schedule", set(), _S.NEW, _W.FRONTEND),
    _move("schedule_in_sessions", set(), {_S.NEW, _S.WAITING}, _W.FRONTEND),
    _move("tick", set(), _S.NEW, _W.STORE_CONSUMER),
    _move("schedule_graph", set(), {_S.NEW, _S.WAITING}, _W.FRONTEND),
    _move("grow_graph", set(), {_S.NEW, _S.WAITING}, _W.HSC),
    _move("enqueue", READY, {_S.ENQUEUED, _S.WAITING}, _W.STORE_CONSUMER),
    _move("enqueue_again", {_S.ENQUEUED}, _S.ENQUEUED, _W.STORE_CONSUMER),
    _move("dequeue", {_S.ENQUEUED}, _S.NEW, _W.STORE_CONSUMER),
    _move("put_back", {_S.ENQUEUED}, _S.NEW, _W.STORE_CONSUMER),
    _move("reclaim", HELD, {_S.ENQUEUED, _S.RETRIABLE_FAILURE}, _W.STORE_CONSUMER),
    _move("quarantine_silent", HELD, _S.FATAL_FAILURE, _W.STORE_CONSUMER),
    _move("cancel_silent", HELD, _S.CANCELLED, _W.STORE_CONSUMER),
    _move("expire", READY | {_S.ENQUEUED}, _S.FATAL_FAILURE, _W.STORE_CONSUMER),
    _move("end_waiting", {_S.WAITING}, {_S.FATAL_FAILURE, _S.DROPPED}, _W.STORE_CONSUMER),
    _move("claim_work", READY, {_S.CLAIMED, _S.WAITING}, _W.HSC),
    _move("claim_again", {_S.CLAIMED}, _S.CLAIMED, _W.HSC),
    _move("claim", {_S.ENQUEUED}, _S.CLAIMED, _W.HSC),
    _move("heartbeat", HELD, _S.PROCESSING, _W.HSC),
    _move("finish", HELD, _S.SUCCESS, _W.HSC),
    _move("fail", HELD, {_S.RETRIABLE_FAILURE, _S.FATAL_FAILURE, _S.CANCELLED}, _W.HSC),
    _move("snooze", HELD, _S.NEW, _W.HSC),
    _move("release", HELD, _S.NEW, _W.HSC),
    _move("cancel", READY | {_S.ENQUEUED}, _S.CANCELLED, _W.FRONTEND),
    _move("cancel_waiting", {_S.WAITING}, _S.CANCELLED, _W.FRONTEND),
    _move("cancel_graph", {_S.WAITING}, _S.CANCELLED, _W.FRONTEND),
    _move("unblock_sessions", {_S.WAITING}, _S.NEW, _W.FRONTEND),
    _move("request_cancel", HELD, set(HELD), _W.FRONTEND),
    _move("redrive", {_S.FATAL_FAILURE}, {_S.NEW, _S.WAITING}, _W.FRONTEND),
    _move("update_pending", READY | {_S.ENQUEUED}, _S.NEW, _W.FRONTEND),
    _move("update_waiting", {_S.WAITING}, _S.WAITING, _W.FRONTEND),
)
