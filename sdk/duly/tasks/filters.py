"""Which tasks a list, a cancel, a purge or a redrive is about: the same filters, written into their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, TypedDict, TypeVar

from duly.errors import InvalidTaskError
from duly.tasks.attributes import AttributeValue, attribute_filters
from duly.tasks.new_task import aware
from duly.transport.enum_members import member
from duly_wire.enums import FailureKind, Priority, TaskStatus

Request = TypeVar("Request")


class TaskFilter(TypedDict, total=False):
    """Which tasks; what is left out is not filtered by."""

    lambda_name: str
    collection: str
    statuses: Sequence[TaskStatus]
    priorities: Sequence[Priority]


class ListFilter(TaskFilter, total=False):
    """Which tasks a list has."""

    # With lambda_name: those of the lambda in this domain.
    domain: str
    # Of all of these; 17 and "17" are found alike.
    attributes: Mapping[str, AttributeValue]
    # Of this cell. Without cells it is refused.
    cell: str


class CancelFilter(TaskFilter, total=False):
    """Which live tasks; without `statuses` NEW, WAITING, ENQUEUED and RETRIABLE_FAILURE.

    With CLAIMED and PROCESSING, callbacks that run are asked to stop.
    """

    # Of all of these, as in a list; at least one.
    attributes: Mapping[str, AttributeValue]


class _EndedFilter(TypedDict, total=False):
    lambda_name: str
    collection: str
    # Ended at this instant or later; ended before this instant. Both with a time zone.
    finished_after: datetime | None
    finished_before: datetime | None


class PurgeFilter(_EndedFilter, total=False):
    """Which finished tasks; what is left out is not filtered by."""

    # Final ones.
    statuses: Sequence[TaskStatus]
    # Of all of these, as in a list; at least one.
    attributes: Mapping[str, AttributeValue]


class DeadLetterFilter(_EndedFilter, total=False):
    """Which dead letters; what is left out is not filtered by."""

    # Of the failure that ended them: of one that failed too often that is ATTEMPTS_EXHAUSTED, whatever it failed of.
    failure_kinds: Sequence[FailureKind]


class DeadLetterListFilter(DeadLetterFilter, total=False):
    """Which dead letters a list has."""

    # Of this cell. Without cells it is refused.
    cell: str


_KINDS: dict[str, type[IntEnum]] = {
    "statuses": TaskStatus,
    "priorities": Priority,
    "failure_kinds": FailureKind,
}


def filtered(request: Request, which: Mapping[str, Any], known: type) -> Request:
    """Write a filter of this kind into a request, and return the request.

    Raises InvalidTaskError for a value that cannot be, TypeError for a name that the filter does not know.
    """
    to: Any = request
    for name, value in which.items():
        if name not in known.__annotations__:
            raise TypeError(f"{name!r} is no filter: use {', '.join(known.__annotations__)}")
        if name == "attributes":
            wanted = attribute_filters(value)
            if (
                not wanted and known is not ListFilter
            ):  # perhaps it was made of data: all tasks would be changed
                raise InvalidTaskError(
                    "attributes has none, and would not filter: leave it out to change tasks with any",
                    "attributes",
                )
            to.attributes.extend(wanted)
        elif name in _KINDS:
            getattr(to, name).extend(member(name, each, _KINDS[name]) for each in value)
        elif name == "lambda_name":
            setattr(to, "lambda", value)
        elif name in ("collection", "domain", "cell"):
            setattr(to, name, value)
        elif value is not None:
            getattr(to, name).FromDatetime(aware(name, value))
    return request
