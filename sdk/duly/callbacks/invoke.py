"""The one place where a callback is run for a claimed task.

Reads and checks the payload, calls, and turns whatever happens (a value, an outcome, an exception,
an exit) into the TaskResult that goes to the HSC. Nothing a callback does escapes from here.
"""

from __future__ import annotations

import concurrent.futures
import logging
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from duly.attachments.attachment import AttachmentsInsideError
from duly.attachments.encoded import Encoded
from duly.callbacks import tracing
from duly.callbacks.codec import payload_of, protect, result_of, reveal
from duly.callbacks.hooks import run_hooks
from duly.callbacks.outcomes import (
    Cancelled,
    CompleteLater,
    Crashed,
    FatalFailure,
    Interrupted,
    RetriableFailure,
    Snooze,
    Success,
)
from duly.callbacks.payload import encode
from duly.callbacks.traceback_text import callback_frames, traceback_of
from duly.errors import (
    DecryptionError,
    DulyError,
    EventTimeoutError,
    NotSentError,
    PayloadError,
    describe,
    text_of,
)
from duly.events.waits import WaitsForEvent
from duly_wire.completion_tokens import read_completion_token
from duly_wire.v1 import hsc_pb2, task_pb2

if TYPE_CHECKING:
    from datetime import timedelta

    from duly.callbacks.callback import Callback
    from duly.context import TaskContext

RunAsync: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]

MESSAGE_LIMIT_BYTES = 4096
_SECOND_NS = 1_000_000_000
_ASYNC_CANCELLED = (CancelledError, concurrent.futures.CancelledError)

_log = logging.getLogger("duly.callback")


def run(
    callback: Callback, task: hsc_pb2.ClaimedTask, context: TaskContext, run_async: RunAsync
) -> hsc_pb2.TaskResult:
    """Run one attempt to its end and return what to report.

    `run_async` runs an async callback's coroutine and returns its value (it may block: this is a
    thread of the callback's own). Never raises for anything the callback or its payload does, except for an `Interrupted` that
    comes between the callback's own lines and these; what a callback raised is logged with its traceback, and
    reported as one line and the frames of its own code.
    """
    active = tracing.active
    if active is None:
        result = _run(callback, task, context, run_async)
    else:
        with active.running(callback.name, context) as ended:
            result = _run(callback, task, context, run_async)
            ended(result)
    if callback.hooks:
        run_hooks(callback.hooks, callback.name, context, result, run_async)
    return result


def _run(
    callback: Callback, task: hsc_pb2.ClaimedTask, context: TaskContext, run_async: RunAsync
) -> hsc_pb2.TaskResult:
    result = new_result(task, context)
    try:
        payload = read_payload(callback, task, context)
    except DulyError as error:
        set_unread(result, error)
        return result
    try:
        value = callback.call(payload, context)
        if type(value) is CoroutineType:
            value = run_async(value)
    except BaseException as error:  # noqa: BLE001 (SystemExit too: user code may not end the process)
        set_raised(result, callback, task, context, error)
    else:
        set_returned(result, callback, context, value)
        if context.children is not None and result.outcome == hsc_pb2.OUTCOME_SUCCESS:
            add_follow_ups(result, context)
    if context.kept is not None:
        add_kept(result, context)
    return result


def read_payload(callback: Callback, task: hsc_pb2.ClaimedTask, context: TaskContext) -> Any:
    """Return the payload as the callback wants it. Raises DulyError, for `set_unread`."""
    context.codec = callback.codec
    data, encoding = task.payload, int(task.payload_encoding)
    if encoding == task_pb2.ENCODING_ENCRYPTED:
        data, encoding = reveal(callback.codec, data, encoding, payload_of(callback.name))
    if encoding == task_pb2.ENCODING_ATTACHMENT:
        data, encoding = context.attachments.read_whole(data)
    return callback.read(data, encoding, context.origin)


def set_unread(result: hsc_pb2.TaskResult, error: DulyError) -> None:
    """The payload could not be read."""
    if isinstance(error, DecryptionError):
        kind = task_pb2.FAILURE_KIND_NOT_DECRYPTED
        _set_failure(result, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, kind, str(error))
    elif isinstance(error, PayloadError):
        _set_failure(result, hsc_pb2.OUTCOME_FATAL_FAILURE, task_pb2.FAILURE_KIND_BAD_PAYLOAD, str(error))
    else:  # the payload is in an attachment that cannot be fetched now
        _set_not_sent(result, error)


def add_follow_ups(result: hsc_pb2.TaskResult, context: TaskContext) -> None:
    """Add what a callback that succeeded has scheduled."""
    result.children.extend(context.children or ())
    if context.nodes is not None:
        result.nodes.extend(context.nodes.values())


def add_kept(result: hsc_pb2.TaskResult, context: TaskContext) -> None:
    """Add the files that stay with the task."""
    if context.kept is not None:
        result.attachments.extend(context.kept.kept)


def set_bad_result(result: hsc_pb2.TaskResult, message: str) -> None:
    """The callback returned what is no result."""
    _set_failure(result, hsc_pb2.OUTCOME_FATAL_FAILURE, task_pb2.FAILURE_KIND_BAD_RESULT, message)


def new_result(task: hsc_pb2.ClaimedTask, context: TaskContext) -> hsc_pb2.TaskResult:
    """Return the result of an attempt that has no outcome yet."""
    result = hsc_pb2.TaskResult(claim=task.claim)
    started_at = result.started_at
    started_at.seconds, started_at.nanos = divmod(context.started_ns, _SECOND_NS)
    return result


def interrupted(task: hsc_pb2.ClaimedTask, context: TaskContext) -> hsc_pb2.TaskResult:
    """Return what to report of an attempt that was interrupted."""
    result = new_result(task, context)
    _set_interrupted(result, task.max_runtime.ToTimedelta(), context)
    return result


def _set_interrupted(result: hsc_pb2.TaskResult, limit: timedelta, context: TaskContext) -> None:
    if context.cancelled:
        result.outcome = hsc_pb2.OUTCOME_CANCELLED
        return
    message = f"ran longer than its max_runtime of {limit.total_seconds():g} s and was interrupted"
    kind = task_pb2.FAILURE_KIND_MAX_RUNTIME
    _set_failure(result, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, kind, message)


def set_returned(result: hsc_pb2.TaskResult, callback: Callback, context: TaskContext, value: object) -> None:
    """Set what a callback returned."""
    if value is None:  # what most return
        result.outcome = hsc_pb2.OUTCOME_SUCCESS
        result.result_encoding = task_pb2.ENCODING_JSON
        return
    if isinstance(value, RetriableFailure | FatalFailure | Snooze):
        _set_outcome(result, value)
        return
    if isinstance(value, CompleteLater):
        set_handed_over(result, value, context)
        return
    if isinstance(value, Success):
        value = value.result
    limit = callback.policy.result_limit
    try:
        try:
            data, encoding = encode(value)
        except AttachmentsInsideError:
            encoded = context.attachments.encode_result(value)
            data, encoding = encoded.data, encoded.encoding
            result.attachments.extend(encoded.uses)
        sent, sent_as = data, encoding
        if callback.codec is not None:
            bound_to = result_of(context.task_id)
            sent, sent_as = protect(callback.codec, (data, encoding), bound_to, context.task_id)
        if len(sent) > limit and context.can_attach:
            whole = context.attachments.encode_whole_result(Encoded(data, encoding, [*result.attachments]))
            sent, sent_as = whole.data, whole.encoding
            del result.attachments[:]
            result.attachments.extend(whole.uses)
    except Interrupted:
        raise
    except NotSentError as error:
        _set_not_sent(result, error)
        return
    except BaseException as error:  # noqa: BLE001 (a model's own dump may raise anything)
        problem = f"the result, a {type(value).__name__}, cannot be encoded: {text_of(error)}"
    else:
        if len(sent) <= limit:
            result.outcome = hsc_pb2.OUTCOME_SUCCESS
            result.result = sent
            result.result_encoding = sent_as
            return
        problem = (
            f"the result, a {type(value).__name__} of {len(sent)} bytes, is larger than result_limit, {limit}"
        )
    del result.attachments[:]
    _set_failure(result, hsc_pb2.OUTCOME_FATAL_FAILURE, task_pb2.FAILURE_KIND_BAD_RESULT, problem)


def _set_not_sent(result: hsc_pb2.TaskResult, error: Exception) -> None:
    """The attempt failed for want of an attachment, which the next one may get."""
    del result.attachments[:]
    _set_failure(result, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, task_pb2.FAILURE_KIND_EXCEPTION, describe(error))


def set_raised(
    result: hsc_pb2.TaskResult,
    callback: Callback,
    task: hsc_pb2.ClaimedTask,
    context: TaskContext,
    error: BaseException,
) -> None:
    """Set what a callback raised, and log it."""
    if isinstance(error, RetriableFailure | FatalFailure | Snooze):
        _set_outcome(result, error)
        if not isinstance(error, Snooze):
            result.traceback = traceback_of(error).text
        return
    if isinstance(error, CompleteLater):
        set_handed_over(result, error, context)
        return
    if isinstance(error, WaitsForEvent):
        result.outcome = hsc_pb2.OUTCOME_WAIT_FOR_EVENT
        result.event_wait.CopyFrom(error.wait)
        for each in error.wait.refused:
            words = "task %s, %s: put the event %s aside, and waits for another: %s"
            _log.warning(words, context.task_id, callback.name, each.key, each.reason)
        return
    if isinstance(error, Crashed):
        _set_failure(result, hsc_pb2.OUTCOME_CRASHED, task_pb2.FAILURE_KIND_CRASH, str(error))
        return
    if isinstance(error, Cancelled) or (context.cancelled and isinstance(error, _ASYNC_CANCELLED)):
        result.outcome = hsc_pb2.OUTCOME_CANCELLED
        return
    if isinstance(error, Interrupted) or (context.interrupted and isinstance(error, _ASYNC_CANCELLED)):
        kept = _log_raised("task %s, %s: interrupted", callback, context, error)
        _set_interrupted(result, task.max_runtime.ToTimedelta(), context)
        if result.outcome != hsc_pb2.OUTCOME_CANCELLED:
            result.traceback = kept
        return
    result.traceback = _log_raised("task %s, %s: the callback raised", callback, context, error)
    if isinstance(error, EventTimeoutError):
        kind = task_pb2.FAILURE_KIND_EVENT_TIMEOUT
        _set_failure(result, hsc_pb2.OUTCOME_FATAL_FAILURE, kind, str(error))
        return
    if isinstance(error, DecryptionError):
        kind = task_pb2.FAILURE_KIND_NOT_DECRYPTED
        _set_failure(result, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, kind, str(error))
        return
    fatal = callback.policy.is_fatal(error)
    outcome = hsc_pb2.OUTCOME_FATAL_FAILURE if fatal else hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    _set_failure(result, outcome, task_pb2.FAILURE_KIND_EXCEPTION, describe(error))


def _log_raised(message: str, callback: Callback, context: TaskContext, error: BaseException) -> str:
    """Log what a callback raised with the frames of its own code; those of Duly's would hide them. Return its traceback.

    One that is too long to be kept is logged as it is kept: a message of an exception may have megabytes.
    """
    kept = traceback_of(error)
    if kept.is_whole:
        exc_info = (type(error), error, callback_frames(error))
        _log.warning(message, context.task_id, callback.name, exc_info=exc_info)
    else:
        _log.warning(f"{message}\n%s", context.task_id, callback.name, kept.text)
    return kept.text


def _set_outcome(result: hsc_pb2.TaskResult, outcome: RetriableFailure | FatalFailure | Snooze) -> None:
    if isinstance(outcome, Snooze):
        result.outcome = hsc_pb2.OUTCOME_SNOOZED
        result.retry_after.FromTimedelta(outcome.delay)
        return
    fatal = isinstance(outcome, FatalFailure)
    kind = hsc_pb2.OUTCOME_FATAL_FAILURE if fatal else hsc_pb2.OUTCOME_RETRIABLE_FAILURE
    _set_failure(result, kind, task_pb2.FAILURE_KIND_CALLBACK, text_of(outcome))
    if isinstance(outcome, RetriableFailure) and outcome.retry_after is not None:
        result.retry_after.FromTimedelta(outcome.retry_after)


def set_handed_over(result: hsc_pb2.TaskResult, outcome: CompleteLater, context: TaskContext) -> None:
    """Somebody completes the task later."""
    if not context.completion:
        problem = "the callback ended with CompleteLater, and gave nobody ctx.completion_token()"
        _set_failure(result, hsc_pb2.OUTCOME_FATAL_FAILURE, task_pb2.FAILURE_KIND_BAD_RESULT, problem)
        return
    result.outcome = hsc_pb2.OUTCOME_COMPLETE_LATER
    _, result.completion_hash = read_completion_token(context.completion)
    result.complete_within.FromTimedelta(outcome.timeout)


def _set_failure(
    result: hsc_pb2.TaskResult,
    outcome: hsc_pb2.Outcome.ValueType,
    kind: task_pb2.FailureKind.ValueType,
    message: str,
) -> None:
    result.outcome = outcome
    result.failure_kind = kind
    result.failure_message = one_line(message)


def one_line(text: str) -> str:
    """Return text as the wire takes it: one line, at most 4 KiB of UTF-8, without NULs (Postgres has none)."""
    line = " ".join(text[:MESSAGE_LIMIT_BYTES].split()).replace("\x00", "\\0")
    return line.encode("utf-8", "replace")[:MESSAGE_LIMIT_BYTES].decode("utf-8", "ignore")
