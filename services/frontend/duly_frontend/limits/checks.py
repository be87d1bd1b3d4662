"""Checks of requests that change resources."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.errors import InvalidRequestError
from duly_core.lambdas.names import base_name
from duly_core.limits.changes import RESOURCE_FIELDS, NotPut, ResourceChange
from duly_core.limits.store import (
    DOMAIN_QUOTA,
    LARGEST_RATE,
    NAMESPACE_QUOTA,
    NAMESPACE_SCHEDULING,
    QUOTA,
    SCHEDULING,
    UNLIMITED,
    bare_name,
)
from duly_core.rpc.requests.checks import check_text, read_duration, read_instant
from duly_core.rpc.requests.field_masks import is_set, named_fields
from duly_core.rpc.requests.names import (
    check_domain,
    check_lambda_name,
    check_name,
    check_name_in_namespace,
)
from duly_core.rpc.requests.problem import Problem
from duly_wire.v1 import limits_pb2, task_pb2

_LARGEST_CAPACITY = UNLIMITED
_LONGEST_NOTE = 1024
_SHORTEST_PERIOD, _LONGEST_PERIOD = timedelta(milliseconds=1), timedelta(days=1)


def check_resource_name(name: str) -> None:
    """Check the name of a resource, or of a quota.

    Raises:
        Problem: no resource can have such a name.
    """
    bare = bare_name(name)
    if name.startswith((QUOTA, SCHEDULING)):
        check_lambda_name("name", bare)
        if base_name(bare) != bare:
            raise Problem(
                "name", f"versions have no quotas: {base_name(name)} counts the tasks of all versions"
            )
    elif name.startswith((NAMESPACE_QUOTA, NAMESPACE_SCHEDULING)):
        check_name("name", bare)
    elif name.startswith(DOMAIN_QUOTA):
        check_domain("name", bare)
    else:
        check_name_in_namespace("name", name)


def read_expected(request: limits_pb2.PutResourceRequest) -> dict[str, datetime]:
    """Return when resources must have been changed last, by name."""
    check_names_in("expected_changed_at", request.expected_changed_at, request)
    return {name: read_instant("expected_changed_at", at) for name, at in request.expected_changed_at.items()}


def check_names_in(field: str, names: Iterable[str], request: limits_pb2.PutResourceRequest) -> None:
    """Check that the keys of a map of a request are names of its resources.

    Raises:
        InvalidRequestError: one is not.
    """
    known = {each.name for each in request.resources}
    for name in names:
        if name not in known:
            raise InvalidRequestError(field, f"{name[:200]!r} is not one of `resources`")


def not_put(name: str, why: NotPut) -> Problem:
    """Return what to say of a resource that was not changed."""
    match why:
        case NotPut.IN_USE:
            return Problem(
                "per_key",
                f"{name} is in use: wait until no task holds it or waits for it, or declare another resource",
                task_pb2.ERROR_CODE_RESOURCE_IN_USE,
            )
        case NotPut.CHANGED:
            return Problem(
                "expected_changed_at",
                f"somebody changed {name} since it was read: read it again",
                task_pb2.ERROR_CODE_RESOURCE_CONFLICT,
            )
        case NotPut.KEPT:
            return Problem("name", f"somebody else set {name}", task_pb2.ERROR_CODE_RESOURCE_CONFLICT)
        case NotPut.UNKNOWN:
            return Problem(
                "expected_changed_at",
                f"no resource {name!r} is declared any more",
                task_pb2.ERROR_CODE_UNKNOWN_RESOURCE,
            )


def contradiction(change: ResourceChange, field: str) -> Problem:
    """Return what to say of a resource that would contradict itself."""
    if field == "capacity" and change.name.startswith((SCHEDULING, NAMESPACE_SCHEDULING)):
        return _needs_rate(change.name)
    match field:
        case "rate.units":
            if "rate.units" in change.named:
                message = (
                    "would be removed, and its period or burst would stay: name `rate` to remove all of it"
                )
            else:
                message = (
                    f"is missing: {change.name} has no rate, so give its units and period with the burst"
                )
        case "rate.period":
            message = "is missing: say in what time the units may start"
        case _:
            message = (
                f"is missing: {change.name} would have no limit; say how many units there are, or give a rate"
            )
    return Problem(field, message)


def _needs_rate(name: str) -> Problem:
    return Problem("rate", f"{name} bounds how fast tasks are scheduled: give a rate, and no capacity")


def read_change(asked: limits_pb2.ResourceLimit, mask: FieldMask | None) -> ResourceChange:
    """Return what a request changes of a resource. Whether that fits what stays is for the store to tell."""
    check_resource_name(asked.name)
    named = named_fields("update_masks", mask, asked, RESOURCE_FIELDS)
    capacity = asked.capacity if asked.HasField("capacity") and "capacity" in named else None
    if asked.per_key and "per_key" in named and asked.name.startswith((QUOTA, NAMESPACE_QUOTA, DOMAIN_QUOTA)):
        raise Problem("per_key", f"{asked.name} is a quota, which has no keys: leave it out")
    units = asked.rate.units if is_set(asked, "rate.units") else None
    if asked.name.startswith((SCHEDULING, NAMESPACE_SCHEDULING)) and (
        capacity is not None or ("rate.units" in named and units is None)
    ):
        raise _needs_rate(asked.name)
    if capacity is not None and not 0 <= capacity <= _LARGEST_CAPACITY:
        raise Problem("capacity", f"must be from 0 to {_LARGEST_CAPACITY:,}, not {capacity:,}")
    note = asked.note if "note" in named else ""
    check_text("note", note, _LONGEST_NOTE)
    if "rate.units" in named:
        # what is set and empty is no removal: a mask that names the rate, without one, is
        is_removed = units is None and not asked.HasField("rate")
        if not is_removed and not 1 <= (units or 0) <= LARGEST_RATE:
            raise Problem(
                "rate.units",
                f"must be 1 to {LARGEST_RATE:,}, not {units or 0:,}: to hold back all tasks, set the capacity to 0",
            )
    period = None
    if "rate.period" in named and asked.rate.HasField("period"):
        period = read_duration("rate.period", asked.rate.period, _LONGEST_PERIOD, least=_SHORTEST_PERIOD)
    burst = asked.rate.burst or None
    if "rate.burst" in named and not 0 <= asked.rate.burst <= LARGEST_RATE:
        raise Problem("rate.burst", f"must be 1 to {LARGEST_RATE:,}, not {asked.rate.burst:,}")
    return ResourceChange(
        name=asked.name,
        named=named,
        capacity=capacity,
        per_key=asked.per_key,
        note=note,
        units=units,
        period=period,
        burst=burst,
    )
