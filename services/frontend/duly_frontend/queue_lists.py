"""Lists queues: which of them a caller asks for and may see, in which order, and a page of them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly.enums import Priority
from duly.time_conversion import EPOCH, to_timestamp
from duly.v1 import fleet_pb2
from duly_core.access.current import require, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError
from duly_core.routing import QUEUE_NAME, QueueKey
from duly_core.rpc.checks import page_size, read_priorities
from duly_core.rpc.names import check_lambda_name
from duly_core.rpc.problem import Problem
from duly_core.store import queue_reads
from duly_core.store.pool import Store
from duly_core.store.queue_counts import EMPTY, Count, QueueCounts, Snapshot, recount
from duly_frontend import page_token

_MOST_PATTERNS = 100
_LONGEST_PATTERN = 256
_FOR_EVER = timedelta.max // timedelta(microseconds=1)
_PATTERN = re.compile(r"[A-Za-z0-9_./@+*-]+")
_CLASSES = ("ready", "scheduled", "backing_off", "waiting", "enqueued", "claimed", "processing")

_Place = tuple[int, str, int]
"""Where a queue stands in the order; the lambda and priority are in each."""


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """What a request asks for, checked."""

    patterns: tuple[re.Pattern[str], ...]
    """None: all lambdas."""
    exact: tuple[str, ...]
    priorities: frozenset[Priority]
    order: "fleet_pb2.QueueOrder.ValueType"
    include_empty: bool
    include_rates: bool
    size: int
    after: _Place | None
    scope: Scope | None

    def has(self, key: QueueKey) -> bool:
        """Return whether a queue is asked for, and may be seen."""
        if key.priority not in self.priorities:
            return False
        if self.scope is not None and not self.scope.covers(key.lambda_name):
            return False
        if not self.patterns and not self.exact:
            return True
        return key.lambda_name in self.exact or any(each.fullmatch(key.lambda_name) for each in self.patterns)

    def place(self, key: QueueKey, counts: QueueCounts) -> _Place:
        """Return where a queue stands."""
        first = 0
        if self.order == fleet_pb2.QUEUE_ORDER_BACKLOG:
            first = -counts.backlog
        elif self.order == fleet_pb2.QUEUE_ORDER_AGE:
            oldest = counts.oldest_ready_at
            first = _FOR_EVER if oldest is None else (oldest - EPOCH) // timedelta(microseconds=1)
        return first, key.lambda_name, int(key.priority)


def read_query(request: fleet_pb2.ListQueuesRequest) -> QueueQuery:
    """Return what a request asks for.

    Raises:
        Problem: something in it is out of bounds.
        PermissionDeniedError: it names a lambda that the caller may not see.
    """
    if len(request.lambdas) > _MOST_PATTERNS:
        raise InvalidRequestError(
            "lambdas", f"there may be at most {_MOST_PATTERNS}, not {len(request.lambdas):,}"
        )
    exact, patterns = [], []
    for place, text in enumerate(request.lambdas):
        if "*" in text:
            patterns.append(_pattern(f"lambdas[{place}]", text))
            continue
        if not QUEUE_NAME.fullmatch(text):
            check_lambda_name(f"lambdas[{place}]", text)
        require(Action.READ, text)
        exact.append(text)
    if request.order not in fleet_pb2.QueueOrder.values():
        raise Problem("order", "must be BACKLOG or AGE, or be left out")
    return QueueQuery(
        tuple(patterns),
        tuple(exact),
        read_priorities("priorities", request.priorities),
        request.order,
        request.include_empty,
        request.include_rates,
        page_size(request.page_size),
        _read_token(request.page_token),
        restriction(Action.READ),
    )


def _pattern(field: str, text: str) -> re.Pattern[str]:
    if len(text) > _LONGEST_PATTERN or not _PATTERN.fullmatch(text):
        raise Problem(field, "must be a lambda's name, in which * stands for any characters")
    # one after the other, and never back: a pattern of many asterisks must not take long
    parts = re.sub(r"\*+", "*", text).split("*")
    first, *between, last = map(re.escape, parts)
    return re.compile(first + "".join(f"(?>.*?{part})" for part in between) + ".*" + last)


def _read_token(token: str) -> _Place | None:
    name = page_token.read_name(token)
    if not name:
        return None
    first, _, rest = name.partition(" ")
    priority, _, lambda_name = rest.partition(" ")
    try:
        place = int(first), lambda_name, int(Priority(int(priority)))
    except ValueError:
        raise Problem("page_token", "not a page token: use the next_page_token of the page before") from None
    return place


def _write_token(place: _Place) -> str:
    first, lambda_name, priority = place
    return page_token.write_name(f"{first} {priority} {lambda_name}")


async def list_queues(store: Store, snapshot: Snapshot, query: QueueQuery) -> fleet_pb2.ListQueuesResponse:
    """Return a page of the queues that a query asks for.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    places = await _places(store, snapshot, query)
    left = [each for each in places if query.after is None or each > query.after]
    page = left[: query.size]
    keys = [QueueKey(name, Priority(priority)) for _, name, priority in page]
    counted = await recount(store, snapshot, keys)
    names = sorted({key.lambda_name for key in keys})
    hosts = await queue_reads.hosts_by_lambda(store, names, snapshot.counted_at)
    rates: dict[QueueKey, Count] | None = None
    if query.include_rates:
        rates = await queue_reads.recently_scheduled(store, names, snapshot.counted_at)
    next_due = await queue_reads.next_due(store, keys, snapshot.counted_at)
    queues = [_to_wire(key, counted[key], hosts.get(key.lambda_name, 0), next_due.get(key)) for key in keys]
    if rates is not None:
        for key, queue in zip(keys, queues, strict=True):
            queue.recently_scheduled.CopyFrom(_count(rates.get(key, Count())))
    return fleet_pb2.ListQueuesResponse(
        queues=queues,
        next_page_token=_write_token(page[-1]) if len(left) > len(page) else "",
        counted_at=to_timestamp(snapshot.counted_at),
        total_queues=len(places),
    )


async def _places(store: Store, snapshot: Snapshot, query: QueueQuery) -> Sequence[_Place]:
    found = await asyncio.to_thread(_chosen, snapshot, query)
    if query.include_empty:
        for name in await queue_reads.lambda_names(store):
            for priority in Priority:
                key = QueueKey(name, priority)
                if key not in found and query.has(key):
                    found[key] = EMPTY
    return await asyncio.to_thread(_in_order, found, query)


def _chosen(snapshot: Snapshot, query: QueueQuery) -> dict[QueueKey, QueueCounts]:
    return {key: counts for key, counts in snapshot.queues.items() if query.has(key)}


def _in_order(found: Mapping[QueueKey, QueueCounts], query: QueueQuery) -> list[_Place]:
    return sorted(query.place(key, counts) for key, counts in found.items())


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
