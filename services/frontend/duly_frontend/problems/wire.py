"""Converts problems to the wire, as their caller may see them."""

from datetime import datetime
from typing import cast

from duly_core.problems.kinds import Kind
from duly_core.problems.problem import MOST_SHOWN, AboutHost, AboutSession, AboutTask, FoundProblem, clean
from duly_core.tasks.lifecycle import Status
from duly_frontend.problems.texts import hits, say
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import explain_pb2, problems_pb2


def problem_to_wire(problem: FoundProblem, now: datetime) -> problems_pb2.Problem:
    """Return a problem as the wire has it, with its words."""
    said = say(problem, now)
    most = sorted(problem.lambdas, key=lambda name: (-problem.lambdas[name], name))
    message = problems_pb2.Problem(
        fingerprint=problem.fingerprint,
        kind=cast("problems_pb2.ProblemKind.ValueType", int(problem.kind)),
        severity=cast("problems_pb2.ProblemSeverity.ValueType", int(problem.severity)),
        subject=problem.subject,
        since_at=to_timestamp(problem.since_at),
        text=clean(said.text),
        hits=hits(problem),
        task_count=problem.tasks,
        at_least=problem.at_least,
        lambda_count=problem.lambda_count,
        lambdas=most[:MOST_SHOWN],
        host_count=problem.host_count,
        hosts=map(_host, problem.hosts),
        tasks=map(_task, problem.holders),
        commands=[
            problems_pb2.ProblemCommand(command=line, purpose=purpose) for line, purpose in said.commands
        ],
    )
    if said.action:
        message.action.CopyFrom(problems_pb2.ProblemAction(kind=said.action, target=said.target))
    if problem.kind is Kind.SESSIONS_BLOCKED:
        message.sessions.extend(_session(each, problem.values["namespace"]) for each in problem.sessions)
        message.session_count = int(problem.values.get("count") or 0)
    if problem.kind is Kind.DEAD_LETTERS:
        message.cause.CopyFrom(
            problems_pb2.ProblemCause(
                fingerprint=problem.key,
                failure_kind=int(problem.values["failure_kind"]),
                exception=problem.values["exception"],
                message=problem.values["message"],
            )
        )
    return message


def _session(session: AboutSession, namespace: str) -> problems_pb2.ProblemSession:
    return problems_pb2.ProblemSession(
        key=session.key,
        namespace=namespace,
        blocked_by_task_id=session.blocked_by,
        blocked_at=to_timestamp(session.blocked_at),
        length=session.length,
    )


def _host(host: AboutHost) -> problems_pb2.ProblemHost:
    message = problems_pb2.ProblemHost(host_id=host.host_id, name=host.name, service=host.service)
    if host.reported_at is not None:
        message.reported_at.CopyFrom(to_timestamp(host.reported_at))
    if host.clock_ahead is not None:
        message.clock_ahead.CopyFrom(to_duration(host.clock_ahead))
    return message


def _task(task: AboutTask) -> explain_pb2.RelatedTask:
    message = explain_pb2.RelatedTask(
        task_id=task.task_id, status=STATUS_TO_WIRE[Status(task.status)], holder=task.holder
    )
    setattr(message, "lambda", task.lambda_name)
    if task.held_since_at is not None:
        message.held_since_at.CopyFrom(to_timestamp(task.held_since_at))
    if task.units:
        message.units = task.units
    return message
