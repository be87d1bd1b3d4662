"""What a payload asks for, checked against what its lambda allows. No I/O; no word of a payload gets into a message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NoReturn

from duly.attachments.attachment import Attachment
from duly.errors import PayloadError
from duly_wire.attachment_rules import name_problem

if TYPE_CHECKING:
    from duly.command_lambdas.definition import CommandLambda

MOST_WORDS = 10_000
LONGEST_WORD = 128 * 1024 - 1
"""Bytes: what Linux takes as one argument."""
MOST_BYTES_OF_WORDS = 1024 * 1024
"""With the environment; Linux takes a quarter of the stack's limit, which is 2 MiB nearly everywhere."""
MOST_PATTERNS = 100
LONGEST_PATTERN = 1000
_FIELDS = ("argv", "script", "stdin", "inputs", "environment", "outputs", "stdout", "stderr")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Request:
    """A command to run."""

    program: str
    # The absolute path of what is run.
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stdin: Attachment | None
    inputs: tuple[Attachment, ...]
    outputs: tuple[Pattern, ...]
    # As which its standard streams are kept.
    stdout_name: str
    stderr_name: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """Files that a payload asks for: a path within the folder, in which *, ? and [] stand for parts of names, and ** for folders."""

    text: str

    @property
    def is_path(self) -> bool:
        """Whether it means one file."""
        return not any(each in self.text for each in "*?[")

    def matches(self, path: str) -> bool:
        """Tell whether it means a file, by its path within the folder.

        >>> [Pattern(text).matches("a/b/c.txt") for text in ("a/**/*.txt", "**", "*/c.txt", "a/b/c.txt")]
        [True, True, False, True]
        """
        wanted, parts = self.text.split("/"), path.split("/")
        if "**" not in wanted and len(wanted) != len(parts):
            return False
        ends = {0}
        """How many of the parts the pattern's parts so far can mean."""
        for each in wanted:
            if each == "**":
                ends = {*range(min(ends), len(parts) + 1)}
            else:
                ends = {end + 1 for end in ends if end < len(parts) and fnmatchcase(parts[end], each)}
            if not ends:
                return False
        return len(parts) in ends

    def comparisons(self, path: str) -> int:
        """Return how many parts `matches` compares at most."""
        wanted = self.text.split("/")
        depth = path.count("/") + 1
        return len(wanted) * depth if "**" in wanted else 1 if len(wanted) != depth else depth


def read_request(allowed: CommandLambda, payload: Any) -> Request:
    """Return what a payload asks for. Raises PayloadError, which names the field."""
    if not isinstance(payload, Mapping):
        _refuse("must be an object with argv" + (" or script" if allowed.shell else ""))
    for name in payload:
        if name not in _FIELDS:
            _refuse(f"has a field that no command has: there are {', '.join(_FIELDS)}")
    program, argv = _command(allowed, payload)
    environment = _environment(allowed, payload)
    size = sum(len(each.encode()) + 9 for each in (*argv, *environment, *environment.values()))
    if size > MOST_BYTES_OF_WORDS:
        _refuse(
            f"argv and environment have more than {MOST_BYTES_OF_WORDS:,} bytes: put the rest into a file"
        )
    inputs = _inputs(payload)
    stdin = payload.get("stdin")
    if stdin is not None and not isinstance(stdin, Attachment):
        _refuse("stdin: must be an attachment")
    files = inputs if stdin is None else (*inputs, stdin)
    sizes = sum(each.size_bytes for each in files)
    if sizes > allowed.folder_limit:
        _refuse(
            f"inputs and stdin: they have {sizes:,} bytes, and the folder's limit is {allowed.folder_limit:,}"
        )
    names = [_stream_name(payload, each) for each in ("stdout", "stderr")]
    if names[0] == names[1]:
        _refuse("stdout and stderr: they need different names")
    return Request(program, argv, environment, stdin, inputs, _patterns(payload), *names)


def _command(allowed: CommandLambda, payload: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    argv, script = payload.get("argv"), payload.get("script")
    if script is not None:
        if not allowed.shell:
            _refuse("script: this lambda runs no shell: give argv, or set shell in the worker's file")
        if argv is not None:
            _refuse("has both argv and script: give one")
        return allowed.shell, (allowed.shell, "-c", _word(script, "script"))
    if not isinstance(argv, Sequence) or isinstance(argv, str) or not argv:
        _refuse('argv: must be a list of texts, such as ["ps", "-aux"]')
    if len(argv) > MOST_WORDS:
        _refuse(f"argv: has more than {MOST_WORDS:,} words")
    words = tuple(_word(each, "argv") for each in argv)
    program = allowed.programs.get(words[0])
    if program is None:
        names = ", ".join(allowed.programs) or "no program but the shell"
        _refuse(f"argv: the program is not allowed here: {names[:1000]}")
    return program, words


def _word(value: object, field: str) -> str:
    if not isinstance(value, str):
        _refuse(f"{field}: must be text")
    if "\0" in value:
        _refuse(f"{field}: has a NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        _refuse(f"{field}: is no text that can be written as UTF-8")
    if size > LONGEST_WORD:
        _refuse(
            f"{field}: a word has {size:,} bytes, and a program takes {LONGEST_WORD:,}: put it into a file"
        )
    return value


def _environment(allowed: CommandLambda, payload: Mapping[str, Any]) -> dict[str, str]:
    given = payload.get("environment") or {}
    if not isinstance(given, Mapping):
        _refuse("environment: must be an object")
    for name in given:
        if not _VARIABLE.fullmatch(name):
            _refuse("environment: has a name that no variable can have")
        if name not in allowed.settable:
            names = ", ".join(sorted(allowed.settable)) or "none"
            _refuse(f"environment: payloads of this lambda may set {names[:1000]}")
    return {**allowed.environment, **{name: _word(value, "environment") for name, value in given.items()}}


def _inputs(payload: Mapping[str, Any]) -> tuple[Attachment, ...]:
    given = payload.get("inputs") or ()
    if isinstance(given, Attachment):
        given = (given,)
    if not isinstance(given, Sequence) or not all(isinstance(each, Attachment) for each in given):
        _refuse("inputs: must be an attachment, or a list of attachments")
    names = {each.name for each in given}
    if len(names) < len(given):
        _refuse("inputs: two have the same name")
    return tuple(given)


def _patterns(payload: Mapping[str, Any]) -> tuple[Pattern, ...]:
    given = payload.get("outputs") or ()
    if (
        isinstance(given, str)
        or not isinstance(given, Sequence)
        or not all(isinstance(each, str) for each in given)
    ):
        _refuse('outputs: must be a list of texts, such as ["report.pdf", "logs/*.txt"]')
    if len(given) > MOST_PATTERNS:
        _refuse(f"outputs: has more than {MOST_PATTERNS} patterns")
    for each in given:
        parts = each.split("/")
        if (
            not each
            or "\0" in each
            or len(each) > LONGEST_PATTERN
            or not all(parts)
            or {".", ".."} & set(parts)
        ):
            _refuse('outputs: each is a path within the folder, without "..", "." and a "/" at an end')
    return tuple(map(Pattern, given))


def _stream_name(payload: Mapping[str, Any], stream: str) -> str:
    name = payload.get(stream, f"{stream}.txt")
    problem = name_problem(name) if isinstance(name, str) else "is no text"
    if problem:
        _refuse(f"{stream}: the name under which it is kept {problem}")
    return str(name)


def _refuse(problem: str) -> NoReturn:
    raise PayloadError(problem)
