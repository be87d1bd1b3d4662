"""Reads a file of grants, which `duly grants apply` makes true."""

import tomllib
from pathlib import Path
from typing import Any

import duly

_FIELDS = {"principal", "role", "patterns"}
_LONGEST_NAME = 255


def read_grants(file: Path) -> "list[duly.Grant]":
    """Return the grants of a file: all of it is checked first.

    Raises:
        OSError: it cannot be read.
        ValueError: something in it is invalid; the message says in which table.
    """
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from error
    if unknown := sorted(set(content) - {"grant"}):
        raise ValueError(f"unknown: {', '.join(unknown)}; write a table [[grant]] for each role")
    tables = content.get("grant", [])
    if not isinstance(tables, list):
        raise ValueError("write [[grant]] with two brackets")  # noqa: TRY004 (of the file's content)
    problems: list[str] = []
    grants: list[duly.Grant] = []
    for number, table in enumerate(tables, 1):
        try:
            grants += _grants(table)
        except ValueError as error:
            problems.append(f"[[grant]] number {number}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return grants


def _grants(table: Any) -> "list[duly.Grant]":
    from duly_core.access.grants import pattern_problem

    if not isinstance(table, dict) or set(table) != _FIELDS:
        raise ValueError("must have principal, role and patterns, and nothing else")
    principal, role, patterns = table["principal"], table["role"], table["patterns"]
    if not isinstance(principal, str) or not 1 <= len(principal.encode()) <= _LONGEST_NAME:
        raise ValueError(f"principal must be a text of 1 to {_LONGEST_NAME} bytes")
    known = {each.name.lower(): each for each in duly.Role}
    if not isinstance(role, str) or role not in known:
        raise ValueError(f"role must be one of {', '.join(known)}, not {role!r}")
    if not isinstance(patterns, list) or not patterns:
        raise ValueError('patterns must be a list, such as ["mail.*"]')
    for pattern in patterns:
        if problem := "it must be a text" if not isinstance(pattern, str) else pattern_problem(pattern):
            raise ValueError(f"pattern {pattern!r}: {problem}")
    return [duly.Grant(principal, known[role], pattern) for pattern in patterns]
