"""Turns the end of a command into the outcome of an attempt. No I/O; nothing that a command wrote gets into a message."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from duly.callbacks.outcomes import FatalFailure, RetriableFailure, Snooze
from duly.lambdas.sizes import duration_text, size_text

if TYPE_CHECKING:
    from duly.command_lambdas.definition import CommandLambda

_WHAT_IT_IS = (errno.E2BIG, errno.EINVAL)
"""Why this command cannot be started on any host."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int = 0
    # Its exit code; -9: killed by SIGKILL.
    limit: str = ""
    # For which it was killed: memory, processes, folder, output, disk, max_runtime, supervisor.
    not_started: int = 0
    # The errno of why it was never started.
    seconds: float = 0
    cpu_seconds: float = 0


def failure_of(allowed: CommandLambda, ended: Ended) -> FatalFailure | RetriableFailure | Snooze | None:
    """Return what an end means; None: success."""
    if ended.not_started:
        reason = os.strerror(ended.not_started)
        if ended.not_started in _WHAT_IT_IS:
            return FatalFailure(f"the command cannot be started: {reason}")
        return RetriableFailure(f"the command cannot be started on this host: {reason}")
    if ended.limit:
        return RetriableFailure(_of_limit(allowed, ended.limit))
    if ended.status < 0:
        if -ended.status == signal.SIGXFSZ:
            return RetriableFailure(_of_limit(allowed, "folder"))
        return RetriableFailure(f"the command was killed by {_signal_name(-ended.status)}")
    meaning = allowed.exit_codes.get(ended.status, "success" if ended.status == 0 else "retriable")
    if meaning == "success":
        return None
    if isinstance(meaning, timedelta):
        return Snooze(meaning)
    kind = FatalFailure if meaning == "fatal" else RetriableFailure
    return kind(f"the command ended with exit code {ended.status}")


def _of_limit(allowed: CommandLambda, limit: str) -> str:
    return {
        "memory": f"the command was killed: it took more memory than memory_limit, {size_text(allowed.memory_limit)}",
        "processes": f"the command was killed: it had more processes and threads than process_limit, {allowed.process_limit}",
        "folder": f"the command was killed: its folder grew beyond folder_limit, {size_text(allowed.folder_limit)}",
        "output": f"the command was killed: it wrote more than output_limit, {size_text(allowed.output_limit)}",
        "max_runtime": f"the command was killed: it ran longer than max_runtime, {duration_text(allowed.max_runtime)}",
        "disk": "the command was killed: the worker's disk had no room for its output",
        "supervisor": "the command was killed: what watched it is gone",
    }[limit]


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
