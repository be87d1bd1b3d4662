"""What clients ask about dead letters, held against the rules; and the store's answers for the wire."""

import math
import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from duly_core.config.settings import format_duration
from duly_core.errors import InvalidRequestError
from duly_core.rpc.requests.checks import limit, read_duration
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.dead_letters import Answer, OfCause, Page, Place, Spread, Verdict
from duly_frontend.lists.filters import instant
from duly_frontend.tasks.wire import NO_SUCH_TASK, STATUS_TO_WIRE
from duly_wire.ids import TaskId
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import frontend_pb2, task_pb2

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_PLACE = struct.Struct(">q16s")
"""When the dead letter ended, in microseconds since 1970; and its id."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH
_MICROSECOND = timedelta(microseconds=1)


def of_cause(request: frontend_pb2.RedriveTasksRequest) -> OfCause | None:
    """Which cause the dead letters of a call are to have, and behind which it begins; None: any.

    Raises:
        InvalidRequestError: the cause or the place is unusable.
    """
    if not request.cause:
        if request.after:
            raise InvalidRequestError("after", "goes with a cause only: leave it out")
        return None
    if not _FINGERPRINT.fullmatch(request.cause):
        raise InvalidRequestError(
            "cause", "must be 16 hexadecimal digits, as `duly status` and the page of dead letters have it"
        )
    return OfCause(request.cause, _read_place(request.after) if request.after else None)


def _write_place(place: Place) -> str:
    return urlsafe_b64encode(_PLACE.pack((place.ended_at - _EPOCH) // _MICROSECOND, place.task_id)).decode()


def _read_place(text: str) -> Place:
    try:
        microseconds, task_id = _PLACE.unpack(urlsafe_b64decode(text))
    except (ValueError, struct.error):
        microseconds = -1
    if not 0 <= microseconds < _LATEST // _MICROSECOND:
        raise InvalidRequestError("after", "must be next_after of the answer before")
    return Place(_EPOCH + microseconds * _MICROSECOND, task_id)


def spread(request: frontend_pb2.RedriveTasksRequest, horizon: timedelta) -> Spread:
    """When the dead letters of a call become due; the last of a page at most the horizon from as_of.

    Raises:
        InvalidRequestError: the rate or the offset is unusable.
    """
    rate = request.rate
    if not (math.isfinite(rate) and rate >= 0):
        raise InvalidRequestError(
            "rate", "must be a number of tasks a second, or 0 to redrive them all at once"
        )
    offset = timedelta()
    if request.HasField("offset"):
        offset = read_duration("offset", request.offset, horizon)
    if rate and limit(request.limit) / rate > (horizon - offset).total_seconds():
        raise InvalidRequestError(
            "rate",
            f"{limit(request.limit):,} tasks at {rate:g} a second reach beyond the horizon of {format_duration(horizon)}: "
            "ask for a higher rate, or a lower limit",
        )
    return Spread(rate, instant(request, "as_of"), offset)


def page_to_wire(page: Page, cause: str) -> frontend_pb2.RedriveTasksResponse:
    """What a call did, and where the next one goes on."""
    response = frontend_pb2.RedriveTasksResponse(
        count=page.count,
        more=page.more,
        next_offset=to_duration(page.spread.offset),
        next_after=_write_place(page.after) if page.after else "",
        cause=cause,
    )
    if page.spread.as_of is not None:
        response.as_of.CopyFrom(to_timestamp(page.spread.as_of))
    return response


def answers_to_wire(
    ids: Sequence[TaskId | Problem], answers: Mapping[TaskId, Answer]
) -> list[frontend_pb2.RedriveTaskResult]:
    """One result for each id of a request, in its order."""
    return [_result(task_id if isinstance(task_id, Problem) else answers.get(task_id)) for task_id in ids]


def _result(answer: Answer | Problem | None) -> frontend_pb2.RedriveTaskResult:
    if isinstance(answer, Problem):
        return frontend_pb2.RedriveTaskResult(error=answer.to_wire())
    if answer is None:
        return frontend_pb2.RedriveTaskResult(error=NO_SUCH_TASK.to_wire())
    result = frontend_pb2.RedriveTaskResult(status=STATUS_TO_WIRE[answer.status])
    if answer.verdict is Verdict.NOT_DEAD:
        problem = Problem(
            "task_id",
            f"it is not a dead letter but {answer.status}: only a task that ended as fatal_failure can be redriven",
            task_pb2.ERROR_CODE_NOT_A_DEAD_LETTER,
        )
        result.error.CopyFrom(problem.to_wire())
    elif answer.verdict is Verdict.UNKNOWN_LAMBDA:
        problem = Problem(
            "lambda",
            "its lambda is not registered: start a worker that declares it (duly worker MODULE:APP), then redrive it",
            task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
        )
        result.error.CopyFrom(problem.to_wire())
    elif answer.verdict is Verdict.KEY_TAKEN and answer.holder is not None:
        problem = Problem(
            "task_id",
            f"task {UUID(bytes=answer.holder)} has its unique key: let that end, or cancel it, then redrive this one",
            task_pb2.ERROR_CODE_UNIQUE_KEY_TAKEN,
        )
        result.error.CopyFrom(problem.to_wire())
    return result
