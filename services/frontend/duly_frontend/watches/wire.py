"""From the store's events to the wire's, and from the wire's request to a filter."""

from duly_core.access.grants import pattern_problem
from duly_core.lambdas.patterns import is_prefix
from duly_core.lambdas.session_names import SessionId
from duly_core.rpc.requests.names import check_lambda_name, check_namespace
from duly_core.rpc.requests.new_tasks import check_session_key, parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import AttemptOutcome
from duly_core.watches import rules
from duly_core.watches.rules import Event, Position, WatchFilter
from duly_frontend.tasks.wire import ATTEMPT_OUTCOME_TO_WIRE, STATUS_TO_WIRE
from duly_wire.enums import GraphStatus
from duly_wire.ids import id_text
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import graphs_pb2, task_pb2, watches_pb2

MOST_PATTERNS = 100
_ID_BYTES = 16
_STATUSES, _OUTCOMES = frozenset(map(str, Status)), frozenset(map(str, AttemptOutcome))


def filter_of(request: watches_pb2.WatchRequest) -> WatchFilter:
    """Return what a request wants to be told of.

    Raises:
        Problem: it is invalid.
    """
    if len(request.lambdas) > MOST_PATTERNS:
        raise Problem("lambdas", f"must have at most {MOST_PATTERNS} patterns")
    for pattern in request.lambdas:
        if not is_prefix(pattern):
            check_lambda_name("lambdas", pattern)
        elif reason := pattern_problem(pattern):
            raise Problem("lambdas", reason)
    graph = parse_task_id(request.graph_id, "graph_id") if request.graph_id else None
    session = None
    namespace = check_namespace("session_namespace", request.session_namespace)
    if request.session:
        session = SessionId(namespace, check_session_key("session", request.session))
    elif namespace:
        raise Problem("session_namespace", "needs a session")
    return WatchFilter(tuple(request.lambdas), graph, session)


def watch_id_of(request: watches_pb2.WatchRequest) -> bytes:
    """Return the id of a watch that begins.

    Raises:
        Problem: it is invalid.
    """
    if len(request.watch_id) != _ID_BYTES:
        raise Problem("watch_id", f"must be {_ID_BYTES} random bytes, in a request without a position")
    return request.watch_id


def event_to_wire(event: Event, watch_id: bytes) -> watches_pb2.TaskEvent:
    """Return an event as callers get it."""
    told = watches_pb2.TaskEvent(
        kind=watches_pb2.TaskEventKind.ValueType(event.kind),
        position=str(Position(watch_id, event.cursor)),
        at=to_timestamp(event.at),
        graph_id=id_text(event.graph) if event.graph else "",
        run=event.run or 0,
        failure_kind=task_pb2.FailureKind.ValueType(event.failure_kind or 0),
    )
    if event.task_id is not None:
        told.task_id = id_text(event.task_id)
        setattr(told, "lambda", event.lambda_name or "")
    if event.session:
        told.session = SessionId.parse(event.session).key
    if event.next_at is not None:
        told.next_at.CopyFrom(to_timestamp(event.next_at))
    _set_status(told, event)
    return told


def _set_status(told: watches_pb2.TaskEvent, event: Event) -> None:
    """Say how it ended; what a newer release wrote, and this one does not know, is left out."""
    status = event.status or ""
    if event.kind == rules.TASK_ENDED and status in _STATUSES:
        told.status = STATUS_TO_WIRE[Status(status)]
    elif event.kind == rules.RUN_ENDED and status in _OUTCOMES:
        told.outcome = ATTEMPT_OUTCOME_TO_WIRE[AttemptOutcome(status)]
    elif event.kind == rules.GRAPH_FINISHED and status.upper() in GraphStatus.__members__:
        told.graph_status = graphs_pb2.GraphStatus.ValueType(GraphStatus[status.upper()])
