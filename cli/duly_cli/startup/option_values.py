"""Reads what options are given: durations, instants, priorities; an error names the option."""

import json
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TypeVar, overload

import typer

import duly
from duly.keep import KEEP, Keep

Member = TypeVar("Member", bound=IntEnum)
Value = TypeVar("Value")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""As it would be written: 007 is a text."""


def invalid(option: str, message: str) -> typer.BadParameter:
    """Return the error for the value of an option."""
    return typer.BadParameter(message, param_hint=f"'{option}'")


@overload
def parse_duration(text: str, option: str) -> timedelta: ...


@overload
def parse_duration(text: str | None, option: str) -> timedelta | None: ...


def parse_duration(text: str | None, option: str) -> timedelta | None:
    """Return a duration of the command line: 250ms, 2s, 1m30s, 7d; None: none was given."""
    from duly_core.config.durations import parse_duration as parse

    if text is None:
        return None
    try:
        value = parse(text)
    except ValueError as error:
        raise invalid(option, str(error)) from error
    if not isinstance(value, timedelta):
        raise invalid(option, f"{text!r} is not a duration: write 250ms, 2s, 1m30s or 7d")
    return value


def parse_member(option: str, name: str, kind: type[Member], what: str, joined_by: str = "_") -> Member:
    """Return a member of the command line, in any case; an error says `what` it is not, such as "a status"."""
    try:
        return kind[name.upper().replace("-", "_")]
    except KeyError as error:
        *names, last = (each.name.lower().replace("_", joined_by) for each in kind)
        message = f"{name!r} is not {what}: {', '.join(names)} or {last}"
        raise invalid(option, message) from error


def parse_priority(name: str) -> duly.Priority:
    """Return a priority of the command line, in any case."""
    return parse_member("--priority", name, duly.Priority, "a priority")


def parse_moment(
    text: str | None, option: str, *, needs_zone: bool = False, otherwise: str = ""
) -> datetime | None:
    """Return an instant of the command line: 2026-12-24T18:00:00+01:00. Without an offset it is local time, or refused.

    `otherwise` says what else may be written.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(
            option, f"{text!r} is not an instant: write 2026-12-24T18:00:00+01:00{otherwise}"
        ) from error
    if needs_zone and moment.utcoffset() is None:
        here = moment.astimezone().isoformat()
        message = (
            f"{text!r} has no time zone: write {moment.isoformat()}Z for UTC, or {here} for the time here"
        )
        raise invalid(option, message)
    return moment.astimezone()


def parse_moment_or_distance(
    text: str | None, option: str, sign: int, *, needs_zone: bool = False
) -> datetime | None:
    """Return an instant of the command line, or a duration from now: ahead with `sign` 1, ago with -1."""
    try:
        distance = parse_duration(text, option)
    except typer.BadParameter:
        return parse_moment(text, option, needs_zone=needs_zone, otherwise=", or a duration such as 2h")
    return datetime.now().astimezone() + sign * distance if distance is not None else None


def given(option: str, value: Value | None, *, removed: bool = False) -> Value | Keep | None:
    """Return what an option and its `--no-` say: the value, None to remove it, KEEP if neither was given.

    Raises:
        typer.BadParameter: both were given.
    """
    if removed and value is not None:
        raise invalid(option, f"say either {option} or --no-{option.removeprefix('--')}")
    if removed:
        return None
    return KEEP if value is None else value


def parse_session(key: str | None, order: str, on_failure: str) -> duly.Session | None:
    """Return the session that the options name; None: they name none."""
    if key is None:
        if (order, on_failure) != ("scheduled", "skip"):
            message = "--session-order and --session-on-failure go with --session KEY"
            raise typer.BadParameter(message)
        return None
    return duly.Session(
        key,
        parse_member("--session-order", order, duly.SessionOrder, "an order"),
        parse_member("--session-on-failure", on_failure, duly.SessionPolicy, "a policy"),
    )


def parse_attributes(texts: Iterable[str], option: str) -> dict[str, str | int | bool]:
    """Return attributes of the command line: order=17 is an integer, urgent=true a flag, `zip="17"` a text as JSON has it.

    >>> parse_attributes(["order=17", "zip=007", "urgent=true"], "--attribute")
    {'order': 17, 'zip': '007', 'urgent': True}

    Raises:
        typer.BadParameter: one is no NAME=VALUE, or a name is given twice.
    """
    found: dict[str, str | int | bool] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not (name and mark and value):
            raise invalid(option, f"{text!r} is no attribute: write NAME=VALUE, such as order=17")
        if name in found:
            raise invalid(option, f"{name} is given twice")
        found[name] = _attribute_value(value, option)
    return found


def _attribute_value(text: str, option: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            raise invalid(option, f"{text!r} is no text in quotes, as JSON has it") from None
    return text
