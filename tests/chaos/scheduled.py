"""A task of a client on its way, and what the history says of it."""

from dataclasses import dataclass

from duly_core.lambdas.names import namespace_of
from duly_core.lambdas.session_names import SessionId
from duly_wire.v1 import frontend_pb2
from tests.chaos.history import SECOND, AckedTask
from tests.chaos.kinds import ATTACHING, TaskKind


@dataclass(slots=True)
class Scheduled:
    """One task on its way."""

    kind: TaskKind
    task: frontend_pb2.NewTask
    due_ns: int = 0
    expires_ns: int = 0
    task_id: str = ""
    acked_ns: int = 0
    cancel_asked: bool = False
    cancel_answered: str = ""
    graph_id: str = ""
    purge_asked: bool = False
    resources: str = ""
    fair_round: int = 0
    fair_room: int = 0


def acked_task(scheduled: Scheduled) -> AckedTask:
    """Return it as it was acknowledged."""
    kind = scheduled.kind
    return AckedTask(
        task_id=scheduled.task_id,
        lambda_name=kind.lambda_name,
        kind=kind.name,
        acked_ns=scheduled.acked_ns,
        due_ns=scheduled.due_ns,
        legal=frozenset(kind.statuses),
        least_executions=kind.executions_least,
        plain=kind.name == "quick",
        crashes_itself=kind.crashes_itself,
        breaks_process=kind.breaks_its_process,
        poison=kind.name == "poison",
        max_crashes=kind.max_crashes,
        longest_ns=int(kind.longest.total_seconds() * SECOND),
        cancel_asked=scheduled.cancel_asked,
        cancel_answered=scheduled.cancel_answered,
        expires_ns=scheduled.expires_ns,
        session=_session_of(scheduled.task),
        graph=scheduled.graph_id,
        priority=scheduled.task.priority,
        purge_asked=scheduled.purge_asked,
        resources=scheduled.resources,
        attaches=kind.name in ATTACHING,
        unique=frontend_pb2.Unique.FromString(scheduled.task.unique).key,
        fair_key=scheduled.task.fair_key,
        fair_round=scheduled.fair_round,
        fair_room=scheduled.fair_room,
    )


def _session_of(task: frontend_pb2.NewTask) -> str:
    """Return what the store calls the session of a task; empty: it has none."""
    if not task.HasField("session"):
        return ""
    return str(SessionId(namespace_of(getattr(task, "lambda")), task.session.key))
