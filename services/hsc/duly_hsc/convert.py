"""Between the wire's claims, beats and results and the store's shapes; checks what it reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

from duly_core.attachments.rules import read_uses
from duly_core.errors import InvalidRequestError
from duly_core.gates.ends import GateEnds
from duly_core.graphs.predecessors import GraphPlace
from duly_core.lambdas.names import QUEUE_NAME
from duly_core.rpc.requests.attachment_uses import use_to_wire
from duly_core.rpc.requests.checks import (
    check_count,
    check_holder,
    check_prefixes,
    read_duration,
    read_priorities,
)
from duly_core.tasks.claims import Caller
from duly_core.tasks.task import (
    CHECKPOINT_LIMIT,
    Applied,
    ClaimedTask,
    HeartbeatAnswer,
    Proposal,
    TaskHeartbeat,
    Token,
)
from duly_hsc.convert_events import write_received
from duly_hsc.convert_places import write_place
from duly_hsc.startable import could_start_at
from duly_hsc.work.caller_groups import Claimed
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2

_ID_BYTES = 16
_MOST_LAMBDAS = 2_000
_MOST_WORK = 2_000
_LONGEST_POLL = timedelta(seconds=60)
_NOTE_LIMIT = 1024
_PROGRESS_PLACES = 6
_LONGEST_OVERDUE = timedelta(days=366)
_MOST_NEIGHBOURS = 100_000

KEPT_TO_WIRE = {
    HeartbeatAnswer.KEPT: hsc_pb2.HEARTBEAT_VERDICT_KEPT,
    HeartbeatAnswer.LOST: hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM,
    HeartbeatAnswer.CANCEL_REQUESTED: hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED,
    HeartbeatAnswer.KILL_REQUESTED: hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED,
    HeartbeatAnswer.GATED: hsc_pb2.HEARTBEAT_VERDICT_GATED,
}
APPLIED_TO_WIRE = {
    Applied.APPLIED: hsc_pb2.RESULT_VERDICT_APPLIED,
    Applied.ALREADY_APPLIED: hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED,
    Applied.LOST: hsc_pb2.RESULT_VERDICT_LOST_CLAIM,
}


_id_and_token = attrgetter("task_id", "token")


def claims(field: str, messages: Iterable[hsc_pb2.Claim]) -> list[tuple[TaskId, Token]]:
    """Task ids and tokens, each task once.

    Raises:
        InvalidRequestError: an id or a token is not 16 bytes, or a task comes twice.
    """
    pairs: list[tuple[TaskId, Token]] = [*map(_id_and_token, messages)]
    if not pairs:
        return pairs
    task_ids, tokens = zip(*pairs, strict=True)
    if {*map(len, task_ids), *map(len, tokens)} != {_ID_BYTES}:
        raise InvalidRequestError(field, "task_id and token must be 16 bytes each")
    if len({*task_ids}) < len(pairs):
        raise InvalidRequestError(field, "names a task twice")
    return pairs


def proposals(messages: Sequence[hsc_pb2.ClaimProposal]) -> list[Proposal]:
    """What a Controller asks to claim.

    Raises:
        InvalidRequestError: as `claims`, or a lambda's name is invalid.
    """
    pairs = claims("proposals", (message.claim for message in messages))
    names = [getattr(message, "lambda") for message in messages]
    if not all(map(QUEUE_NAME.fullmatch, set(names))):
        raise InvalidRequestError("proposals.lambda", "must be a lambda's name")
    return [Proposal(task_id, token, name) for (task_id, token), name in zip(pairs, names, strict=True)]


def claimed_to_wire(
    tasks: Sequence[ClaimedTask | None],
    terms: hsc_pb2.LeaseTerms,
    left: int,
    places: Mapping[TaskId, GraphPlace],
    ends: GateEnds,
    cell: str,
) -> hsc_pb2.ClaimTaskResponse:
    """Return the answers to proposals, in order; tasks after the first `left` are to be asked for again."""
    response = hsc_pb2.ClaimTaskResponse(terms=terms)
    add = response.answers.add
    for task in tasks:
        if task is None:
            add(verdict=hsc_pb2.CLAIM_VERDICT_NOT_CLAIMED)
        elif left:
            left -= 1
            message = add(verdict=hsc_pb2.CLAIM_VERDICT_CLAIMED).task
            _write_task(task, message, ends, cell)
            if task.graph_id:
                write_place(task, places.get(task.task_id), message)
        else:
            add(verdict=hsc_pb2.CLAIM_VERDICT_ASK_AGAIN)
    return response


def _write_task(task: ClaimedTask, message: hsc_pb2.ClaimedTask, ends: GateEnds, cell: str) -> None:
    """Set the fields in place: messages made first and put into others are copied, at more than twice the cost."""
    claim = message.claim
    claim.task_id = task.task_id
    claim.token = task.token
    message.payload = task.payload
    message.MergeFromString(
        _said_of_many(
            task.lambda_name,
            task.priority,
            task.encoding,
            task.failures + task.crashes + 1,
            task.fence,
            task.crashes,
            task.max_runtime,
            cell,
        )
    )
    if task.crashed_with_worker:
        message.crashed_with_worker = True
    due_at = message.due_at
    due_at.seconds, microseconds = divmod(task.due_at_us, 1_000_000)
    due_at.nanos = microseconds * 1_000
    if task.startable_at_us is not None or ends.newest is not None:
        _write_startable(task, message, ends)
    if task.attachments is not None:
        message.attachments.extend(map(use_to_wire, read_uses(task.attachments)))
    if task.checkpoint is not None:
        message.checkpoint = task.checkpoint
    if task.received is not None:
        write_received(task.received, message)
    if task.tick_at_us is not None:
        tick_at = message.tick_at
        tick_at.seconds, microseconds = divmod(task.tick_at_us, 1_000_000)
        tick_at.nanos = microseconds * 1_000


def _write_startable(task: ClaimedTask, message: hsc_pb2.ClaimedTask, ends: GateEnds) -> None:
    """Say when the task could start, if something held it back when it was due."""
    startable_at_us = could_start_at(task, ends)
    if startable_at_us > task.due_at_us:
        startable_at = message.startable_at
        startable_at.seconds, microseconds = divmod(startable_at_us, 1_000_000)
        startable_at.nanos = microseconds * 1_000


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """A ClaimWorkRequest that was found valid."""

    caller: Caller
    lambdas: frozenset[str]
    priorities: frozenset[Priority]
    most: int
    timeout: timedelta
    lost_prefixes: list[bytes]
    keeps_cells: bool
    """Its caller knows that claims have cells."""


def work_request(request: hsc_pb2.ClaimWorkRequest) -> WorkRequest:
    """Read what a host asks for.

    Raises:
        InvalidRequestError: a field lacks, or is out of its bounds.
    """
    check_holder("holder", request.holder)
    names = list(getattr(request, "lambdas"))  # noqa: B009 (beside its singular, a keyword)
    check_count("lambdas", len(names), _MOST_LAMBDAS)
    if not all(map(QUEUE_NAME.fullmatch, names)):
        raise InvalidRequestError("lambdas", "must be names of lambdas")
    if not 1 <= request.max_tasks <= _MOST_WORK:
        raise InvalidRequestError("max_tasks", f"must be from 1 to {_MOST_WORK:,}")
    check_prefixes("token_prefix", [request.token_prefix])
    check_prefixes("lost_prefixes", request.lost_prefixes)
    return WorkRequest(
        Caller(request.holder, request.token_prefix),
        frozenset(names),
        read_priorities("priorities", request.priorities),
        request.max_tasks,
        read_duration("timeout", request.timeout, _LONGEST_POLL),
        list(request.lost_prefixes),
        request.keeps_cells,
    )


def work_to_wire(
    claimed: Claimed,
    terms: hsc_pb2.LeaseTerms,
    places: Mapping[TaskId, GraphPlace],
    ends: GateEnds,
    cell: str,
) -> hsc_pb2.ClaimWorkResponse:
    """Return the answer to a host that asked for work."""
    response = hsc_pb2.ClaimWorkResponse(terms=terms)
    if claimed.waited:
        response.waited.FromTimedelta(claimed.waited)
    add = response.tasks.add
    for task in claimed.tasks:
        message = add()
        _write_task(task, message, ends, cell)
        if task.graph_id:
            write_place(task, places.get(task.task_id), message)
    return response


@lru_cache(maxsize=1024)
def _said_of_many(
    lambda_name: str,
    priority: int,
    encoding: int,
    attempt: int,
    fence: int,
    crashes: int,
    max_runtime: timedelta,
    cell: str,
) -> bytes:
    """Return what most tasks of a lambda have in common, serialized: to set each field takes four times as long."""
    fields: dict[str, Any] = {"lambda": lambda_name, "priority": priority, "payload_encoding": encoding}
    if cell:
        fields["claim"] = hsc_pb2.Claim(cell=cell)
    return hsc_pb2.ClaimedTask(
        **fields, attempt=attempt, fence=fence, crashes=crashes, max_runtime=to_duration(max_runtime)
    ).SerializeToString()


def checkpoint(field: str, data: bytes) -> bytes | None:
    """What a callback kept; None: nothing new.

    Raises:
        InvalidRequestError: it is too large.
    """
    if len(data) > CHECKPOINT_LIMIT:
        raise InvalidRequestError(f"{field}.checkpoint", f"must be at most {CHECKPOINT_LIMIT:,} bytes")
    return data or None


def beats(messages: Sequence[hsc_pb2.HeartbeatItem]) -> list[TaskHeartbeat]:
    """Heartbeats with what was told of progress.

    Raises:
        InvalidRequestError: progress is not from 0 to 1, or the note is too long.
    """
    read = []
    for (task_id, token), message in zip(claims("items", (m.claim for m in messages)), messages, strict=True):
        progress = message.progress if message.HasField("progress") else None
        note = message.progress_note if message.HasField("progress_note") else None
        if progress is not None and not 0 <= progress <= 1:
            raise InvalidRequestError("items.progress", "must be from 0 to 1")
        if note is not None and (len(note.encode()) > _NOTE_LIMIT or "\x00" in note):
            raise InvalidRequestError(
                "items.progress_note", f"must be at most {_NOTE_LIMIT} bytes without NUL"
            )
        if progress is not None:
            progress = round(progress, _PROGRESS_PLACES)  # the store's `real` holds no number close to 0
        overdue_for = None
        if message.HasField("overdue_for"):
            overdue_for = read_duration("items.overdue_for", message.overdue_for, _LONGEST_OVERDUE)
            if not 0 <= message.overdue_neighbours <= _MOST_NEIGHBOURS:
                raise InvalidRequestError(
                    "items.overdue_neighbours", f"must be from 0 to {_MOST_NEIGHBOURS:,}"
                )
        read.append(
            TaskHeartbeat(
                task_id,
                token,
                progress,
                note,
                checkpoint("items", message.checkpoint),
                overdue_for,
                message.overdue_neighbours,
            )
        )
    return read
