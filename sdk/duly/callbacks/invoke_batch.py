"""Runs a callback once for many tasks of its lambda; each of them ends by itself."""

from __future__ import annotations

import concurrent.futures
from asyncio import CancelledError
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from duly.callbacks import tracing
from duly.callbacks.hooks import run_hooks
from duly.callbacks.invoke import (
    RunAsync,
    add_follow_ups,
    add_kept,
    interrupted,
    new_result,
    read_payload,
    set_bad_result,
    set_handed_over,
    set_raised,
    set_returned,
    set_unread,
)
from duly.callbacks.outcomes import (
    Cancelled,
    CompleteLater,
    FatalFailure,
    Interrupted,
    RetriableFailure,
    Snooze,
)
from duly.errors import DulyError
from duly.events.waits import WaitsForEvent
from duly_wire.v1 import hsc_pb2

if TYPE_CHECKING:
    from duly.callbacks.callback import Callback
    from duly.context import TaskContext

_STOPPED = (Cancelled, Interrupted, CancelledError, concurrent.futures.CancelledError)
_OUTCOMES = (RetriableFailure, FatalFailure, Snooze, CompleteLater)


def run_batch(
    callback: Callback,
    tasks: Sequence[hsc_pb2.ClaimedTask],
    contexts: Sequence[TaskContext],
    run_async: RunAsync,
) -> list[hsc_pb2.TaskResult]:
    """Run one attempt of each of these tasks, all in one call; return what to report of each, in their order.

    A task whose payload cannot be read fails alone: the call is without it. Otherwise as `invoke.run`.
    """
    if tracing.active is None:
        results = _run(callback, tasks, contexts, run_async)
    else:
        with ExitStack() as spans:
            ended = [spans.enter_context(tracing.active.running(callback.name, each)) for each in contexts]
            results = _run(callback, tasks, contexts, run_async)
            for end, result in zip(ended, results, strict=True):
                end(result)
    if callback.hooks:
        for context, result in zip(contexts, results, strict=True):
            run_hooks(callback.hooks, callback.name, context, result, run_async)
    return results


def _run(
    callback: Callback,
    tasks: Sequence[hsc_pb2.ClaimedTask],
    contexts: Sequence[TaskContext],
    run_async: RunAsync,
) -> list[hsc_pb2.TaskResult]:
    results: list[hsc_pb2.TaskResult] = []
    items: list[tuple[hsc_pb2.ClaimedTask, TaskContext, hsc_pb2.TaskResult]] = []
    payloads: list[Any] = []
    for task, context in zip(tasks, contexts, strict=True):
        result = new_result(task, context)
        results.append(result)
        try:
            payload = read_payload(callback, task, context)
        except DulyError as error:
            set_unread(result, error)
        else:
            items.append((task, context, result))
            payloads.append(payload)
    if not items:
        return results
    given = [context for _, context, _ in items]
    try:
        value = callback.call(payloads, given)
        if type(value) is CoroutineType:
            value = run_async(value)
    except BaseException as error:  # noqa: BLE001 (SystemExit too: user code may not end the process)
        _set_all_raised(items, callback, error)
    else:
        _set_all_returned(items, callback, value)
    for _, context, result in items:
        if result.outcome == hsc_pb2.OUTCOME_SUCCESS:
            add_follow_ups(result, context)
        add_kept(result, context)
    return results


def stopped(
    tasks: Sequence[hsc_pb2.ClaimedTask], contexts: Sequence[TaskContext]
) -> list[hsc_pb2.TaskResult]:
    """Return what to report of tasks whose call was interrupted, for all of them or for some.

    The others run again, and are charged nothing: they only shared the call.
    """
    whole = not any(context.interrupted or context.cancelled for context in contexts)
    results = []
    for task, context in zip(tasks, contexts, strict=True):
        if whole or context.interrupted or context.cancelled:
            results.append(interrupted(task, context))
            continue
        result = new_result(task, context)
        result.outcome = hsc_pb2.OUTCOME_SNOOZED
        result.retry_after.FromTimedelta(timedelta())
        results.append(result)
    return results


def _set_all_returned(
    items: Sequence[tuple[hsc_pb2.ClaimedTask, TaskContext, hsc_pb2.TaskResult]],
    callback: Callback,
    value: object,
) -> None:
    if value is None:
        values: Sequence[object] = [None] * len(items)
    elif isinstance(value, list | tuple) and len(value) == len(items):
        values = value
    else:
        got = f"a list of {len(value)}" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
        for _, _, result in items:
            set_bad_result(
                result,
                f"the callback of a batch returns None, or a list with one result for each of its {len(items)} tasks; "
                f"it returned {got}",
            )
        return
    for (task, context, result), each in zip(items, values, strict=True):
        if isinstance(each, BaseException) and not isinstance(each, _OUTCOMES):
            set_raised(result, callback, task, context, each)
        else:
            set_returned(result, callback, context, each)


def _set_all_raised(
    items: Sequence[tuple[hsc_pb2.ClaimedTask, TaskContext, hsc_pb2.TaskResult]],
    callback: Callback,
    error: BaseException,
) -> None:
    """An exception of the call is one of each task; it is logged once."""
    if isinstance(error, CompleteLater):
        for _, context, result in items:
            set_handed_over(result, error, context)
        return
    if isinstance(error, WaitsForEvent):  # of one task; the others have not asked for it
        for _, _, result in items:
            set_bad_result(
                result, "the callback of a batch cannot wait for events: declare the lambda without batch="
            )
        return
    if isinstance(error, _STOPPED) and any(
        context.cancelled or context.interrupted for _, context, _ in items
    ):
        ends = stopped([task for task, _, _ in items], [context for _, context, _ in items])
        for (_, _, result), end in zip(items, ends, strict=True):
            result.CopyFrom(end)
        return
    task, context, first = items[0]
    set_raised(first, callback, task, context, error)
    for _, _, result in items[1:]:
        result.outcome = first.outcome
        result.failure_kind = first.failure_kind
        result.failure_message = first.failure_message
        result.traceback = first.traceback
        if first.HasField("retry_after"):
            result.retry_after.CopyFrom(first.retry_after)
