"""Says whether hosts are known to serve a task's lambda."""

from datetime import timedelta

from duly_core.events.wait_nodes import is_wait_lambda
from duly_core.explain.hosts import Serving
from duly_core.explain.reads import Claims
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import ago, command, reason, span
from duly_wire.queue_names import QueueName
from duly_wire.v1 import explain_pb2

_LATELY = timedelta(seconds=15)
"""A claim within this time says that somebody serves the lambda."""


def host_reasons(row: TaskRow, serving: Serving, claims: Claims) -> list[explain_pb2.Reason]:
    """Say that no live host serves its lambda. Of hosts that do not report themselves, claims tell."""
    if serving.alive or is_wait_lambda(row["lambda"]) or _is_claimed(row, serving, claims):
        return []  # the HSC serves nodes that wait for events
    if serving.last_name is not None or serving.any_alive:
        return [_not_alive(row, serving)]
    claimed = (
        f"none has claimed a task of {row['lambda']} for {span(row['now'] - claims.last_claim_at)}"
        if claims.last_claim_at is not None
        else f"none is known to have claimed a task of {row['lambda']}"
    )
    return [
        reason(
            explain_pb2.REASON_KIND_NO_HOST,
            f"no host reports itself, {claimed}, and none holds one",
            f"start a worker that serves it; if one runs, check the HSC and the worker's log: {command('health')}",
            since_at=claims.last_claim_at,
        )
    ]


def _is_claimed(row: TaskRow, serving: Serving, claims: Claims) -> bool:
    """Whether a host that does not report itself claims tasks of the lambda."""
    last = claims.last_claim_at
    is_recent = last is not None and row["now"] - last < _LATELY
    if serving.last_reported_at is None:
        return bool(claims.running) or is_recent
    # the claims of the host that fell silent are older than its next report would have been
    next_report_at = serving.last_reported_at + serving.interval
    return last is not None and last > next_report_at and (is_recent or bool(claims.running))


def _not_alive(row: TaskRow, serving: Serving) -> explain_pb2.Reason:
    if serving.last_name is None or serving.last_reported_at is None:
        return reason(explain_pb2.REASON_KIND_NO_HOST, f"no live host {_serves(row)}", _start(row))
    reported = ago(row, serving.last_reported_at)
    if serving.last_state == "alive":  # it missed a report, and not three
        stands = f"should report each {span(serving.interval)}, and did so {reported}"
    else:
        stands = f"is {serving.last_state}, and reported {reported}"
    return reason(
        explain_pb2.REASON_KIND_NO_HOST,
        f"no live host {_serves(row)}: the last one, {serving.last_name}, {stands}",
        _start(row),
        since_at=serving.last_reported_at,
        holder=serving.last_name,
    )


def _serves(row: TaskRow) -> str:
    queue = QueueName.parse(row["lambda"])
    required = sorted(required_labels(row))
    which = f", which requires {' and '.join(required)}" if required else ""
    if not queue.domain:
        return f"serves {queue.base}{which}"
    return f"of the domain {queue.domain} serves {queue._replace(domain='', labels='')}{which}"


def required_labels(row: TaskRow) -> frozenset[str]:
    """Return the labels that a task and its lambda require."""
    return QueueName.parse(row["lambda"]).required.union(filter(None, (row["requires"] or "").split(",")))


def _start(row: TaskRow) -> str:
    domain = QueueName.parse(row["lambda"]).domain
    options = [f"--domain {domain}"] if domain else []
    options += [f"--label {label}" for label in sorted(required_labels(row))]
    how = f" with {' '.join(options)}" if options else ""
    return f"start a worker that serves it{how}; those that report: {command('hosts')}"
