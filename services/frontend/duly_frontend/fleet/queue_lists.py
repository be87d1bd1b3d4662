"""Lists queues: a page of those that a caller asks for and may see."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime

from duly_core.counting import queue_rates as queue_reads
from duly_core.counting.queues import EMPTY, Count, QueueCounts, Snapshot, recount
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_frontend.fleet.queue_request import Place, QueueRequest, write_token
from duly_wire.enums import Priority
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import fleet_pb2

_CLASSES = ("ready", "scheduled", "backing_off", "waiting", "enqueued", "claimed", "processing")
_LISTS_KEPT = 4
"""With a snapshot: watchers ask for the same ones, and to sort tens of thousands of queues takes a tenth of a second."""


async def list_queues(
    store: Store, snapshot: Snapshot, request: QueueRequest
) -> fleet_pb2.ListQueuesResponse:
    """Return a page of the queues that a request asks for.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    places = await _places(store, snapshot, request)
    start = 0 if request.after is None else bisect_right(places, request.after)
    page = places[start : start + request.size]
    keys = [QueueKey(name, Priority(priority)) for _, name, priority in page]
    counted = await recount(store, snapshot, keys)
    names = sorted({key.lambda_name for key in keys})
    hosts = await queue_reads.hosts_by_lambda(store, names, snapshot.counted_at)
    rates: dict[QueueKey, Count] | None = None
    if request.include_rates:
        rates = await queue_reads.recently_scheduled(store, names, snapshot.counted_at)
    next_due = await queue_reads.next_due(store, keys, snapshot.counted_at)
    queues = [_to_wire(key, counted[key], hosts.get(key.lambda_name, 0), next_due.get(key)) for key in keys]
    if rates is not None:
        for key, queue in zip(keys, queues, strict=True):
            queue.recently_scheduled.CopyFrom(_count(rates.get(key, Count())))
    return fleet_pb2.ListQueuesResponse(
        queues=queues,
        next_page_token=write_token(page[-1]) if start + len(page) < len(places) else "",
        counted_at=to_timestamp(snapshot.counted_at),
        total_queues=len(places),
    )


async def _places(store: Store, snapshot: Snapshot, request: QueueRequest) -> Sequence[Place]:
    """Return the places of all queues that a request asks for, in order."""
    if request.include_empty:
        names = await queue_reads.lambda_names(store)
        return await asyncio.to_thread(_in_order, snapshot, request, names)
    list_of = request.of_all_pages
    sorting: asyncio.Task[Sequence[Place]] | None = snapshot.lists.get(list_of)
    if sorting is None:
        if len(snapshot.lists) >= _LISTS_KEPT:
            del snapshot.lists[next(iter(snapshot.lists))]
        # kept before it is done: all who waited for one count ask at the same instant
        sorting = asyncio.create_task(asyncio.to_thread(_in_order, snapshot, request, ()))
        snapshot.lists[list_of] = sorting
    return await asyncio.shield(sorting)


def _in_order(snapshot: Snapshot, request: QueueRequest, empty: Sequence[str]) -> Sequence[Place]:
    """Sort; the queues of the lambdas in `empty` too, which may have no tasks."""
    counted = snapshot.queues
    asked: Iterable[QueueKey] = counted
    if request.exact and not request.patterns:
        named = (QueueKey(name, priority) for name in request.exact for priority in Priority)
        asked = (key for key in named if key in counted)
    found = {key: counted[key] for key in asked if request.has(key)}
    for name in empty:
        for priority in Priority:
            key = QueueKey(name, priority)
            if key not in found and request.has(key):
                found[key] = EMPTY
    return sorted(request.place(key, counts) for key, counts in found.items())


def _count(count: Count) -> fleet_pb2.TaskCount:
    return fleet_pb2.TaskCount(count=count.number, estimated=count.is_estimated)


def _to_wire(
    key: QueueKey, counts: QueueCounts, hosts: int, next_due_at: datetime | None
) -> fleet_pb2.LambdaQueue:
    message = fleet_pb2.LambdaQueue(hosts=hosts)
    message.priority = key.priority.value  # type: ignore[assignment]  # to mypy a number is no member
    setattr(message, "lambda", key.lambda_name)
    for name in _CLASSES:
        getattr(message, name).CopyFrom(_count(counts.count(name)))
    moments = {
        "oldest_ready_at": counts.oldest_ready_at,
        "next_due_at": next_due_at,
        "oldest_claim_at": counts.oldest_claim_at,
    }
    for name, moment in moments.items():
        if moment is not None:
            getattr(message, name).FromDatetime(moment)
    return message
