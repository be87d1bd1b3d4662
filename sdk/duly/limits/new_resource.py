"""A resource to be, as an application declares it. Free of gRPC."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn, TypedDict

from duly.errors import RegistrationError
from duly.limits.resource import Rate
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import limits_pb2

_MOST_UNITS = 1_000_000
_LONGEST_NOTE = 1024
_SHORTEST, _LONGEST = timedelta(milliseconds=1), timedelta(days=1)


class ResourceOptions(TypedDict, total=False):
    """What a resource may be told beside its name and capacity; see App.resource."""

    rate: Rate | None
    burst: int | None
    per_key: bool
    note: str


def new_resource(
    name: str,
    capacity: int | None,
    *,
    rate: Rate | None = None,
    burst: int | None = None,
    per_key: bool = False,
    note: str = "",
) -> limits_pb2.ResourceLimit:
    """Return the declaration of a resource as it is sent.

    Raises RegistrationError, which says what to write, for what contradicts itself and for what is out of bounds.
    """
    _check_texts(name, note)
    if not isinstance(per_key, bool):
        _refuse(name, f"per_key must be True or False, not {per_key!r}")
    if capacity is None and rate is None:
        _refuse(name, "it would have no limit: give capacity=, or rate=")
    limit = limits_pb2.ResourceLimit(name=name, per_key=per_key, note=note)
    if capacity is not None:
        limit.capacity = _whole(name, "capacity", capacity, 0)
    if rate is None:
        if burst is not None:
            _refuse(name, f"burst={burst!r} needs a rate: add rate=duly.Rate(UNITS)")
        return limit
    if not isinstance(rate, Rate):
        _refuse(name, f"rate must be a duly.Rate, such as duly.Rate(10), not {rate!r}")
    if burst is not None and rate.burst is not None:
        _refuse(name, "say either burst= or the burst of rate=")
    if not _SHORTEST <= _duration(name, rate.period) <= _LONGEST:
        _refuse(name, f"the period of rate must be from 1 ms to 1 day, not {rate.period!r}")
    limit.rate.units = _whole(name, "the units of rate", rate.units, 1)
    limit.rate.period.CopyFrom(to_duration(rate.period))
    limit.rate.burst = _whole(
        name, "burst", next(filter(lambda each: each is not None, (burst, rate.burst, 1))), 1
    )
    return limit


def _check_texts(name: object, note: object) -> None:
    if not isinstance(name, str) or not name:
        raise RegistrationError(f"resource: give it a name first, not {name!r}")
    if not isinstance(note, str) or len(note.encode(errors="replace")) > _LONGEST_NOTE:
        _refuse(name, f"note must be a text of at most {_LONGEST_NOTE:,} bytes")


def _duration(name: str, period: object) -> timedelta:
    if not isinstance(period, timedelta):
        _refuse(name, f"the period of rate must be a timedelta, not {type(period).__name__}")
    return period


def _whole(name: str, what: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_UNITS:
        _refuse(name, f"{what} must be a whole number from {least} to {_MOST_UNITS:,}, not {value!r}")
    return value


def _refuse(name: str, problem: str) -> NoReturn:
    raise RegistrationError(f"resource {name!r}: {problem}")
