"""Read what nodes that were claimed know of their graphs: their labels, and the results of those before them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS
from duly_core.tasks.lifecycle import Status
from duly_wire.ids import TaskId

MOST_PREDECESSORS = 1_000
_MOST_BYTES = 1024 * 1024
_MOST_PREDECESSORS_IN_ALL = 5_000
_MOST_BYTES_IN_ALL = 2 * _MOST_BYTES
PLACE_BYTES = 256
"""What a node's own label and graph cost in an answer, and what a predecessor does beyond its result."""

_STATUSES = {str(status): status for status in Status}


class Predecessor(NamedTuple):
    """A node that another one waits for."""

    label: str
    task_id: TaskId
    status: Status | None
    """None: its task was removed."""
    result: bytes | None
    encoding: int
    omitted: bool
    """It has a result, for which there was no room."""
    uses: Sequence[Mapping[str, Any]] = ()
    """What the result uses of attachments, as JSON."""


class GraphPlace(NamedTuple):
    """What a node knows of its graph."""

    label: str
    predecessors: list[Predecessor]
    truncated: bool
    """There are others."""


async def graph_places(
    store: Store, task_ids: Sequence[TaskId], room: int | None = None
) -> dict[TaskId, GraphPlace]:
    """Return the places of nodes by task id; what all have together is bounded, for it goes into one answer.

    `room` is how many bytes they may have in all; a node has its label, and one predecessor, however little it is.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not task_ids:
        return {}
    each = (_MOST_BYTES_IN_ALL * 2 if room is None else max(0, room)) // len(task_ids) - PLACE_BYTES
    most = max(
        1, min(MOST_PREDECESSORS, _MOST_PREDECESSORS_IN_ALL // len(task_ids), each // 2 // PLACE_BYTES)
    )
    most_bytes = min(_MOST_BYTES, _MOST_BYTES_IN_ALL // len(task_ids), each - most * PLACE_BYTES)
    rows = await store.run(
        READS["graph_places"],
        {"task_ids": uuids(sorted(task_ids)), "most": most + 1, "most_bytes": max(0, most_bytes)},
    )
    places: dict[TaskId, GraphPlace] = {}
    for task_id, own_label, label, from_task, status, result, encoding, has_result, uses in rows:
        place = places.get(task_id)
        if place is None:
            place = places[task_id] = GraphPlace(own_label, [], truncated=False)
        if label is None:
            continue
        if len(place.predecessors) == most:
            places[task_id] = place._replace(truncated=True)
            continue
        place.predecessors.append(
            Predecessor(
                label,
                from_task,
                _STATUSES[status] if status else None,
                result,
                encoding or 1,
                has_result and result is None,
                uses or (),
            )
        )
    return places
