"""Adds to the history of a task when the breaker of its lambda held it back."""

from collections.abc import Sequence

from duly_core.gates.breaker_history import Move
from duly_frontend.explain.event_kinds import STORE_CONSUMER
from duly_frontend.explain.text import one_line
from duly_wire.time_conversion import to_datetime
from duly_wire.v1 import explain_pb2

_MOST = 20
_BEGINS = {explain_pb2.HISTORY_KIND_SCHEDULED, explain_pb2.HISTORY_KIND_REDRIVEN}


def with_breaker(
    history: Sequence[explain_pb2.HistoryEvent], moves: Sequence[Move]
) -> list[explain_pb2.HistoryEvent]:
    """Return a history with the moves of the breaker while the task was live, and the one that holds it from the start.

    Both are oldest first. If there are many moves, the newest are told.
    """
    told: list[explain_pb2.HistoryEvent] = []
    left = list(moves)
    opened: Move | None = None
    is_live = False
    places = []
    for event in [*history, None]:
        while left and (event is None or left[0].at < to_datetime(event.happened_at)):
            move = left.pop(0)
            if is_live:
                places.append(len(told))
                told.append(_line(move, again=opened is not None))
            opened = move if move.is_open else None
        if event is None:
            break
        if event.kind in _BEGINS:
            is_live = True
            if opened is not None:
                places.append(len(told))
                told.append(_line(opened))
        elif event.kind == explain_pb2.HISTORY_KIND_ENDED:
            is_live = False
        told.append(event)
    dropped = set(places[:-_MOST])
    return [event for place, event in enumerate(told) if place not in dropped]


def _line(move: Move, *, again: bool = False) -> explain_pb2.HistoryEvent:
    does = ("opened again" if again else "opened") if move.is_open else "closed"
    event = explain_pb2.HistoryEvent(
        kind=explain_pb2.HISTORY_KIND_GATED if move.is_open else explain_pb2.HISTORY_KIND_UNGATED,
        service=STORE_CONSUMER,
        reason=one_line(f"the breaker of its lambda {does}: {move.reason}"),
    )
    event.happened_at.FromDatetime(move.at)
    return event
