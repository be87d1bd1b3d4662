"""Code of the application that runs when a run of one of its callbacks has ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from duly.callbacks.outcomes import Interrupted
from duly_wire.enums import FailureKind, Outcome
from duly_wire.v1 import hsc_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from duly.callbacks.invoke import RunAsync
    from duly.context import TaskContext

_log = logging.getLogger("duly.callback")

SUCCESS = frozenset((hsc_pb2.OUTCOME_SUCCESS,))
FAILURES = frozenset(
    (hsc_pb2.OUTCOME_RETRIABLE_FAILURE, hsc_pb2.OUTCOME_FATAL_FAILURE, hsc_pb2.OUTCOME_CRASHED)
)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, as a hook is told: `on_failure(ctx, end)`."""

    outcome: Outcome
    failure_kind: FailureKind | None
    failure_message: str
    retry_after: timedelta | None
    """With SNOOZED, and with a RETRIABLE_FAILURE that said so."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A function, and the ends that it is called for."""

    function: Callable[[TaskContext, RunEnd], Any]
    lambda_name: str
    """Empty: of all lambdas of the application."""
    outcomes: frozenset[int]
    """Empty: all."""

    def wants(self, lambda_name: str, outcome: int) -> bool:
        """Whether it is called for such an end."""
        return self.lambda_name in ("", lambda_name) and (not self.outcomes or outcome in self.outcomes)


def run_hooks(
    hooks: Iterable[Hook],
    lambda_name: str,
    context: TaskContext,
    result: hsc_pb2.TaskResult,
    run_async: RunAsync,
) -> None:
    """Call the hooks for the end of a run, in their order. What they raise is logged, and changes nothing."""
    wanted = [hook for hook in hooks if hook.wants(lambda_name, result.outcome)]
    if not wanted:
        return
    end = RunEnd(
        Outcome(result.outcome),
        FailureKind(result.failure_kind) if result.failure_kind else None,
        result.failure_message,
        result.retry_after.ToTimedelta() if result.HasField("retry_after") else None,
    )
    for hook in wanted:
        try:
            value = hook.function(context, end)
            if type(value) is CoroutineType:
                run_async(value)
        except BaseException as error:  # noqa: BLE001 (SystemExit too: user code may not end the process)
            name = getattr(hook.function, "__qualname__", repr(hook.function))
            _log.exception("task %s, %s: the hook %s raised", context.task_id, lambda_name, name)
            if isinstance(error, Interrupted):
                return  # its time is over, and that of the hooks behind it
