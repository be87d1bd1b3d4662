"""What a request for queues asks for: which of them, in which order, and from which place on."""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from duly_core.access.current import require, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.counting.queues import QueueCounts
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.names import QUEUE_NAME, QueueKey
from duly_core.rpc.requests.checks import page_size, read_priorities
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_frontend.lists import page_token
from duly_wire.enums import Priority
from duly_wire.time_conversion import EPOCH, to_datetime
from duly_wire.v1 import fleet_pb2

_MOST_PATTERNS = 100
_LONGEST_PATTERN = 256
_FOR_EVER = timedelta.max // timedelta(microseconds=1)
_PATTERN = re.compile(r"[A-Za-z0-9_./@+*-]+")

Place = tuple[int, str, int]
"""Where a queue stands in the order; the lambda and priority are in each."""


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What a request asks for, checked."""

    patterns: tuple[re.Pattern[str], ...]
    exact: tuple[str, ...]
    """Names. Without patterns and names: all lambdas."""
    priorities: frozenset[Priority]
    order: "fleet_pb2.QueueOrder.ValueType"
    include_empty: bool
    include_rates: bool
    size: int
    after: Place | None
    scope: Scope | None

    @property
    def of_all_pages(self) -> "QueueRequest":
        """What pages of one list have in common."""
        return replace(self, include_rates=False, size=0, after=None)

    def has(self, key: QueueKey) -> bool:
        """Return whether a queue is asked for, and may be seen."""
        if key.priority not in self.priorities:
            return False
        if self.scope is not None and not self.scope.covers(key.lambda_name):
            return False
        if not self.patterns and not self.exact:
            return True
        return key.lambda_name in self.exact or any(each.fullmatch(key.lambda_name) for each in self.patterns)

    def place(self, key: QueueKey, counts: QueueCounts) -> Place:
        """Return where a queue stands."""
        return _first(self.order, counts.backlog, counts.oldest_ready_at), key.lambda_name, int(key.priority)


def place_of_row(order: "fleet_pb2.QueueOrder.ValueType", row: fleet_pb2.LambdaQueue) -> Place:
    """Return where a queue stands that was listed."""
    oldest = to_datetime(row.oldest_ready_at) if row.HasField("oldest_ready_at") else None
    backlog = row.ready.count + row.enqueued.count
    return _first(order, backlog, oldest), getattr(row, "lambda"), row.priority


def _first(order: "fleet_pb2.QueueOrder.ValueType", backlog: int, oldest: datetime | None) -> int:
    if order == fleet_pb2.QUEUE_ORDER_BACKLOG:
        return -backlog
    if order == fleet_pb2.QUEUE_ORDER_AGE:
        return _FOR_EVER if oldest is None else (oldest - EPOCH) // timedelta(microseconds=1)
    return 0


def read_request(request: fleet_pb2.ListQueuesRequest) -> QueueRequest:
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
    return QueueRequest(
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


def _read_token(token: str) -> Place | None:
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


def write_token(place: Place) -> str:
    """Return the page token of what follows a place."""
    first, lambda_name, priority = place
    return page_token.write_name(f"{first} {priority:d} {lambda_name}")
