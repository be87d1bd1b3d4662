"""Send events, end waits that are over, and read what is kept."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from duly_core.errors import StoreUnavailableError
from duly_core.events.rules import MOST_GIVEN_AT_ONCE, MOST_KEPT, EventWait
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.arrays import byteas, int2s, texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import LOCKS, TRANSITIONS, load
from duly_wire.ids import TaskId

_EVENTS = load("events/events.sql")
_NOBODY: TaskId = bytes(16)
"""Before the id of any task."""
_MOST_PAGES = 40
"""Of tasks to which one call gives events."""
_MOST_UNFINISHED = 100
"""Keys that one round goes on with."""

EventKeyId = SessionId
"""A key of events: as a session's key, it is unique in its namespace."""


class NewEvent(NamedTuple):
    """An event that was found valid; not stored yet."""

    key: EventKeyId
    event_id: str
    value: bytes
    encoding: int
    sent_by: str | None = None
    """The principal; None: nobody was asked who they are."""


class Sent(NamedTuple):
    """What came of one event."""

    receivers: int = 0
    """The tasks that waited for it, and received it."""
    is_repeated: bool = False
    """It was sent before."""
    is_refused: bool = False
    """Its key has as many events as may be kept."""


class SentAll(NamedTuple):
    """What came of many."""

    answers: list[Sent]
    """One for each event, in their order."""
    due: frozenset[str]
    """The lambdas of the tasks that run now."""
    unfinished: frozenset[str] = frozenset()
    """The keys, as the store calls them, for which more tasks wait than one transaction writes. `finish` goes on."""
    places: Mapping[int, int] = {}
    """Where the answers of events are, by the number of the event."""


class _Given(NamedTuple):
    """What came of giving events to a page of the tasks that wait."""

    receivers: Counter[int]
    """By the number of the event."""
    due: Counter[str]
    """How many tasks run now, by lambda."""
    unfinished: frozenset[str] = frozenset()
    is_any: bool = True
    """There was a key to look at."""


async def send(store: Store, events: Sequence[NewEvent], kept_for: timedelta) -> SentAll:
    """Store events, and give each to the tasks that wait for it. All are stored together, and given to many tasks in pages.

    If the store fails once they are stored, the Store Consumer gives them to the rest; so does a repeat.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same ids.
    """
    async with store.connection() as connection, connection.transaction():
        sent = await send_within(connection, events, kept_for)
    return await finish(store, sent)


async def send_within(connection: Connection, events: Sequence[NewEvent], kept_for: timedelta) -> SentAll:
    """Store events in the transaction of the caller, and give them to the first page of tasks; then `finish` goes on.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same ids.
    """
    if not events:
        return SentAll([], frozenset())
    keys = sorted({str(each.key) for each in events})
    named = {
        "keys": texts([str(each.key) for each in events]),
        "event_ids": texts([e.event_id for e in events]),
    }
    locked = await fetch(connection, _EVENTS["lock_event_keys"], {"keys": texts(keys)})
    given_to = {key: reached for key, reached in locked if reached is not None}
    before = {row[0] for row in await fetch(connection, _EVENTS["sent_before"], named)}
    stored = await fetch(
        connection,
        _EVENTS["send_events"],
        named
        | {
            "encodings": int2s([each.encoding for each in events]),
            "values": byteas([each.value for each in events]),
            "sent_by": texts([each.sent_by for each in events]),
            "kept_for": kept_for,
            "most": MOST_KEPT,
        },
    )
    first: dict[str, int] = {}
    for key, _, seq in stored:
        first[key] = min(seq, first.get(key, seq))
    # a new event is for those, too, who received the one before it and wait again
    after = given_to | dict.fromkeys(first, _NOBODY)
    seqs = {key: seq for key, seq in first.items() if key not in given_to}
    given = await _give(connection, after, seqs, frozenset(given_to))
    new = {(key, event_id): seq for key, event_id, seq in stored}
    known = {*new}
    answers, places = [], {}
    for place, each in enumerate(events):
        key = str(each.key)
        seq = new.pop((key, each.event_id), None)
        if seq is not None:
            places[seq] = place
            answers.append(Sent(given.receivers[seq]))
        elif place in before or (key, each.event_id) in known:
            answers.append(Sent(is_repeated=True))
        else:
            answers.append(Sent(is_refused=True))
    return SentAll(answers, frozenset(given.due), given.unfinished, places)


def split(sent: SentAll, events: Sequence[NewEvent]) -> list[SentAll]:
    """Return what came of each event, each for itself; one event of a key goes on with it, that was stored first if any was."""
    seqs = {place: seq for seq, place in sent.places.items()}
    by_key: dict[str, int] = {}
    for place in [*sorted(seqs), *range(len(events))]:
        by_key.setdefault(str(events[place].key), place)
    unfinished = {place: frozenset((key,)) for key, place in by_key.items() if key in sent.unfinished}
    return [
        SentAll(
            [answer],
            frozenset(),
            unfinished.get(place, frozenset()),
            {seqs[place]: 0} if place in seqs else {},
        )
        for place, answer in enumerate(sent.answers)
    ]


def join(parts: Sequence[SentAll]) -> SentAll:
    """Return what came of some events that were split, together."""
    return SentAll(
        [part.answers[0] for part in parts],
        frozenset().union(*(part.due for part in parts)),
        frozenset().union(*(part.unfinished for part in parts)),
        {seq: place for place, part in enumerate(parts) for seq in part.places},
    )


def _tell_nobody(_due: Collection[str]) -> None:
    pass


async def finish(
    store: Store,
    sent: SentAll,
    tell: Callable[[Collection[str]], None] = _tell_nobody,
    turns: AbstractAsyncContextManager[object] | None = None,
) -> SentAll:
    """Give what was sent to the rest of the tasks that wait, in transactions of their own.

    It stops if the store fails, or after many: then the Store Consumer goes on.

    Args:
        store: where the events are.
        sent: what the first transaction did.
        tell: is told after each page of the lambdas that are due.
        turns: is entered for each page: it bounds how many run at a time. None: as many as are called.
    """
    for _ in range(_MOST_PAGES):
        if not sent.unfinished:
            break
        try:
            async with turns or nullcontext():
                given = await _give_on(store, sent.unfinished)
        except StoreUnavailableError:
            break
        if given.due:
            tell(given.due)
        answers = [*sent.answers]
        for seq, count in given.receivers.items():
            if (place := sent.places.get(seq)) is not None:
                answers[place] = answers[place]._replace(receivers=answers[place].receivers + count)
        sent = SentAll(answers, sent.due.union(given.due), given.unfinished, sent.places)
    return sent


async def give_rest(store: Store) -> dict[str, int]:
    """Give events to the rest of the tasks that wait, where a sender died or stopped; how many are due, by lambda.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    due: Counter[str] = Counter()
    for _ in range(_MOST_PAGES):
        given = await _give_on(store, frozenset())
        due += given.due
        if not given.is_any:
            break
    return dict(due)


async def _give_on(store: Store, keys: frozenset[str]) -> _Given:
    """Give events of these keys, or of all, to the next page of tasks. Several may do so at a time: the keys are locked."""
    asked = {"keys": texts(sorted(keys)), "limit": len(keys) or _MOST_UNFINISHED}
    async with store.connection() as connection, connection.transaction():
        after: dict[str, TaskId] = dict(await fetch(connection, _EVENTS["lock_unfinished_event_keys"], asked))
        return await _give(connection, after, {}, frozenset(after))


async def _give(
    connection: Connection, after: Mapping[str, TaskId], seqs: Mapping[str, int], noted: frozenset[str]
) -> _Given:
    """Give events to a page of the tasks that wait for these keys, behind a task of each; `noted`: the keys that say so."""
    if not after:
        return _Given(Counter(), Counter(), is_any=False)
    asked = {"keys": texts([*after]), "after": uuids(after.values()), "limit": MOST_GIVEN_AT_ONCE}
    page = await fetch(connection, LOCKS["lock_event_waits"], asked)
    is_last = len(page) < MOST_GIVEN_AT_ONCE
    if noted or not is_last:
        reached = dict(after)
        for key, task_id, _ in page:
            reached[key] = max(reached[key], task_id)
        given_to = uuids([] if is_last else reached.values())  # an empty column is one of nulls
        await fetch(connection, _EVENTS["note_given"], {"keys": texts([*reached]), "given_to": given_to})
    unfinished = frozenset() if is_last else frozenset(after)
    waiting = sorted({task_id for _, task_id, waits in page if waits})
    if not waiting:
        return _Given(Counter(), Counter(), unfinished)
    # locked one after the other: only a further statement sees what others did to them meanwhile
    parameters = {"task_ids": uuids(waiting), "keys": texts([*seqs]), "seqs": [*seqs.values()]}
    received = await fetch(connection, TRANSITIONS["end_event_waits"], parameters)
    due = {task_id: name for _, task_id, name, is_over in received if is_over}
    return _Given(Counter(row[0] for row in received), Counter(due.values()), unfinished)


async def time_out(store: Store, limit: int) -> dict[str, int]:
    """End up to `limit` waits whose time is over; how many, by lambda. These tasks are due.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    return dict(await store.run(TRANSITIONS["time_out_event_waits"], {"limit": limit}))


async def lock_waited(
    connection: Connection, waits: Sequence[tuple[TaskId, bytes, Sequence[str]]]
) -> dict[str, Any]:
    """Lock the keys for which claims (task, token) are about to wait; return the parameters of `wait_for_event` about these."""
    each_key = [(task_id, token, key) for task_id, token, keys in waits for key in keys]
    parameters = {
        "key_task_ids": uuids(task_id for task_id, _, _ in each_key),
        "keys": texts([key for _, _, key in each_key]),
    }
    locking = parameters | {"key_tokens": uuids(token for _, token, _ in each_key)}
    await fetch(connection, _EVENTS["lock_waited_keys"], locking)
    return parameters


async def put_aside(
    connection: Connection, waits: Sequence[tuple[TaskId, bytes, EventWait]]
) -> dict[TaskId, datetime]:
    """Put aside what callbacks refused, as their claims (task, token) say; return until when these waits go on.

    A task is left out if it received no such event, or an older release did not keep when its wait began.
    """
    named = [(task_id, wait.name, each) for task_id, _, wait in waits for each in wait.refused]
    parameters = {
        "task_ids": uuids(task_id for task_id, _, _ in waits),
        "tokens": uuids(token for _, token, _ in waits),
        "refused_task_ids": uuids(task_id for task_id, _, _ in named),
        "waits": texts([name for _, name, _ in named]),
        "keys": texts([each.key for _, _, each in named]),
        "reasons": texts([each.reason for _, _, each in named]),
    }
    rows = await fetch(connection, _EVENTS["put_events_aside"], parameters)
    return {task_id: until_at for task_id, until_at in rows if until_at is not None}


class KeptEvent(NamedTuple):
    """An event that is kept."""

    event_id: str
    encoding: int
    value: bytes
    sent_by: str | None
    sent_at: datetime
    expires_at: datetime


class Waiter(NamedTuple):
    """A task that waits for a key."""

    task_id: TaskId
    lambda_name: str
    scheduled_by: str | None
    needs_all: bool
    until_at: datetime


class EventKey(NamedTuple):
    """What there is of a key."""

    key: EventKeyId
    events: list[KeptEvent]
    """Oldest first."""
    waiters: list[Waiter]


async def read_keys(store: Store, keys: Collection[EventKeyId], limit: int) -> dict[EventKeyId, EventKey]:
    """Return what is kept of these keys, the newest `limit` of each, and up to as many of the tasks that wait.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found = {key: EventKey(key, [], []) for key in keys}
    parameters = {"keys": texts(sorted(map(str, found))), "limit": limit}
    for name, _, *event in await store.run(_EVENTS["events_of_keys"], parameters):
        found[EventKeyId.parse(name)].events.append(KeptEvent(*event))
    for name, *waiter in await store.run(_EVENTS["waits_of_keys"], parameters):
        found[EventKeyId.parse(name)].waiters.append(Waiter(*waiter))
    return found


async def list_keys(store: Store, namespace: str, after: str, limit: int) -> list[tuple[EventKeyId, int]]:
    """Return up to `limit` keys of a namespace behind the key `after`, and how many events each has.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    first = str(EventKeyId(namespace, after))
    between = {"after": first, "before": f"{namespace}0", "limit": limit}  # 0 follows the slash
    return [
        (EventKeyId.parse(name), count) for name, count in await store.run(_EVENTS["event_keys"], between)
    ]
