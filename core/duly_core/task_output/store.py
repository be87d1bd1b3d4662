"""Writes and reads the output of tasks. The reader asks whether a run is over before it reads, so that it misses nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from duly_core.postgres.arrays import byteas, uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.task_output.statements import OUTPUT
from duly_wire.ids import TaskId
from duly_wire.output_rules import LATE_FOR

MOST_CHUNKS = 4096
"""Of one run, however small they are."""
MOST_RUNS = 5
"""Of one task: those before are forgotten."""
_PAGE = 1_000
_PAGE_BYTES = 768 * 1024
"""Of an answer, and one chunk more."""
_TRIM_STEPS = 8
"""A run has this part more than it may, at most, before its beginning is removed."""


class Claim(NamedTuple):
    """Under which a worker writes."""

    task_id: TaskId
    token: bytes


class ClaimedRun(NamedTuple):
    """What is known of a claim that is held, or that has just ended."""

    lambda_name: str
    fences: Sequence[int]
    """The runs that it can be of: only one if it is held."""


class NewChunk(NamedTuple):
    """What a run wrote, found valid."""

    task_id: TaskId
    fence: int
    number: int
    position: int
    size_bytes: int
    is_encrypted: bool
    content: bytes


class Chunk(NamedTuple):
    """What was written before."""

    fence: int
    number: int
    position: int
    size_bytes: int
    is_encrypted: bool
    content: bytes
    written_at: datetime


class Cursor(NamedTuple):
    """Where a reader is: behind this chunk of this run."""

    fence: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """What a reader gets next."""

    chunks: Sequence[Chunk]
    is_over: bool
    """The run, or the task, ended."""
    is_complete: bool
    """Nothing comes after these."""


async def claimed_runs(store: Store, claims: Sequence[Claim]) -> list[ClaimedRun | None]:
    """Return what is known of claims, in order; None: such a claim is not held, and did not end just now.

    Raises:
        StoreUnavailableError: ask again.
    """
    found: list[ClaimedRun | None] = [None] * len(claims)
    for place, name, fence, is_held, is_current in await store.run(
        OUTPUT["live_claims"], _parameters(claims)
    ):
        # the claim that ended last is of this run, or of the one before if the next one has begun
        fences = [fence] if is_current else [fence - 1] if is_held else [fence]
        found[place - 1] = ClaimedRun(name, fences)
    left = [place for place, each in enumerate(found) if each is None]
    if left:
        asked = _parameters([claims[place] for place in left]) | {"late_for": _ENDED_WITHIN}
        for place, name, fence in await store.run(OUTPUT["ended_claims"], asked):
            found[left[place - 1]] = ClaimedRun(name, [fence])
    return found


_ENDED_WITHIN = timedelta(seconds=30)
"""A worker may send the last output of a run so long after its end: if the Frontend was away meanwhile."""


def _parameters(claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "task_ids": uuids(claim.task_id for claim in claims),
        "tokens": uuids(claim.token for claim in claims),
    }


async def append(store: Store, chunks: Sequence[NewChunk], most_bytes: int) -> None:
    """Add chunks to the output of runs, of which each keeps its last `most_bytes`.

    Raises:
        StoreUnavailableError: the outcome is unknown; add them again.
    """
    full = sorted({(each.task_id, each.fence) for each in chunks if _is_full(each, most_bytes)})
    async with store.connection() as connection, connection.transaction():
        cursor = connection.cursor(binary=True)
        await cursor.execute(
            OUTPUT["append"].sql,
            {
                "task_ids": uuids(each.task_id for each in chunks),
                "fences": [each.fence for each in chunks],
                "numbers": [each.number for each in chunks],
                "positions": [each.position for each in chunks],
                "sizes": [each.size_bytes for each in chunks],
                "encrypted": [each.is_encrypted for each in chunks],
                "contents": byteas([each.content for each in chunks]),
            },
            prepare=True,
        )
        if full:
            await cursor.execute(
                OUTPUT["trim"].sql,
                {
                    "task_ids": uuids(task_id for task_id, _ in full),
                    "fences": [fence for _, fence in full],
                    "most_bytes": most_bytes,
                    "most_chunks": MOST_CHUNKS,
                    "most_runs": MOST_RUNS,
                },
                prepare=True,
            )


def _is_full(chunk: NewChunk, most_bytes: int) -> bool:
    """Whether the output of its run may have more than it may: seldom, for to find that out reads all of it."""
    step = most_bytes // _TRIM_STEPS
    before, after = chunk.position // step, (chunk.position + chunk.size_bytes) // step
    crosses = after > before and chunk.position + chunk.size_bytes > most_bytes
    return (
        crosses
        or chunk.number % (MOST_CHUNKS // _TRIM_STEPS) == 0
        or (chunk.number == 1 and chunk.fence > MOST_RUNS)
    )


async def tail(store: Store, task_id: TaskId, fence: int, tail_bytes: int) -> Cursor:
    """Return where to begin: with the last run that wrote something, or with this one, and near its end.

    Raises:
        StoreUnavailableError: ask again.
    """
    of_task = {"task_id": UUID(bytes=task_id)}
    for last, ends_at in await store.run(OUTPUT["last_run"], of_task | {"fence": fence}):
        if not tail_bytes:
            return Cursor(last, 0)
        asked = of_task | {"fence": last, "from_position": ends_at - tail_bytes}
        ((number,),) = await store.run(OUTPUT["place_of_tail"], asked)
        return Cursor(last, number or 0)
    return Cursor()


async def read(store: Store, task_id: TaskId, after: Cursor, fence: int = 0) -> Page | None:
    """Return what comes after this: of one run, or (0) of all; None: there is no such task.

    Raises:
        StoreUnavailableError: ask again.
    """
    of_task = {"task_id": UUID(bytes=task_id), "fence": fence}
    async with store.connection() as connection:
        states = await fetch(connection, OUTPUT["state"], of_task)
        if not states:
            return None
        ((is_over, over_for, created_at),) = states
        rows = await fetch(
            connection,
            OUTPUT["read"],
            of_task
            | {
                "created_at": created_at,
                "after_fence": after.fence,
                "after_number": after.number,
                "limit": _PAGE,
                "most_bytes": _PAGE_BYTES,
            },
        )
        is_last = len(rows) < _PAGE and sum(len(row[5]) for row in rows) < _PAGE_BYTES
    is_complete = is_over and (over_for is None or over_for > LATE_FOR) and is_last
    return Page([Chunk(*row) for row in rows], is_over, is_complete)
