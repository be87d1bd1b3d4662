"""Duly's SDK: schedule tasks from any program, and write the callbacks that run them.

    with duly.Client() as client:
        task = client.schedule("mail.send", {"to": "ann@example.org"}, delay=timedelta(minutes=5))
        print(client.wait(task).result)

Importing this package does not load gRPC: the processes that run callbacks must not have it (it does
not survive a fork). `Client` and `AsyncClient` load it when they are first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duly import errors
from duly.attachments.attachment import Attachment, TransferProgress
from duly.attachments.uses import AttachmentUse
from duly.callbacks.app import App
from duly.callbacks.codec import EncryptedPayload
from duly.callbacks.hooks import RunEnd
from duly.callbacks.outcomes import (
    CallbackOutcome,
    Cancelled,
    CompleteLater,
    FatalFailure,
    Interrupted,
    RetriableFailure,
    Snooze,
    Success,
)
from duly.context import TaskContext
from duly.errors import *  # noqa: F403 (each of its __all__)
from duly.events.received import ReceivedEvent
from duly.keep import KEEP
from duly.lambdas.batch import Batch
from duly.lambdas.policy import Backoff
from duly.limits.resource import Backlog, DeclaredResource, Need, Rate, Resource, ResourceKey, ResourceNeed
from duly.sessions.session import Session, SessionState
from duly.task_output.piece import OutputPiece
from duly.tasks.new_task import NewTask, ScheduledTask
from duly.tasks.unique import Debounce, Unique
from duly_wire.enums import (
    AttachmentRole,
    AttemptOutcome,
    BreakerState,
    CatchUp,
    EdgeCondition,
    FailureKind,
    GateKind,
    GraphStatus,
    HeldWhile,
    HistoryKind,
    HostState,
    OnClosed,
    OnConflict,
    Outcome,
    OutputStream,
    Overlap,
    Priority,
    ProblemActionKind,
    ProblemKind,
    ProblemSeverity,
    ProblemStatus,
    QueueOrder,
    ReasonKind,
    Role,
    SearchKind,
    ServiceLevelIndicator,
    SessionOrder,
    SessionPolicy,
    TaskEventKind,
    TaskStatus,
)

if TYPE_CHECKING:
    from duly.access.views import Access, AuditEvent, Grant, NewToken, SignInProvider, Token
    from duly.client import AsyncClient
    from duly.events.address import EventAddress
    from duly.events.event import EventKey, EventWaiter, KeptEvent, NewEvent, SentEvent
    from duly.explain.views import Explanation, HistoryEvent, Reason, RelatedTask
    from duly.fleet.activity import Activity
    from duly.fleet.views import ExecutorInfo, Host, LambdaQueue, ServedLambda, ServiceInstance, TaskCount
    from duly.gates.gate import Breaker, Gate, GateHits
    from duly.graphs.definition import GraphDefinition, graph_from_json
    from duly.graphs.graph import CriticalStep, Graph, GraphNode, ScheduledGraph
    from duly.graphs.new_graph import NewGraph, NewNode, any_of
    from duly.pools.pool import AnnouncedWorkers, AutoscalerLeader, DeclaredPool, PoolPlan, WorkerPool
    from duly.problems.views import (
        CellStatus,
        NotificationTarget,
        NotificationTest,
        Problem,
        ProblemAction,
        ProblemCause,
        ProblemCommand,
        ProblemHost,
        Problems,
        ProblemSession,
    )
    from duly.search.hit import SearchHit
    from duly.slo.views import Objective, ServiceLevel, ServiceLevelSpan
    from duly.sync_client import Client
    from duly.tasks.handle import Handle, TypedTask
    from duly.tasks.keys import TaskKey
    from duly.tasks.task import Attempt, Failure, Task
    from duly.tasks.update import TaskUpdate
    from duly.watches.event import TaskEvent
    from duly.watches.watch import BlockingWatch, Watch

__all__ = [
    "KEEP",
    "Access",
    "Activity",
    "AnnouncedWorkers",
    "App",
    "AsyncClient",
    "Attachment",
    "AttachmentRole",
    "AttachmentUse",
    "Attempt",
    "AttemptOutcome",
    "AuditEvent",
    "AutoscalerLeader",
    "Backlog",
    "Backoff",
    "Batch",
    "BlockingWatch",
    "Breaker",
    "BreakerState",
    "CallbackOutcome",
    "Cancelled",
    "CatchUp",
    "CellStatus",
    "Client",
    "CompleteLater",
    "CriticalStep",
    "Debounce",
    "DeclaredPool",
    "DeclaredResource",
    "EdgeCondition",
    "EncryptedPayload",
    "EventAddress",
    "EventKey",
    "EventWaiter",
    "ExecutorInfo",
    "Explanation",
    "Failure",
    "FailureKind",
    "FatalFailure",
    "Gate",
    "GateHits",
    "GateKind",
    "Grant",
    "Graph",
    "GraphDefinition",
    "GraphNode",
    "GraphStatus",
    "Handle",
    "HeldWhile",
    "HistoryEvent",
    "HistoryKind",
    "Host",
    "HostState",
    "Interrupted",
    "KeptEvent",
    "LambdaQueue",
    "Need",
    "NewEvent",
    "NewGraph",
    "NewNode",
    "NewTask",
    "NewToken",
    "NotificationTarget",
    "NotificationTest",
    "Objective",
    "OnClosed",
    "OnConflict",
    "Outcome",
    "OutputPiece",
    "OutputStream",
    "Overlap",
    "PoolPlan",
    "Priority",
    "Problem",
    "ProblemAction",
    "ProblemActionKind",
    "ProblemCause",
    "ProblemCommand",
    "ProblemHost",
    "ProblemKind",
    "ProblemSession",
    "ProblemSeverity",
    "ProblemStatus",
    "Problems",
    "QueueOrder",
    "Rate",
    "Reason",
    "ReasonKind",
    "ReceivedEvent",
    "RelatedTask",
    "Resource",
    "ResourceKey",
    "ResourceNeed",
    "RetriableFailure",
    "Role",
    "RunEnd",
    "ScheduledGraph",
    "ScheduledTask",
    "SearchHit",
    "SearchKind",
    "SentEvent",
    "ServedLambda",
    "ServiceInstance",
    "ServiceLevel",
    "ServiceLevelIndicator",
    "ServiceLevelSpan",
    "Session",
    "SessionOrder",
    "SessionPolicy",
    "SessionState",
    "SignInProvider",
    "Snooze",
    "Success",
    "Task",
    "TaskContext",
    "TaskCount",
    "TaskEvent",
    "TaskEventKind",
    "TaskKey",
    "TaskStatus",
    "TaskUpdate",
    "Token",
    "TransferProgress",
    "TypedTask",
    "Unique",
    "Watch",
    "WorkerPool",
    "any_of",
    "graph_from_json",
]
__all__ += errors.__all__


_LOADED_WHEN_NAMED = {
    # gRPC, as said above
    "AsyncClient": "client",
    "Client": "sync_client",
    "CriticalStep": "graphs.graph",
    "Graph": "graphs.graph",
    "GraphDefinition": "graphs.definition",
    "GraphNode": "graphs.graph",
    "NewGraph": "graphs.new_graph",
    "TaskKey": "tasks.keys",
    "NewNode": "graphs.new_graph",
    "ScheduledGraph": "graphs.graph",
    "any_of": "graphs.new_graph",
    "graph_from_json": "graphs.definition",
    # what callbacks never see: a callback process starts sooner without
    "Access": "access.views",
    "AuditEvent": "access.views",
    "Grant": "access.views",
    "NewToken": "access.views",
    "SignInProvider": "access.views",
    "Token": "access.views",
    "Explanation": "explain.views",
    "HistoryEvent": "explain.views",
    "Reason": "explain.views",
    "RelatedTask": "explain.views",
    "EventAddress": "events.address",
    **dict.fromkeys(("EventKey", "EventWaiter", "KeptEvent", "NewEvent", "SentEvent"), "events.event"),
    "SearchHit": "search.hit",
    "Objective": "slo.views",
    "ServiceLevel": "slo.views",
    "ServiceLevelSpan": "slo.views",
    "Activity": "fleet.activity",
    "ExecutorInfo": "fleet.views",
    "Host": "fleet.views",
    "LambdaQueue": "fleet.views",
    "ServedLambda": "fleet.views",
    "ServiceInstance": "fleet.views",
    "TaskCount": "fleet.views",
    "Breaker": "gates.gate",
    "Gate": "gates.gate",
    "GateHits": "gates.gate",
    "AnnouncedWorkers": "pools.pool",
    "AutoscalerLeader": "pools.pool",
    "DeclaredPool": "pools.pool",
    "PoolPlan": "pools.pool",
    "WorkerPool": "pools.pool",
    "NotificationTarget": "problems.views",
    "NotificationTest": "problems.views",
    "CellStatus": "problems.views",
    "Problem": "problems.views",
    "ProblemAction": "problems.views",
    "ProblemCause": "problems.views",
    "ProblemSession": "problems.views",
    "ProblemCommand": "problems.views",
    "ProblemHost": "problems.views",
    "Problems": "problems.views",
    "Handle": "tasks.handle",
    "TypedTask": "tasks.handle",
    "Attempt": "tasks.task",
    "Failure": "tasks.task",
    "Task": "tasks.task",
    "TaskUpdate": "tasks.update",
    "TaskEvent": "watches.event",
    "BlockingWatch": "watches.watch",
    "Watch": "watches.watch",
}


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_NAMED:
        value = globals()[name] = getattr(import_module(f"duly.{_LOADED_WHEN_NAMED[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
