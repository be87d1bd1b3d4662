"""Checks of requests that change pools of workers."""

import re
from datetime import datetime

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.pools.rules import (
    LARGEST_BUDGET,
    LONGEST_IDLE,
    LONGEST_TARGET,
    MOST_LAMBDAS,
    MOST_SLOTS,
    MOST_WORKERS,
    NEEDED,
    NO_POOL_NAME,
    POOL_FIELDS,
    POOL_NAME,
    SHORTEST_TARGET,
    SMALLEST_BUDGET,
    Pool,
)
from duly_core.rpc.requests.checks import check_text, read_duration, read_instant
from duly_core.rpc.requests.field_masks import is_set, merged, named_fields
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_frontend.pools.wire import DEFAULTS, pool_to_wire
from duly_wire.queue_names import check_labels
from duly_wire.v1 import pools_pb2

_LONGEST_NOTE = 1024
_MOST_SETTINGS = 20
_SETTING_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,62}")
_SETTING_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@=-]{0,252}")
_DRIVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_pool_name(name: str) -> None:
    """Check the name of a pool.

    Raises:
        Problem: no pool can have such a name.
    """
    if POOL_NAME.fullmatch(name) is None:
        raise Problem("name", NO_POOL_NAME)


def read_named(new: pools_pb2.NewPool) -> frozenset[str]:
    """Return the fields that a request sets of a pool."""
    check_pool_name(new.pool.name)
    mask: FieldMask | None = new.update_mask if new.HasField("update_mask") else None
    return named_fields("update_mask", mask, new.pool, POOL_FIELDS)


def read_expected(new: pools_pb2.NewPool) -> datetime | None:
    """Return when a pool must have been changed last; None: it does not matter."""
    if not new.HasField("expected_changed_at"):
        return None
    return read_instant("expected_changed_at", new.expected_changed_at)


def read_pool(said: pools_pb2.Pool, before: Pool | None, named: frozenset[str]) -> Pool:
    """Return the pool to be: `before`, with the named fields as they were said; those that are unset get their defaults.

    Raises:
        Problem: it is invalid, or lacks what each pool needs.
    """
    asked = merged(pools_pb2.Pool() if before is None else pool_to_wire(before), said, named)
    for path in POOL_FIELDS:
        if not is_set(asked, path) and is_set(DEFAULTS, path):
            asked = merged(asked, DEFAULTS, [path])
    for field in NEEDED:
        if not is_set(asked, field):
            raise Problem(field, f"is missing: a pool needs {', '.join(NEEDED)}")
    _check_lambdas(asked)
    _check_number("minimum", asked.minimum, 0, MOST_WORKERS)
    _check_number("maximum", asked.maximum, 1, MOST_WORKERS)
    _check_number("slots", asked.slots, 1, MOST_SLOTS)
    if asked.minimum > asked.maximum:
        raise Problem(
            "minimum" if "minimum" in named else "maximum",
            f"the minimum ({asked.minimum}) is above the maximum ({asked.maximum}): set both",
        )
    try:
        labels = check_labels(asked.labels)
    except ValueError as error:
        raise Problem("labels", str(error)) from None
    if _DRIVER.fullmatch(asked.driver) is None:
        raise Problem("driver", "must be the name of a driver: 1 to 63 of a-z, 0-9, '_', '-'")
    _check_settings(asked)
    check_text("note", asked.note, _LONGEST_NOTE)
    budget = None
    if asked.HasField("budget"):
        budget = read_duration("budget", asked.budget, LARGEST_BUDGET, least=SMALLEST_BUDGET)
    return Pool(
        name=said.name,
        lambdas=tuple(dict.fromkeys(asked.lambdas)),
        labels=tuple(labels.split(",")) if labels else (),
        minimum=asked.minimum,
        maximum=asked.maximum,
        slots=asked.slots,
        target_age=read_duration("target_age", asked.target_age, LONGEST_TARGET, least=SHORTEST_TARGET),
        idle_time=read_duration("idle_time", asked.idle_time, LONGEST_IDLE),
        budget=budget,
        driver=asked.driver,
        driver_settings=dict(sorted(asked.driver_settings.items())),
        note=asked.note,
    )


def _check_lambdas(asked: pools_pb2.Pool) -> None:
    if len(asked.lambdas) > MOST_LAMBDAS:
        raise Problem("lambdas", f"there may be at most {MOST_LAMBDAS}, not {len(asked.lambdas):,}")
    for place, pattern in enumerate(asked.lambdas):
        field = f"lambdas[{place}]"
        if "*" in pattern[:-1]:
            raise Problem(field, "'*' may stand at the end only: a prefix such as 'mail.*', or '*' alone")
        bare = pattern.removesuffix("*").removesuffix("/").rstrip(".-_") if pattern.endswith("*") else pattern
        if bare or pattern != "*":
            check_lambda_name(field, bare)
        if "@" in pattern:
            raise Problem(field, "a version, a domain or labels are no part of it: name the lambda")


def _check_number(field: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise Problem(field, f"must be {least:,} to {most:,}, not {number:,}")


def _check_settings(asked: pools_pb2.Pool) -> None:
    """Values become parts of commands and addresses: they are words."""
    if len(asked.driver_settings) > _MOST_SETTINGS:
        raise Problem("driver_settings", f"there may be at most {_MOST_SETTINGS}")
    for name, value in asked.driver_settings.items():
        if _SETTING_NAME.fullmatch(name) is None:
            raise Problem("driver_settings", f"{name[:63]!r} is no name: use 1 to 63 of a-z, 0-9, '_'")
        if _SETTING_VALUE.fullmatch(value) is None:
            raise Problem(
                "driver_settings",
                f"the value of {name} must be 1 to 253 of A-Z, a-z, 0-9, '_.:/@=-', the first a letter or a digit",
            )
