"""Between the wire's ends of attempts (results, releases) and the store's shapes; checks what it reads."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import repeat
from operator import attrgetter

from duly_core.attachments.rules import AttachmentError
from duly_core.errors import InvalidRequestError
from duly_core.results.successes import refused
from duly_core.rpc.requests.attachment_uses import run_uses
from duly_core.rpc.requests.checks import read_duration, read_instant
from duly_core.tasks.completions import LONGEST_WAIT, SHORTEST_WAIT
from duly_core.tasks.task import Encoding, ReleasedClaim, Result, Token
from duly_hsc.convert import checkpoint, claims
from duly_hsc.convert_events import read_wait
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, task_pb2

_RESULT_LIMIT = 1024 * 1024
_MESSAGE_LIMIT = 4096
_TRACEBACK_LIMIT = 8192
_LONGEST_RETRY = timedelta(days=365)
_HASH_BYTES = 32

_OUTCOMES: dict[int, Outcome] = {int(outcome): outcome for outcome in Outcome}
_ENCODINGS: dict[int, Encoding] = {int(encoding): encoding for encoding in Encoding}


def results(messages: Sequence[hsc_pb2.TaskResult]) -> list[Result]:
    """How attempts ended.

    Raises:
        InvalidRequestError: an outcome is unknown, or lacks or exceeds what belongs to it; nothing is written.
    """
    pairs = claims("results", (message.claim for message in messages))
    successes = _plain_successes(pairs, messages)
    if successes is not None:
        return successes
    return [
        _result(task_id, token, message) for (task_id, token), message in zip(pairs, messages, strict=True)
    ]


_said_of_success = attrgetter("outcome", "result", "result_encoding", "attachments")
_PLAIN_ENCODINGS = {
    number: each for number, each in _ENCODINGS.items() if each is not Encoding.ATTACHMENT
} | {task_pb2.ENCODING_UNSPECIFIED: Encoding.JSON}


def _plain_successes(
    pairs: Sequence[tuple[TaskId, Token]], messages: Sequence[hsc_pb2.TaskResult]
) -> list[Result] | None:
    """Return the results, made by columns, if all are valid successes without attachments; else None.

    So nearly all calls are, and it takes half of the time.
    """
    if not pairs:
        return []
    outcomes, results, encodings, attachments = zip(*map(_said_of_success, messages), strict=True)
    if (
        {*outcomes} != {hsc_pb2.OUTCOME_SUCCESS}
        or any(attachments)
        or not _PLAIN_ENCODINGS.keys() >= {*encodings}
        or max(map(len, results)) > _RESULT_LIMIT
    ):
        return None
    task_ids, tokens = zip(*pairs, strict=True)
    columns = (
        task_ids,
        tokens,
        repeat(Outcome.SUCCESS),
        results,
        map(_PLAIN_ENCODINGS.__getitem__, encodings),
        repeat(None),  # failure_kind
        repeat(""),  # failure_message
        repeat(None),  # retry_after
        [_started_at("results.started_at", message) for message in messages],
    )
    rest = map(repeat, _REST_OF_SUCCESS)
    return [*map(Result._make, zip(*columns, *rest, strict=False))]


_REST_OF_SUCCESS = tuple(map(Result._field_defaults.__getitem__, Result._fields[9:]))


def _result(task_id: TaskId, token: Token, message: hsc_pb2.TaskResult) -> Result:
    outcome = _OUTCOMES.get(message.outcome)
    if outcome is None:
        raise InvalidRequestError("results.outcome", f"{message.outcome} is not an outcome")
    if outcome is Outcome.SUCCESS:
        result = message.result
        if len(result) > _RESULT_LIMIT:
            raise InvalidRequestError("results.result", f"must be at most {_RESULT_LIMIT:,} bytes")
        encoding = _ENCODINGS.get(message.result_encoding or task_pb2.ENCODING_JSON)
        if encoding is None:
            raise InvalidRequestError(
                "results.result_encoding", f"{message.result_encoding} is not a valid Encoding"
            )
        ended = Result(
            task_id, token, outcome, result, encoding, started_at=_started_at("results.started_at", message)
        )
        if message.attachments:
            return _with_uses(ended, message)
        if encoding is Encoding.ATTACHMENT:
            return refused(ended, "ENCODING_ATTACHMENT needs the attachment that is the result")
        return ended
    retry_after = _retry_after(message)
    if outcome is Outcome.SNOOZED and retry_after is None:
        raise InvalidRequestError("results.retry_after", "a snoozed task must say for how long")
    if outcome is Outcome.COMPLETE_LATER:
        return _handed_over(task_id, token, message)
    if outcome is Outcome.WAIT_FOR_EVENT:
        return _waiting(task_id, token, message)
    ended = Result(
        task_id,
        token,
        outcome,
        failure_kind=_failure_kind(outcome, message),
        failure_message=_cut(_clean(message.failure_message)),
        retry_after=retry_after,
        started_at=_started_at("results.started_at", message),
        traceback=_cut(_clean(message.traceback), _TRACEBACK_LIMIT),
        checkpoint=checkpoint("results", message.checkpoint),
        with_worker=message.worker_died and outcome is Outcome.CRASHED,
    )
    return _with_uses(ended, message) if message.attachments else ended


def _handed_over(task_id: TaskId, token: Token, message: hsc_pb2.TaskResult) -> Result:
    if len(message.completion_hash) != _HASH_BYTES:
        raise InvalidRequestError("results.completion_hash", f"must be the {_HASH_BYTES} bytes of a SHA-256")
    if not message.HasField("complete_within"):
        raise InvalidRequestError(
            "results.complete_within", "a task that is completed later must say by when at the latest"
        )
    within = read_duration(
        "results.complete_within", message.complete_within, LONGEST_WAIT, least=SHORTEST_WAIT
    )
    ended = Result(
        task_id,
        token,
        Outcome.COMPLETE_LATER,
        started_at=_started_at("results.started_at", message),
        checkpoint=checkpoint("results", message.checkpoint),
        completion_hash=message.completion_hash,
        complete_within=within,
    )
    return _with_uses(ended, message) if message.attachments else ended


def _waiting(task_id: TaskId, token: Token, message: hsc_pb2.TaskResult) -> Result:
    waiting = Result(
        task_id,
        token,
        Outcome.WAIT_FOR_EVENT,
        started_at=_started_at("results.started_at", message),
        checkpoint=checkpoint("results", message.checkpoint),
    )
    try:
        waiting = waiting._replace(event_wait=read_wait("event_wait", message.event_wait))
    except (
        InvalidRequestError
    ) as error:  # of the callback's own making: it must not fail the results of others
        return refused(waiting, f"ctx.wait_for: {error}")
    return _with_uses(waiting, message) if message.attachments else waiting


def _with_uses(result: Result, message: hsc_pb2.TaskResult) -> Result:
    """Return a result with what its run kept. Invalid uses make a success a failure; otherwise they are left out."""
    try:
        uses = run_uses(message.attachments)
    except AttachmentError as error:
        return result if result.outcome is not Outcome.SUCCESS else refused(result, f"ctx.attach: {error}")
    return result._replace(attachments=uses)


def releases(request: hsc_pb2.ReleaseRequest) -> list[ReleasedClaim]:
    """What is handed back.

    Raises:
        InvalidRequestError: as `claims`, or an instant is invalid.
    """
    stopped = {run.task_id: run for run in request.stopped}
    return [
        _release(task_id, token, stopped.get(task_id)) for task_id, token in claims("claims", request.claims)
    ]


def _release(task_id: TaskId, token: Token, stopped: hsc_pb2.StoppedRun | None) -> ReleasedClaim:
    if stopped is None:
        return ReleasedClaim(task_id, token)
    return ReleasedClaim(
        task_id,
        token,
        _started_at("stopped.started_at", stopped),
        _cut(_clean(stopped.reason)),
        checkpoint("stopped", stopped.checkpoint),
    )


def _clean(text: str) -> str:
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _cut(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    return text.encode()[:limit].decode(errors="ignore")


def _failure_kind(outcome: Outcome, message: hsc_pb2.TaskResult) -> FailureKind | None:
    if outcome in (Outcome.SNOOZED, Outcome.CANCELLED):
        return None
    default = FailureKind.CRASH if outcome is Outcome.CRASHED else FailureKind.CALLBACK
    try:
        return FailureKind(message.failure_kind or default)
    except ValueError as error:
        raise InvalidRequestError(
            "results.failure_kind", f"{message.failure_kind} is not a failure kind"
        ) from error


def _retry_after(message: hsc_pb2.TaskResult) -> timedelta | None:
    if not message.HasField("retry_after"):
        return None
    return read_duration("results.retry_after", message.retry_after, _LONGEST_RETRY)


def _started_at(field: str, message: hsc_pb2.TaskResult | hsc_pb2.StoppedRun) -> datetime | None:
    if not message.HasField("started_at"):
        return None
    return read_instant(field, message.started_at)
