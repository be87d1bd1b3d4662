"""Reads what options are given: durations, instants, priorities; an error names the option."""

from datetime import datetime, timedelta

import typer

import duly


def invalid(option: str, message: str) -> typer.BadParameter:
    """Return the error for the value of an option."""
    return typer.BadParameter(message, param_hint=f"'{option}'")


def parse_duration(text: str | None, option: str) -> timedelta | None:
    """Return a duration of the command line: 250ms, 2s, 1m30s, 7d."""
    from duly_core.durations import parse_duration as parse

    if text is None:
        return None
    try:
        value = parse(text)
    except ValueError as error:
        raise invalid(option, str(error)) from error
    return value if isinstance(value, timedelta) else None


def parse_priority(name: str) -> duly.Priority:
    """Return a priority of the command line, in any case."""
    try:
        return duly.Priority[name.upper()]
    except KeyError as error:
        raise invalid("--priority", f"{name!r} is not a priority: urgent, high, normal or low") from error


def parse_moment(text: str | None, option: str, *, needs_zone: bool = False) -> datetime | None:
    """Return an instant of the command line: 2026-12-24T18:00:00+01:00. Without an offset it is local time, or refused."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(option, f"{text!r} is not an instant: write 2026-12-24T18:00:00+01:00") from error
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
        return parse_moment(text, option, needs_zone=needs_zone)
    return datetime.now().astimezone() + sign * distance if distance is not None else None
