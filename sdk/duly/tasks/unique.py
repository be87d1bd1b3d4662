"""Unique keys: how many tasks of a key there may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly.errors import InvalidTaskError
from duly.tasks.arguments import named_fields, wrong_type
from duly.transport.enum_members import member
from duly_wire.enums import HeldWhile, OnConflict
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import frontend_pb2


@named_fields()
@dataclass(frozen=True, slots=True)
class Unique:
    """One task of a key at a time, within a lambda.

    >>> Unique("user:7", held_while=HeldWhile.LIVE).on_conflict.name
    'IGNORE'
    """

    # Empty: a digest of the payload.
    key: str = ""
    # While the task that has the key is so, the key is taken.
    held_while: HeldWhile = HeldWhile.PENDING
    # The key is taken for so long after that task was scheduled, too, whatever became of the task. None: no time.
    period: timedelta | None = None
    # What becomes of a task whose key is taken.
    on_conflict: OnConflict = OnConflict.IGNORE

    def to_bytes(self) -> bytes:
        """Return what is sent. Raises InvalidTaskError."""
        said: dict[str, Any] = {
            "key": _key(self.key),
            "held_while": member("unique.held_while", self.held_while, HeldWhile),
            "on_conflict": member("unique.on_conflict", self.on_conflict, OnConflict),
        }
        if self.period is not None:
            said["period"] = to_duration(_positive("unique.period", self.period))
        return frontend_pb2.Unique(**said).SerializeToString()


@named_fields()
@dataclass(frozen=True, slots=True)
class Debounce:
    """Runs a task once the calls with a key pause, with the latest payload.

    >>> Debounce("user:7", wait=timedelta(seconds=5), at_most=timedelta(minutes=1)).key
    'user:7'
    """

    key: str
    # The task is due so long after the last call,
    wait: timedelta
    # and so long after the first one at the latest.
    at_most: timedelta

    def to_bytes(self) -> bytes:
        """Return what is sent. Raises InvalidTaskError."""
        if not self.key:
            raise InvalidTaskError("the key of a debounce must not be empty", "debounce.key")
        wait, at_most = _positive("debounce.wait", self.wait), _positive("debounce.at_most", self.at_most)
        if at_most < wait:
            raise InvalidTaskError("debounce.at_most must not be shorter than wait", "debounce.at_most")
        debounce = frontend_pb2.Debounce(wait=to_duration(wait), at_most=to_duration(at_most))
        return frontend_pb2.Unique(key=_key(self.key), debounce=debounce).SerializeToString()


def unique_bytes(unique: Unique | str | None, debounce: Debounce | None) -> bytes:
    """Return what is sent of the options of a task. Raises InvalidTaskError."""
    if debounce is None:
        if isinstance(unique, str):
            if not unique:
                raise InvalidTaskError(
                    "unique must not be empty: duly.Unique() takes a digest of the payload", "unique"
                )
            unique = Unique(unique)
        if not isinstance(unique, Unique):
            raise wrong_type("unique", unique, "a key, which is a text, or a duly.Unique")
        return unique.to_bytes()
    if unique is not None:
        raise InvalidTaskError("give either unique or debounce, not both", "debounce")
    if not isinstance(debounce, Debounce):
        raise wrong_type("debounce", debounce, "a duly.Debounce")
    return debounce.to_bytes()


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise wrong_type("unique.key", key, "a text")
    return key


def _positive(name: str, duration: object) -> timedelta:
    if not isinstance(duration, timedelta):
        raise wrong_type(name, duration, "a timedelta")
    if duration <= timedelta():
        raise InvalidTaskError(f"{name} must be positive", name)
    return duration
