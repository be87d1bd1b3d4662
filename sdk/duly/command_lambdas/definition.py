"""Reads the file that describes command lambdas: programs, environment, limits. Names every mistake by its place in the file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from duly.lambdas.policy import Policy
from duly.lambdas.sizes import duration_of
from duly.lambdas.toml_file import POLICY, TomlFile

Meaning: TypeAlias = "Literal['success', 'fatal', 'retriable'] | timedelta"

_PATH = "/usr/local/bin:/usr/bin:/bin"
_MAX_RUNTIME = timedelta(minutes=10)
_TRANSFER_TIME = timedelta(minutes=10)
_STOP_GRACE = timedelta(seconds=5)
_LONGEST_STOP_GRACE = timedelta(seconds=8)
"""Executors interrupt a callback 10 s after a cancel (executor.cancel_grace)."""
_MEANINGS = ("success", "fatal", "retriable")
_HIGHEST_CODE = 255
_KEYS = (
    *("programs", "shell", "inherit", "environment", "set", "max_runtime", "transfer_time", "stop_grace"),
    *("memory_limit", "process_limit", "output_limit", "folder_limit", "exit_codes"),
)
_LOADS_CODE = (
    "LD_",
    "PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "PYTHON",
    "PERL5",
    "RUBY",
    "NODE_OPTIONS",
    "GIT_",
    "JAVA_TOOL_OPTIONS",
)
"""Who sets one of these runs other code than the programs that are allowed."""


@dataclass(frozen=True, slots=True)
class CommandLambda:
    """A lambda of the file."""

    name: str
    # What a payload may write as argv[0], and the absolute path that is run.
    programs: Mapping[str, str]
    # The absolute path of the shell that runs scripts; empty: none does.
    shell: str
    # What each command gets.
    environment: Mapping[str, str]
    # What payloads may set.
    settable: frozenset[str]
    max_runtime: timedelta
    stop_grace: timedelta
    memory_limit: int
    process_limit: int
    output_limit: int
    folder_limit: int
    exit_codes: Mapping[int, Meaning]
    policy: Policy


@dataclass(frozen=True, slots=True)
class CommandLambdas:
    """All that a file says."""

    owner: str
    version: str
    # In which each run gets a folder of its own.
    folder: Path
    lambdas: tuple[CommandLambda, ...]


def read_file(path: Path) -> CommandLambdas:
    """Return what a file says. Raises RegistrationError."""
    toml = TomlFile(path)
    return _Reader(toml, path, os.environ).file(toml.read())


class _Reader:
    """Reads one file."""

    def __init__(self, toml: TomlFile, path: Path, environment: Mapping[str, str]) -> None:
        self._toml = toml
        self._path = path
        self._environment = environment

    def file(self, given: Mapping[str, Any]) -> CommandLambdas:
        self._toml.only(given, "", ("owner", "version", "folder", "lambdas"))
        folder = self._path.parent / self._toml.text(given, "folder", "", tempfile.gettempdir())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            self._toml.refuse("folder", f"{folder} is no folder that this user may write to")
        lambdas = [
            self._lambda(name, value) for name, value in self._toml.table(given, "lambdas", "").items()
        ]
        if not lambdas:
            self._toml.refuse("", 'no lambdas: add [lambdas."chores/run"] with programs')
        return CommandLambdas(
            owner=self._toml.text(given, "owner", "", ""),
            version=self._toml.text(given, "version", "", ""),
            folder=folder,
            lambdas=tuple(lambdas),
        )

    def _lambda(self, name: str, given: object) -> CommandLambda:
        place = f"lambdas.{name}"
        if not isinstance(given, Mapping):
            self._toml.refuse(place, "must be a table with programs")
        self._toml.only(given, place, (*_KEYS, *POLICY))
        shell = self._shell(given, place)
        environment = self._variables(given, place)
        programs = self._programs(given, place, environment["PATH"])
        if not programs and not shell:
            self._toml.refuse(
                place, 'allows nothing: name programs = ["/usr/bin/convert"], or set shell = true'
            )
        max_runtime = self._toml.duration(given, "max_runtime", place) or _MAX_RUNTIME
        stop_grace = self._toml.duration(given, "stop_grace", place) or _STOP_GRACE
        if stop_grace > _LONGEST_STOP_GRACE:
            self._toml.refuse(
                f"{place}.stop_grace", f"at most {_LONGEST_STOP_GRACE.seconds}s: Executors wait for 10s"
            )
        transfer = self._toml.duration(given, "transfer_time", place) or _TRANSFER_TIME
        return CommandLambda(
            name=name,
            programs=programs,
            shell=shell,
            environment=environment,
            settable=self._settable(given, place, is_shell=bool(shell)),
            max_runtime=max_runtime,
            stop_grace=stop_grace,
            memory_limit=self._toml.size(given, "memory_limit", place, 1 << 30),
            process_limit=self._toml.count(given, "process_limit", place, 64),
            output_limit=self._toml.size(given, "output_limit", place, 16 << 20),
            folder_limit=self._toml.size(given, "folder_limit", place, 1 << 30),
            exit_codes=self._exit_codes(given, place),
            policy=self._toml.policy(given, place, max_runtime + stop_grace + transfer),
        )

    def _programs(self, given: Mapping[str, Any], place: str, path: str) -> dict[str, str]:
        found = {}
        for name in self._toml.names(given, "programs", place):
            if "/" in name and not name.startswith("/"):
                self._toml.refuse(f"{place}.programs", f"{name!r}: write a name, or an absolute path")
            program = shutil.which(name, path=path)
            if program is None:
                self._toml.refuse(
                    f"{place}.programs",
                    f"{name!r} is not installed here, or not in {path}: install it, write its path, or leave it out",
                )
            found[name] = program
        return found

    def _shell(self, given: Mapping[str, Any], place: str) -> str:
        shell = given.get("shell", False)
        if isinstance(shell, bool):
            return "/bin/sh" if shell else ""
        found = shutil.which(shell, path=_PATH) if isinstance(shell, str) else None
        if found is None:
            self._toml.refuse(
                f"{place}.shell", 'must be true, false or a shell that is installed, such as "bash"'
            )
        return found

    def _variables(self, given: Mapping[str, Any], place: str) -> dict[str, str]:
        inherited = {
            name: self._environment[name]
            for name in self._toml.names(given, "inherit", place)
            if name in self._environment
        }
        fixed = self._toml.table(given, "set", place)
        for name, value in fixed.items():
            if not isinstance(value, str) or "\0" in value or "=" in name or not name:
                self._toml.refuse(f"{place}.set.{name}", "must be a text")
        return {"PATH": _PATH, **inherited, **fixed}

    def _settable(self, given: Mapping[str, Any], place: str, *, is_shell: bool) -> frozenset[str]:
        names = self._toml.names(given, "environment", place)
        for name in names:
            if not is_shell and any(
                name == each or (each[-1] in "_N5Y" and name.startswith(each)) for each in _LOADS_CODE
            ):
                self._toml.refuse(
                    f"{place}.environment",
                    f"{name} decides which code runs: a payload that sets it could run anything. Use `set` in this file",
                )
        return frozenset(names)

    def _exit_codes(self, given: Mapping[str, Any], place: str) -> dict[int, Meaning]:
        place = f"{place}.exit_codes"
        meanings: dict[int, Meaning] = {}
        for code, value in self._toml.table(given, "exit_codes", place.rpartition(".")[0]).items():
            if not code.isascii() or not code.isdigit() or int(code) > _HIGHEST_CODE:
                self._toml.refuse(f"{place}.{code}", f"exit codes are 0 to {_HIGHEST_CODE}")
            snooze = (
                duration_of(value.get("snooze")) if isinstance(value, Mapping) and len(value) == 1 else None
            )
            if snooze is not None:
                meanings[int(code)] = snooze
            elif value in _MEANINGS:
                meanings[int(code)] = value
            else:
                self._toml.refuse(
                    f"{place}.{code}", 'is "success", "fatal", "retriable" or { snooze = "5m" }'
                )
        return meanings
