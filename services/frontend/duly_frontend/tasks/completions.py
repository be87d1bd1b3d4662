"""How work ended for which tasks were handed over, held against the rules; and the store's answers for the wire."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from duly_core.access.current import scheduler
from duly_core.rpc.requests.checks import check_text, read_duration
from duly_core.rpc.requests.new_tasks import ENCODINGS, has_key_name
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.tasks.completions import Completed, Completion, CompletionVerdict
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT, Encoding
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.completion_tokens import read_completion_token
from duly_wire.enums import Outcome
from duly_wire.v1 import frontend_pb2, task_pb2

_MESSAGE_LIMIT = 4096
_LONGEST_RETRY = timedelta(days=365)
_NOT_CURRENT = Problem(
    "token",
    "no task waits for this token: its attempt is over (it was retried, or nobody completed it in time), or no task has it",
    task_pb2.ERROR_CODE_TOKEN_NOT_CURRENT,
)
_TOO_EARLY = Problem(
    "token",
    "the task runs: if its attempt has given out this token, it waits for it soon; send the same request again",
    task_pb2.ERROR_CODE_TOKEN_TOO_EARLY,
)


def read(completions: Sequence[frontend_pb2.Completion]) -> list[Completion | Problem]:
    """Check the completions of a request, each for itself."""
    return check_each(_read, completions)


def _read(asked: frontend_pb2.Completion) -> Completion:
    try:
        task_id, token_hash = read_completion_token(asked.token)
    except ValueError as error:
        raise Problem("token", str(error)) from None
    said = asked.WhichOneof("outcome")
    if said is None:
        raise Problem("", "give success or failure")
    if said == "success":
        result = asked.success.result
        encoding = _encoding(asked.success)
        return Completion(task_id, token_hash, Outcome.SUCCESS, result, encoding, by=scheduler())
    failure = asked.failure
    check_text("failure.message", failure.message, _MESSAGE_LIMIT)
    retry_after = None
    if failure.HasField("retry_after"):
        if failure.is_fatal:
            raise Problem("failure.retry_after", "is of no use with is_fatal: the task ends")
        retry_after = read_duration("failure.retry_after", failure.retry_after, _LONGEST_RETRY)
    outcome = Outcome.FATAL_FAILURE if failure.is_fatal else Outcome.RETRIABLE_FAILURE
    return Completion(
        task_id,
        token_hash,
        outcome,
        failure_message=failure.message,
        retry_after=retry_after,
        by=scheduler(),
    )


def _encoding(success: frontend_pb2.CompletionSuccess) -> Encoding:
    if len(success.result) > HARD_PAYLOAD_LIMIT:
        raise Problem(
            "success.result",
            f"{len(success.result):,} bytes exceed {HARD_PAYLOAD_LIMIT:,}: put it elsewhere, and send its address",
        )
    encoding = ENCODINGS.get(success.result_encoding)
    if encoding is None or encoding is Encoding.ATTACHMENT:
        raise Problem("success.result_encoding", "must be ENCODING_JSON, ENCODING_RAW or ENCODING_ENCRYPTED")
    if encoding is Encoding.ENCRYPTED and not has_key_name(success.result):
        raise Problem(
            "success.result",
            "ENCODING_ENCRYPTED needs the bytes D0 01, the length of the key's name, the name, and the content",
        )
    return encoding


def results(
    asked: Sequence[Completion | Problem], answers: Sequence[Completed]
) -> list[frontend_pb2.CompletionResult]:
    """One result for each completion of a request, in its order; `answers` are of those that are no Problem."""
    left = iter(answers)
    return [
        frontend_pb2.CompletionResult(error=each.to_wire())
        if isinstance(each, Problem)
        else _result(each, next(left))
        for each in asked
    ]


def _result(asked: Completion, answer: Completed) -> frontend_pb2.CompletionResult:
    if answer.status is None:
        problem = _TOO_EARLY if answer.verdict is CompletionVerdict.TOO_EARLY else _NOT_CURRENT
        return frontend_pb2.CompletionResult(error=problem.to_wire())
    result = frontend_pb2.CompletionResult(
        task_id=str(UUID(bytes=asked.task_id)), status=STATUS_TO_WIRE[answer.status]
    )
    if answer.verdict is CompletionVerdict.ENDED:
        problem = Problem("token", f"the task is {answer.status} already", task_pb2.ERROR_CODE_ALREADY_FINAL)
        result.error.CopyFrom(problem.to_wire())
    return result
