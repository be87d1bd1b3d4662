"""The filters by which clients find tasks, from the wire to the store's."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from duly_core.errors import InvalidRequestError
from duly_core.rpc.requests.attributes import wanted_attributes
from duly_core.rpc.requests.checks import read_instant
from duly_core.rpc.requests.names import check_domain
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.lifecycle import FINAL, LIVE, READY, Status
from duly_core.tasks.store import TaskFilter
from duly_frontend.tasks.wire import STATUS_FROM_WIRE
from duly_wire.enums import FailureKind, Priority
from duly_wire.v1 import frontend_pb2

_MOST_VALUES = 100
"""Of a list of statuses, priorities or kinds: there are fewer, but a list may repeat itself."""
_LONGEST_NAMES = {"lambda": 257, "collection": 128}
"""A lambda may be the queue of a version, or of a domain."""

_Filtering: TypeAlias = (
    frontend_pb2.ListTasksRequest
    | frontend_pb2.RedriveTasksRequest
    | frontend_pb2.CancelTasksRequest
    | frontend_pb2.PurgeTasksRequest
)


def of_list(request: frontend_pb2.ListTasksRequest) -> TaskFilter:
    """Which tasks a list is to have.

    Raises:
        InvalidRequestError: names the filter that is unusable.
    """
    statuses, priorities = _statuses(request), _priorities(request)
    if request.domain:
        try:
            check_domain("domain", request.domain)
        except Problem as problem:
            raise InvalidRequestError(problem.field, problem.message) from problem
    return replace(
        _filter(request),
        statuses=statuses,
        priorities=priorities,
        domain=request.domain,
        attributes=_attributes(request),
    )


def of_redrive(request: frontend_pb2.RedriveTasksRequest) -> TaskFilter:
    """Which dead letters are to be redriven.

    Raises:
        InvalidRequestError: names the filter that is unusable.
    """
    return _filter(request)


def of_cancel(request: frontend_pb2.CancelTasksRequest) -> TaskFilter:
    """Which live tasks are to be cancelled.

    Raises:
        InvalidRequestError: names the filter that is unusable.
    """
    _check_names(request)
    statuses = _statuses(request) or READY | {Status.ENQUEUED, Status.WAITING}
    if statuses - LIVE:
        raise InvalidRequestError(
            "statuses", f"only live ones can be cancelled, not {_named(statuses - LIVE)}"
        )
    return TaskFilter(
        lambda_name=getattr(request, "lambda"),
        collection=request.collection,
        statuses=statuses,
        priorities=_priorities(request),
        attributes=_attributes(request),
    )


def of_purge(request: frontend_pb2.PurgeTasksRequest) -> TaskFilter:
    """Which finished tasks are to be deleted.

    Raises:
        InvalidRequestError: names the filter that is unusable.
    """
    _check_names(request)
    statuses = _statuses(request) or FINAL
    if statuses - FINAL:
        raise InvalidRequestError(
            "statuses", f"only final ones can be purged, not {_named(statuses - FINAL)}"
        )
    after, before = _span(request)
    return TaskFilter(
        lambda_name=getattr(request, "lambda"),
        collection=request.collection,
        statuses=statuses,
        finished_after=after,
        finished_before=before,
        attributes=_attributes(request),
    )


def _attributes(
    request: frontend_pb2.ListTasksRequest | frontend_pb2.CancelTasksRequest | frontend_pb2.PurgeTasksRequest,
) -> tuple[tuple[str, str], ...]:
    try:
        return wanted_attributes(request.attributes)
    except Problem as problem:
        raise InvalidRequestError(problem.field, problem.message) from problem


def _named(statuses: Collection[Status]) -> str:
    return ", ".join(sorted(statuses))


def _statuses(
    request: frontend_pb2.ListTasksRequest | frontend_pb2.CancelTasksRequest | frontend_pb2.PurgeTasksRequest,
) -> frozenset[Status]:
    _check_count(request, "statuses")
    try:
        return frozenset(STATUS_FROM_WIRE[number] for number in request.statuses)
    except KeyError as error:
        raise InvalidRequestError("statuses", f"{error.args[0]} is not a task status") from error


def _priorities(
    request: frontend_pb2.ListTasksRequest | frontend_pb2.CancelTasksRequest,
) -> frozenset[Priority]:
    _check_count(request, "priorities")
    try:
        return frozenset(Priority(number) for number in request.priorities)
    except ValueError as error:
        raise InvalidRequestError("priorities", str(error)) from error


def _check_names(request: _Filtering) -> None:
    for field, longest in _LONGEST_NAMES.items():
        if len(getattr(request, field)) > longest:
            raise InvalidRequestError(field, f"must be at most {longest} characters")
        if "\x00" in getattr(request, field):
            raise InvalidRequestError(field, "must not contain NUL")


def _filter(request: frontend_pb2.ListTasksRequest | frontend_pb2.RedriveTasksRequest) -> TaskFilter:
    _check_names(request)
    _check_count(request, "failure_kinds")
    try:
        kinds = frozenset(FailureKind(number) for number in request.failure_kinds)
    except ValueError as error:
        raise InvalidRequestError("failure_kinds", str(error)) from error
    after, before = _span(request)
    return TaskFilter(
        lambda_name=getattr(request, "lambda"),
        collection=request.collection,
        failure_kinds=kinds,
        finished_after=after,
        finished_before=before,
    )


def _span(request: _Filtering) -> tuple[datetime | None, datetime | None]:
    after, before = instant(request, "finished_after"), instant(request, "finished_before")
    if after is not None and before is not None and after >= before:
        raise InvalidRequestError("finished_before", "must be later than finished_after")
    return after, before


def _check_count(request: _Filtering, field: str) -> None:
    """Refuse what would take long to read: 8 MiB hold eight million numbers."""
    count = len(getattr(request, field))
    if count > _MOST_VALUES:
        raise InvalidRequestError(field, f"there must be at most {_MOST_VALUES} in one call, not {count:,}")


def instant(request: _Filtering, field: str) -> datetime | None:
    """An instant of a request; None if it has none.

    Raises:
        InvalidRequestError: the store cannot hold it.
    """
    if not request.HasField(field):  # type: ignore[arg-type]  # one of the request's own timestamps
        return None
    return read_instant(field, getattr(request, field))
