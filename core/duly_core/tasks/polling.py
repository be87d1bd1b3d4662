"""The Store Consumer's side of the store: what is due, what fell silent, and when to look again."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from psycopg.rows import TupleRow

from duly_core.errors import StoreUnavailableError
from duly_core.events.store import give_rest, time_out
from duly_core.fairness.cursors import TurnCursors
from duly_core.fairness.store import FairLambdas
from duly_core.gates.rules import NO_GATES, GateSet
from duly_core.gates.scans import GateScans
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import FAIR, GATED, GATED_FAIR, READS, TRANSITIONS
from duly_core.tasks.completions import Uncompleted, fail_uncompleted
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import DueTask
from duly_core.tasks.waiting import end_waiting, enter_sessions, release_skipped
from duly_wire.enums import Priority
from duly_wire.ids import TaskId

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True)
class TimedOut:
    """What came of the tasks whose next trigger passed while they were on their way or running."""

    again: list[DueTask]
    """Run again: marked as enqueued, to be sent to their queues; or due, where there are no queues."""
    reclaimed: int = 0
    ended: int = 0
    """Quarantined, cancelled, expired, or not completed in time."""
    uncompleted: int = 0
    """Attempts that were handed over, and failed because nobody completed them in time."""
    event_waits: int = 0
    """Waits for events whose time was over."""
    revoked: int = 0
    """Claims taken from holders that fell silent, whatever became of their tasks."""
    released: frozenset[str] = frozenset()
    """The lambdas of tasks that waited for one of these, or for what it held, and are due."""
    silent: Sequence[TaskId] = ()
    """The tasks whose runs count as crashed, for their holders fell silent."""
    problem: StoreUnavailableError | None = None
    """Why a part was not done. For the caller to raise, once it has sent what runs again."""


@dataclass(frozen=True, slots=True)
class ReclaimAllowance:
    """What may be taken from holders that fell silent."""

    most: int
    """Claims of each kind; 0: none."""
    as_of: datetime | None
    """Only leases that had run out by then, by the store's clock; None: by now."""


def _due(rows: Sequence[TupleRow]) -> list[DueTask]:
    keys: dict[tuple[str, int], QueueKey] = {}  # few queues, many tasks
    for row in rows:
        if (named := row[1:3]) not in keys:
            keys[named] = QueueKey(named[0], Priority(named[1]))
    return [DueTask(row[0], keys[row[1:3]]) for row in rows]


def _room(room: Mapping[QueueKey, int]) -> dict[str, Any]:
    return {
        "lambdas": texts([queue.lambda_name for queue in room]),
        "priorities": int2s([queue.priority for queue in room]),
        "room": list(room.values()),
    }


async def enqueue(
    store: Store,
    room: Mapping[QueueKey, int],
    enqueue_timeout: timedelta,
    gates: GateSet = NO_GATES,
    scans: GateScans | None = None,
    *,
    fair: FairLambdas | None = None,
    cursors: TurnCursors | None = None,
) -> list[DueTask]:
    """Enqueue what is due, at most `room` references a queue; update first, push after.

    What `gates` hold in part of these queues is left out; `room` has no queue that is held as a whole. `scans` is what is
    known of tasks behind those that gates hold; None: nothing. `fair` are the lambdas whose keys take turns, and `cursors` say whose turn is
    next.
    """
    if not room:
        return []
    parameters = _room(room) | {"enqueue_timeout": enqueue_timeout}
    takes_turns = fair and any(queue.lambda_name in fair for queue in room)
    cursors = cursors or TurnCursors()
    if fair and takes_turns:
        parameters |= cursors.parameters(fair, [*room.items()])
    held = {queue for queue in room if gates.of(queue.lambda_name).of_rows} if gates else ()
    if not held:
        rows = await store.run((FAIR if takes_turns else TRANSITIONS)["enqueue"], parameters)
        cursors.took(_last_turns(rows) if takes_turns else ())
        return _due(rows)
    scans = scans or GateScans()
    gated = await scans.look(store, gates, held, max(room[queue] for queue in held))
    statement = (GATED_FAIR if takes_turns else GATED)["enqueue"]
    rows = await store.run(statement, parameters | dict(gated.parameters))
    cursors.took(_last_turns(rows) if takes_turns else ())
    due = _due(rows)
    taken = Counter(task.queue for task in due)
    is_all = all(taken[queue] < room[queue] for queue in held)
    scans.picked(gated, {task.task_id for task in due}, is_all=is_all)
    return due


def _last_turns(rows: Sequence[TupleRow]) -> Iterable[tuple[str, int, str, int]]:
    """Return where the turns of each queue ended, by the rows of `enqueue` with turns."""
    last: dict[tuple[str, int], tuple[int, str, int]] = {}
    for _, lambda_name, priority, key, used, place in rows:
        if key is not None and place > last.get((lambda_name, priority), (0,))[0]:
            last[lambda_name, priority] = place, key, used
    return [(*queue, key, used) for queue, (_, key, used) in last.items()]


async def handle_timeouts(
    store: Store,
    room: Mapping[QueueKey, int] | None,
    enqueue_timeout: timedelta,
    limit: int,
    may_void: Callable[[Connection], Awaitable[ReclaimAllowance]] | None = None,
) -> TimedOut:
    """Take up what fell silent, at most `limit` tasks of each kind.

    Claims whose holder fell silent are void, and their tasks run again, are quarantined, or cancelled. Tasks that
    expired end. Attempts that were handed over, and that nobody completed in time, have failed. Tasks whose wait for an event is over are due. An event that a
    sender did not give to all tasks is given to the rest. References that nobody claimed are sent again as far as the queues have room. Parked tasks that an end
    passed over are released.

    Args:
        store: where.
        room: of the queues beside the store; None: there are none, and whatever runs again is due at once.
        enqueue_timeout: when a reference that is sent now counts as lost.
        limit: of each statement.
        may_void: tells which claims may be voided now in the store at the other end of a connection. It is
            asked once, and its answer holds for that connection only. None: `limit` of them.
    """
    problems: list[StoreUnavailableError] = []

    async def part(work: Awaitable[Rows], nothing: Rows) -> Rows:
        """Let a part that fails hold up no other: what those before it did is still to be told."""
        try:
            return await work
        except StoreUnavailableError as error:
            problems.append(error)
            return nothing

    unclaimed: list[TupleRow] = []
    freed: list[TupleRow] = []
    if room is None:
        freed = await part(store.run(TRANSITIONS["dequeue"], {"limit": limit}), [])
    else:
        sending_again = _room(room) | {"enqueue_timeout": enqueue_timeout, "limit": limit}
        unclaimed = await part(store.run(TRANSITIONS["enqueue_again"], sending_again), [])
    ended = await part(store.run(TRANSITIONS["expire"], {"limit": limit}), [])
    ended += await part(end_waiting(store, limit), [])
    uncompleted = await part(fail_uncompleted(store, limit), Uncompleted(0, 0, {}))
    received: dict[str, int] = await part(give_rest(store), {})
    waits: dict[str, int] = await part(time_out(store, limit), {})
    entered: dict[str, timedelta] = await part(enter_sessions(store), {})
    passed_over: frozenset[str] = await part(release_skipped(store, limit), frozenset())
    runs_again: dict[str, Any] = (
        {"status": Status.RETRIABLE_FAILURE, "trigger_in": timedelta()}
        if room is None
        else {"status": Status.ENQUEUED, "trigger_in": enqueue_timeout}
    )
    quarantined, cancelled, reclaimed = await part(_void(store, runs_again, limit, may_void), ([], [], []))
    stopped = quarantined + cancelled
    ended += stopped
    again = [row for row in reclaimed if row[0] is not None]
    return TimedOut(
        _due([*(row for row in unclaimed if row[3]), *again]),
        reclaimed=len(again),
        uncompleted=uncompleted.failed,
        event_waits=sum(waits.values()),
        ended=uncompleted.ended + sum(row[0] is not None for row in ended),
        revoked=len(again) + sum(row[0] is not None for row in stopped),
        released=passed_over.union(
            entered,
            received,
            waits,
            uncompleted.due,
            (row[1] for row in (*ended, *freed, *reclaimed) if row[0] is None),
        ),
        silent=tuple(row[0] for row in (*quarantined, *again) if row[0] is not None),
        problem=problems[0] if problems else None,
    )


async def _void(
    store: Store,
    runs_again: Mapping[str, Any],
    limit: int,
    may_void: Callable[[Connection], Awaitable[ReclaimAllowance]] | None,
) -> tuple[list[TupleRow], list[TupleRow], list[TupleRow]]:
    """Void the claims of silent holders; return the rows of what was quarantined, was cancelled, and runs again."""
    async with store.connection() as connection:
        may = ReclaimAllowance(limit, None) if may_void is None else await may_void(connection)
        if may.most <= 0:
            return [], [], []
        parameters: dict[str, Any] = {"limit": may.most, "as_of": may.as_of}
        quarantined = await fetch(connection, TRANSITIONS["quarantine_silent"], parameters)
        cancelled = await fetch(connection, TRANSITIONS["cancel_silent"], parameters)
        # the last of them: what it enqueues must be sent, and an error of another would leave that unsent
        reclaimed = await fetch(connection, TRANSITIONS["reclaim"], parameters | dict(runs_again))
        return quarantined, cancelled, reclaimed


async def put_back(store: Store, task_ids: Sequence[TaskId], delay: timedelta) -> frozenset[str]:
    """Tasks whose messages could not be sent are looked at again within `delay`, spread out.

    Returns the lambdas of tasks that were parked on their units, and are due.
    """
    rows = await store.run(TRANSITIONS["put_back"], {"task_ids": uuids(sorted(task_ids)), "delay": delay})
    return frozenset(row[1] for row in rows if row[0] is None)


async def next_triggers(
    store: Store, queues: Sequence[QueueKey], within: timedelta
) -> dict[QueueKey, timedelta]:
    """How long until each queue has something due; queues with nothing due `within` that time are left out."""
    rows = await store.run(
        READS["next_triggers"],
        {
            "lambdas": texts([queue.lambda_name for queue in queues]),
            "priorities": int2s([queue.priority for queue in queues]),
            "within": within,
        },
    )
    return {QueueKey(row[0], Priority(row[1])): row[2] for row in rows if row[2] is not None}


async def next_timeout(store: Store) -> timedelta | None:
    """How long until the next silence becomes suspicious or the next task expires; None: nothing will.

    Nothing is left of that time if parked tasks were passed over.
    """
    ((ahead,),) = await store.run(READS["next_timeout"], {})
    due_in: timedelta | None = ahead
    return due_in
