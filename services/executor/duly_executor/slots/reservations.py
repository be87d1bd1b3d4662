"""Reads the setting `executor.reserved_slots`: for which lambdas and priorities an Executor keeps slots."""

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from duly_core.errors import SettingsError
from duly_core.lambdas.names import LAMBDA_NAME
from duly_wire.enums import Priority

_MOST = 32
"""Each reservation is a request for work that stays open."""
_EXAMPLE = 'write {"billing" = 2, "mail:high" = 1} in the file, or "billing=2, mail:high=1"'


class Reservation(NamedTuple):
    """Slots that only tasks of one lambda, or of one of its priorities, may use."""

    lambda_name: str
    priority: Priority | None
    """None: tasks of any priority."""
    slots: int

    @property
    def whose(self) -> str:
        """The lambda, and the priority if there is one."""
        return (
            self.lambda_name if self.priority is None else f"{self.lambda_name}:{self.priority.name.lower()}"
        )


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Read `billing=2, mail:high=1`.

    Raises:
        ValueError: it has another form, or a part of it cannot be meant.
    """
    reservations = tuple(_reservation(part) for part in text.split(",") if part.strip())
    if len(reservations) > _MOST:
        raise ValueError(f"has {len(reservations)} reservations: there may be {_MOST} at most")
    whole = {each.lambda_name for each in reservations if each.priority is None}
    for each in reservations:
        if each.priority is not None and each.lambda_name in whole:
            raise ValueError(
                f"reserves slots for {each.lambda_name} and for {each.whose}: "
                "reserve for all priorities of a lambda, or for single ones"
            )
    twice = [whose for whose, count in Counter(each.whose for each in reservations).items() if count > 1]
    if twice:
        raise ValueError(f"reserves slots for {twice[0]} twice: write their sum once")
    return reservations


def _reservation(part: str) -> Reservation:
    whose, separator, number = (word.strip() for word in part.partition("="))
    if not separator:
        raise ValueError(f"{part.strip()!r} is not a reservation: {_EXAMPLE}")
    name, colon, priority = whose.partition(":")
    if not LAMBDA_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a lambda: {_EXAMPLE}")
    known = {each.name.lower(): each for each in Priority}
    if colon and priority not in known:
        raise ValueError(
            f"{whose!r}: {priority!r} is not a priority; use {', '.join(known)}, or {name} for all"
        )
    if not number.isdecimal() or not int(number):
        raise ValueError(
            f"{whose!r} must reserve 1 slot or more, not {number}: to reserve none, leave it out"
        )
    return Reservation(name, known[priority] if colon else None, int(number))


def _as_text(value: object) -> object:
    """Return a table of the settings file, or a text, in one form."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{whose}={str(number).lower()}" for whose, number in _entries(value))
    if not isinstance(value, str):
        raise ValueError(f"must be a table or a text: {_EXAMPLE}")  # noqa: TRY004 (pydantic takes a TypeError for a bug)
    return ", ".join(f"{each.whose}={each.slots}" for each in parse_reservations(value))


def _entries(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the entries of a table; in TOML `mail.send = 1` without quotes is a table within a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{rest}", number) for rest, number in _entries(value))
        else:
            yield name, value


ReservedSlotsText = Annotated[str, BeforeValidator(_as_text)]


def check_sum(reservations: Collection[Reservation], processes: int, slots: int) -> None:
    """Let pass no more reserved slots than there are.

    Raises:
        ValueError: they are more.
    """
    reserved = sum(each.slots for each in reservations)
    if reserved > processes * slots:
        raise ValueError(
            f"reserved_slots reserves {reserved} slots, but an Executor has {processes * slots} "
            f"(executor.processes {processes} x executor.slots {slots}): reserve fewer, or raise one of these"
        )


def check_served(reservations: Collection[Reservation], lambdas: Collection[str], application: str) -> None:
    """Let pass only lambdas that the application has.

    Raises:
        SettingsError: it has no such lambda.
    """
    for each in reservations:
        if each.lambda_name not in lambdas:
            close = difflib.get_close_matches(each.lambda_name, lambdas, n=1)
            meant = f"do you mean {close[0]}?" if close else f"it has {', '.join(sorted(lambdas))}."
            raise SettingsError(
                f"executor.reserved_slots: {application} has no lambda {each.lambda_name}; {meant} "
                "If workers of several applications read this setting, set DULY_EXECUTOR_RESERVED_SLOTS for each"
            )
