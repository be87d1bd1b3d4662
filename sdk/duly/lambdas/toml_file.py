"""Reads TOML files that describe lambdas: tables, texts, durations, sizes, policies. Names every mistake by its place in the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from duly.callbacks.payload import DEFAULT_LIMIT_BYTES
from duly.errors import RegistrationError
from duly.lambdas.policy import Backoff, Policy
from duly.lambdas.sizes import duration_of, size_of

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

_LARGEST_FILE = 4 * 1024 * 1024
POLICY = ("max_attempts", "payload_limit", "result_limit", "backoff", "requires")
"""What `TomlFile.policy` reads of a lambda's table."""


class TomlFile:
    """One file. Each method reads a name of a table, which has a place in the file; each raises RegistrationError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """Return what it says."""
        try:
            with self._path.open("rb") as file:
                text = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise RegistrationError(f"{self._path}: {error.strerror}") from None
        if len(text) > _LARGEST_FILE:
            raise RegistrationError(f"{self._path}: larger than 4 MiB")
        try:
            return tomllib.loads(text.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise RegistrationError(f"{self._path}: not TOML: {reason}") from None

    def policy(self, given: Mapping[str, Any], place: str, max_runtime: timedelta) -> Policy:
        """Return how a lambda is to be treated."""
        backoff = self.table(given, "backoff", place)
        self.only(backoff, f"{place}.backoff", ("initial", "factor", "maximum"))
        try:
            return Policy(
                max_attempts=given.get("max_attempts"),
                max_runtime=max_runtime,
                payload_limit=given.get("payload_limit"),
                result_limit=given.get("result_limit", DEFAULT_LIMIT_BYTES),
                requires=self.names(given, "requires", place, 'labels: ["region=eu"]'),
                backoff=Backoff(
                    initial=self.duration(backoff, "initial", f"{place}.backoff"),
                    factor=self.number(backoff, "factor", f"{place}.backoff"),
                    maximum=self.duration(backoff, "maximum", f"{place}.backoff"),
                )
                if backoff
                else None,
            )
        except RegistrationError as error:
            if str(error).startswith(f"{self._path}: "):
                raise
            self.refuse(place, str(error))

    def names(self, given: Mapping[str, Any], name: str, place: str, kind: str = "texts") -> list[str]:
        """Return a list of texts; none if it is not there."""
        value = given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            self.refuse(f"{place}.{name}", f"must be a list of {kind}")
        return list(value)

    def duration(self, given: Mapping[str, Any], name: str, place: str) -> timedelta | None:
        """Return a duration of more than nothing; None: it is not there."""
        if name not in given:
            return None
        if (duration := duration_of(given[name])) is None:
            self.refuse(
                f"{place}.{name}", f'{given[name]!r} is no duration: write "500ms", "30s", "5m" or "1h"'
            )
        return duration

    def size(self, given: Mapping[str, Any], name: str, place: str, default: int) -> int:
        """Return a number of bytes."""
        if name not in given:
            return default
        if (size := size_of(given[name])) is None:
            self.refuse(f"{place}.{name}", f'{given[name]!r} is no size: write "64KiB", "512MiB" or "2GiB"')
        return size

    def count(self, given: Mapping[str, Any], name: str, place: str, default: int) -> int:
        """Return a whole number of at least 1."""
        value = given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(f"{place}.{name}", "must be a whole number from 1")
        return value

    def number(self, given: Mapping[str, Any], name: str, place: str) -> float | None:
        """Return a number; None: it is not there."""
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            self.refuse(f"{place}.{name}", "must be a number")
        return value

    def flag(self, given: Mapping[str, Any], name: str, place: str) -> bool:
        """Return true or false, which is the default."""
        value = given.get(name, False)
        if not isinstance(value, bool):
            self.refuse(f"{place}.{name}", "must be true or false")
        return value

    def text(self, given: Mapping[str, Any], name: str, place: str, default: str | None = None) -> str:
        """Return a text; without a default it must be there."""
        value = given.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            self.refuse(f"{place}.{name}", "must be a text")
        return value

    def file_name(self, given: Mapping[str, Any], name: str, place: str) -> str:
        """Return the name of a file; one that is not absolute is beside the file that names it."""
        value = self.text(given, name, place, "")
        return str(self._path.parent / value) if value else ""

    def table(self, given: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
        """Return a table; an empty one if it is not there."""
        value = given.get(name, {})
        if not isinstance(value, Mapping):
            self.refuse(f"{place}.{name}", "must be a table")
        return value

    def only(self, given: Mapping[str, Any], place: str, known: tuple[str, ...]) -> None:
        """Refuse what is not known."""
        for name in given:
            if name not in known:
                self.refuse(f"{place}.{name}", f"unknown here: there are {', '.join(known)}")

    def refuse(self, place: str, problem: str) -> NoReturn:
        """Raise RegistrationError."""
        place = place.strip(".")
        raise RegistrationError(f"{self._path}: {place}: {problem}" if place else f"{self._path}: {problem}")
