"""The exclusive right to run: give it, keep it alive, take it back. Every write compares the token."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg import AsyncCursor
from psycopg.rows import RowMaker

from duly_core.config.live_sections import LONGEST_LEASE
from duly_core.errors import StoreUnavailableError
from duly_core.fairness.cursors import TurnCursors
from duly_core.fairness.store import FairLambdas
from duly_core.gates.rules import NO_GATES, GateSet
from duly_core.gates.scans import GateScans
from duly_core.gates.sweeps import dequeue
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import byteas, int2s, intervals, texts, timestamps, uuids
from duly_core.postgres.pool import Step, Store, fetch
from duly_core.postgres.rows import named
from duly_core.postgres.statements import ENTITIES, FAIR, GATED, GATED_FAIR, LOCKS, READS, TRANSITIONS
from duly_core.tasks.checkpoints import keep_checkpoints
from duly_core.tasks.task import (
    Applied,
    ClaimedTask,
    HeartbeatAnswer,
    Proposal,
    ReleasedClaim,
    TaskHeartbeat,
    Token,
)
from duly_wire.enums import Priority
from duly_wire.ids import TaskId

_CLAIMED = named(ClaimedTask)
_FAR_AHEAD = timedelta(days=365)


async def claim(
    store: Store,
    asked: Sequence[tuple[Proposal, str]],
    claim_timeout: timedelta,
    gates: GateSet = NO_GATES,
    freed: Callable[[Collection[str]], object] = lambda _: None,
) -> list[ClaimedTask | None]:
    """Claim what is enqueued, each for its holder; None for each proposal that was refused, in order.

    A proposal whose token holds the task already is answered as the first time: its reply was lost. Its lease starts again.
    What gates hold is refused, and waits in the store again: `freed` is told of the lambdas that its units make due.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same tokens.
    """
    batch = sorted(asked, key=lambda each: each[0].task_id)
    closed = [*gates.all_of({proposal.lambda_name for proposal, _ in batch})] if gates else ()
    if closed and (due := await dequeue(store, closed, [proposal.task_id for proposal, _ in batch])):
        freed(due)
    rows = await store.run_as(
        _CLAIMED,
        TRANSITIONS["claim"],
        {
            "task_ids": uuids(proposal.task_id for proposal, _ in batch),
            "tokens": uuids(proposal.token for proposal, _ in batch),
            "lambdas": texts([proposal.lambda_name for proposal, _ in batch]),
            "holders": texts([holder for _, holder in batch]),
            "claim_timeout": claim_timeout,
        },
    )
    claimed = {task.token: task for task in rows if not task.is_stale}
    if refused := [(each.task_id, each.token) for each, _ in batch if each.token not in claimed]:
        terms = {"claim_timeout": claim_timeout, "longest_lease": LONGEST_LEASE}
        for task in await store.run_as(_CLAIMED, TRANSITIONS["claim_repeated"], _pairs(refused) | terms):
            claimed[task.token] = task
    return [claimed.get(proposal.token) for proposal, _ in asked]


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller of ClaimWork."""

    holder: str
    token_prefix: bytes


class Pick(NamedTuple):
    """Take so many tasks of a queue, those passed over that earlier picks of the same look may take."""

    queue: QueueKey
    size: int
    skip: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a look for work found."""

    tasks: list[ClaimedTask]
    ahead: dict[QueueKey, timedelta] | None
    """How long until each queue has something to run; queues with nothing so soon are left out. None: as many tasks as
    wanted were found, or some of them were parked, and there may be more."""
    unread: frozenset[str] = frozenset()
    """Lambdas of which more may be due behind what gates hold."""


class _Ahead(NamedTuple):
    """A row of claim_work that tells of a queue, and of no task."""

    queue_lambda: str
    queue_priority: int
    due_in: timedelta | None


class _LastTurn(NamedTuple):
    """A row of claim_work that tells where the turns of a queue ended."""

    turn_lambda: str
    turn_priority: int
    turn_key: str
    turn_used: int


LookRow = ClaimedTask | _Ahead | _LastTurn


def _work(cursor: AsyncCursor[Any]) -> RowMaker[LookRow]:
    """Make the rows of claim_work."""
    claimed, ahead = _CLAIMED(cursor), named(_Ahead)(cursor)

    def make(values: Sequence[Any]) -> LookRow:
        task = claimed(values)
        return task if task.task_id else ahead(values)

    return make


def _fair_work(cursor: AsyncCursor[Any]) -> RowMaker[LookRow]:
    """Make the rows of claim_work with turns."""
    others, turn = _work(cursor), named(_LastTurn)(cursor)

    def make(values: Sequence[Any]) -> LookRow:
        last = turn(values)
        return last if last.turn_lambda else others(values)

    return make


async def claim_work(
    store: Store,
    picks: Sequence[Pick],
    callers: Sequence[Caller],
    most: int,
    claim_timeout: timedelta,
    gates: GateSet = NO_GATES,
    scans: GateScans | None = None,
    *,
    within: timedelta = _FAR_AHEAD,
    fair: FairLambdas | None = None,
    cursors: TurnCursors | None = None,
) -> Work:
    """Pick what may run, in the order of `picks`, and claim it.

    Args:
        store: where.
        picks: from which queues to take, and how many tasks of each at most.
        callers: who gets the tasks, in turn.
        most: how many to take in all.
        claim_timeout: how long the claims live without a heartbeat.
        gates: those in force; the picks have no queue that is held as a whole.
        scans: what is known of tasks behind those that gates hold; None: nothing.
        within: how far ahead to look for what the queues have next: as far as the next look is.
        fair: the lambdas whose keys take turns; None: there are none.
        cursors: whose turn is next; None: the first key's.

    Raises:
        StoreUnavailableError: the outcome is unknown; `claim_again` tells it.
    """
    held = {pick.queue for pick in picks if gates.of(pick.queue.lambda_name).of_rows} if gates else ()
    scans = scans or GateScans()
    gated = await scans.look(store, gates, held, most) if held else None
    cursors = cursors or TurnCursors()
    statement, parameters, shape = look_step(
        picks, callers, most, claim_timeout, within, fair=fair, cursors=cursors
    )
    if gated:
        statement = (GATED_FAIR if statement is FAIR["claim_work"] else GATED)["claim_work"]
        parameters = {**gated.parameters, **parameters}
    work = await found_by_look(store, await store.run_as(shape, statement, parameters), cursors)
    if gated:
        picked = {task.task_id for task in work.tasks}
        return replace(work, unread=scans.picked(gated, picked, is_all=work.ahead is not None))
    return work


def look_step(
    picks: Sequence[Pick],
    callers: Sequence[Caller],
    most: int,
    claim_timeout: timedelta,
    within: timedelta,
    *,
    fair: FairLambdas | None = None,
    cursors: TurnCursors | None = None,
) -> Step[LookRow]:
    """Return what `claim_work` runs while no gates hold single tasks, to go with another statement."""
    takes_turns = fair and any(pick.queue.lambda_name in fair for pick in picks)
    turns: dict[str, Any] = {}
    if fair and takes_turns:
        reaches = [(pick.queue, pick.size + pick.skip) for pick in picks]
        turns = (cursors or TurnCursors()).parameters(fair, reaches)
    return Step(
        (FAIR if takes_turns else TRANSITIONS)["claim_work"],
        turns
        | {
            "lambdas": texts([pick.queue.lambda_name for pick in picks]),
            "priorities": int2s([pick.queue.priority for pick in picks]),
            "sizes": [pick.size for pick in picks],
            "skips": [pick.skip for pick in picks],
            "holders": texts([caller.holder for caller in callers]),
            "prefixes": byteas([caller.token_prefix for caller in callers]),
            "callers": len(callers),
            "most": most,
            "claim_timeout": claim_timeout,
            "within": within,
        },
        _fair_work if takes_turns else _work,
    )


async def found_by_look(store: Store, rows: Sequence[LookRow], cursors: TurnCursors) -> Work:
    """Return what these rows of a `look_step` say, once they are committed; `cursors` are told where its turns ended.

    Raises:
        StoreUnavailableError: the outcome is unknown; `claim_again` tells it.
    """
    tasks = [row for row in rows if isinstance(row, ClaimedTask)]
    ahead = [row for row in rows if isinstance(row, _Ahead)]
    cursors.took(row for row in rows if isinstance(row, _LastTurn))
    tasks = await _read_again(store, tasks)
    due_in = {(row.queue_lambda, row.queue_priority): row.due_in for row in ahead if row.due_in is not None}
    ahead_of = {QueueKey(name, Priority(priority)): each for (name, priority), each in due_in.items()}
    return Work(tasks, ahead_of if ahead else None)


async def claim_again(
    store: Store, caller: Caller, lost_prefixes: Sequence[bytes], claim_timeout: timedelta
) -> list[ClaimedTask]:
    """Give a caller what it claimed under these prefixes and never heard of, under its new prefix.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again, with the new prefix among the lost ones.
    """
    tasks = await store.run_as(
        _CLAIMED,
        TRANSITIONS["claim_again"],
        {
            "holder": caller.holder,
            "prefix": caller.token_prefix,
            "lost": byteas(lost_prefixes),
            "claim_timeout": claim_timeout,
        },
    )
    return await _read_again(store, tasks)


async def _read_again(store: Store, tasks: list[ClaimedTask]) -> list[ClaimedTask]:
    """Read those again that were changed after the snapshot that their claim read them in: those are stale."""
    stale = [(task.task_id, task.token) for task in tasks if task.is_stale]
    if not stale:
        return tasks
    again = await store.run_as(_CLAIMED, READS["claimed_before"], _pairs(sorted(stale)))
    by_token = {task.token: task for task in again}
    fresh = (by_token.get(task.token) if task.is_stale else task for task in tasks)
    return [task for task in fresh if task is not None]


async def claims_under(store: Store, token_prefixes: Sequence[bytes]) -> list[tuple[TaskId, Token]]:
    """Find the claims that were made under these prefixes and live.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(READS["claimed_under"], {"prefixes": byteas(token_prefixes)})
    return [(row[0], row[1]) for row in rows]


def _pairs(claims: Sequence[tuple[TaskId, Token]]) -> dict[str, Any]:
    return {"task_ids": uuids(claim[0] for claim in claims), "tokens": uuids(claim[1] for claim in claims)}


async def heartbeat(
    store: Store, beats: Sequence[TaskHeartbeat], heartbeat_timeout: timedelta, gates: GateSet = NO_GATES
) -> list[HeartbeatAnswer]:
    """Renew the leases of those whose token is current; answers in order. What gates hold is renewed, too.

    A lease is never shortened, whatever `heartbeat_timeout` is.

    Raises:
        StoreUnavailableError: the outcome is unknown; a later heartbeat covers it.
    """
    batch = sorted(beats, key=lambda beat: beat.task_id)
    rows = await store.run(
        (GATED if gates else TRANSITIONS)["heartbeat"],
        _pairs([(beat.task_id, beat.token) for beat in batch])
        | {
            "progress": [beat.progress for beat in batch],
            "notes": texts([beat.note for beat in batch]),
            "heartbeat_timeout": heartbeat_timeout,
            "longest_lease": LONGEST_LEASE,
        },
    )
    if any(beat.checkpoint is not None for beat in batch):
        async with store.connection() as connection:
            await keep_checkpoints(connection, batch)
    if overdue := [beat for beat in batch if beat.overdue_for is not None]:
        parameters = _pairs([(beat.task_id, beat.token) for beat in overdue])
        parameters["overdue_for"] = intervals([beat.overdue_for for beat in overdue])
        parameters["neighbours"] = [beat.overdue_neighbours for beat in overdue]
        with suppress(
            StoreUnavailableError
        ):  # people read it; the leases are renewed, and nobody may count a strike
            await store.run(ENTITIES["note_overdue"], parameters)
    kept = {
        row[0]: (HeartbeatAnswer.KILL_REQUESTED if row[2] else HeartbeatAnswer.CANCEL_REQUESTED)
        if row[1]
        else HeartbeatAnswer.GATED
        if gates and gates.holding(*row[3:])
        else HeartbeatAnswer.KEPT
        for row in rows
    }
    return [kept.get(beat.token, HeartbeatAnswer.LOST) for beat in beats]


async def release(store: Store, releases: Sequence[ReleasedClaim]) -> tuple[list[Applied], timedelta | None]:
    """Hand tasks back, due at once and uncharged; answers in order, and how far ahead the first of them runs again.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same tokens.
    """
    batch = sorted(releases, key=lambda release: (release.task_id, release.token))
    pairs = _pairs([(release.task_id, release.token) for release in batch])
    async with store.connection() as connection, connection.transaction():
        await fetch(connection, LOCKS["lock_cancelled"], pairs)
        await keep_checkpoints(connection, batch)
        found = await fetch(
            connection,
            TRANSITIONS["release"],
            pairs
            | {
                "started_at": timestamps([release.started_at for release in batch]),
                "reasons": texts([release.reason for release in batch]),
            },
        )
        if rows := [row for row in found if row[0]]:
            # a cancel that was asked for while it ran need not wait for another run
            released = uuids(sorted(row[0] for row in rows))
            again = {"task_ids": released, "only_if_requested": True, "by": None}
            await fetch(connection, TRANSITIONS["cancel"], again)
    claims = [(release.task_id, release.token) for release in releases]
    return await answer(store, claims, {row[1] for row in rows}), timedelta() if rows else None


async def answer(store: Store, claims: Sequence[tuple[TaskId, Token]], applied: set[Token]) -> list[Applied]:
    """Tell for each write whether it was applied now, was before (a lost reply), or came too late.

    Told apart by token, not by task: one group may carry the current claim of a task and a stale one.
    """
    others = [claim for claim in claims if claim[1] not in applied]
    rows = await store.run(READS["applied_before"], _pairs(others)) if others else []
    before = {row[0] for row in rows}
    return [
        Applied.APPLIED if token in applied else Applied.ALREADY_APPLIED if token in before else Applied.LOST
        for _, token in claims
    ]
