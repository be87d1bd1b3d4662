"""Positions of a watch in several cells, and one answer of those of the cells. No I/O."""

import base64
import binascii
import json
from collections.abc import Mapping

from duly_core.rpc.requests.problem import Problem
from duly_core.watches.rules import Position
from duly_wire.v1 import watches_pb2

_MARK = "cells:"
"""No cell's own position begins so."""
_LONGEST = 65_536
_MOST_BYTES = 2 * 1024 * 1024
"""Of the events of one answer: each has a position in every cell."""


def read_positions(after: str, default_cell: str) -> dict[str, str]:
    """Return the position in each cell. One of a single cell is of the default cell: it was a sole store before.

    Raises:
        Problem: it is no position of ours.
    """
    if not after.startswith(_MARK):
        return {default_cell: after} if after else {}
    if len(after) <= _LONGEST:
        try:
            read = json.loads(base64.b64decode(after[len(_MARK) :], b"-_", validate=True))
            return {str(cell): str(position) for cell, position in dict(read).items()}
        except (binascii.Error, ValueError, TypeError, RecursionError):
            pass
    raise Problem("after", "is no position of a watch")


def watch_id_of(position: str) -> bytes:
    """Return the id of the watch of a cell's own position; empty: it is none."""
    parsed = Position.parse(position)
    return b"" if parsed is None else parsed.watch_id


def is_of_several(after: str) -> bool:
    """Return whether a position is one of several cells."""
    return after.startswith(_MARK)


def write_positions(positions: Mapping[str, str]) -> str:
    """Return the position of a watch in several cells."""
    text = json.dumps(dict(sorted(positions.items())), separators=(",", ":"))
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def merge(
    before: Mapping[str, str], answers: Mapping[str, watches_pb2.WatchResponse]
) -> watches_pb2.WatchResponse:
    """Return one answer, with the events in order of their time. What has no room comes with the next call.

    Args:
        before: the position in each cell that the call had.
        answers: of the cells that answered; without errors.
    """
    whole = watches_pb2.WatchResponse()
    positions = dict(before)
    left = {cell: len(answer.events) for cell, answer in answers.items()}
    room = _MOST_BYTES
    # stable: events of one cell stay in their order, for each is later than the one before
    every = [(event, cell) for cell, answer in answers.items() for event in answer.events]
    latest: dict[str, tuple[int, int]] = {}
    keyed = []
    for event, cell in every:
        latest[cell] = max(latest.get(cell, (0, 0)), (event.at.seconds, event.at.nanos))
        keyed.append((latest[cell], cell, event))
    keyed.sort(key=lambda each: each[0])
    for _, cell, event in keyed:
        positions[cell] = event.position
        added = whole.events.add()
        added.CopyFrom(event)
        added.position = write_positions(positions)
        left[cell] -= 1
        room -= added.ByteSize()
        if room < 0:
            break
    for cell, answer in answers.items():
        if not left[cell]:
            positions[cell] = answer.position
    whole.position = write_positions(positions)
    return whole
