"""Finds why queues are late: cheap reads for all of them, then Explain for some of those that are later than promised."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from duly_core.explain.reads import read_explained
from duly_core.lambdas.names import QueueKey
from duly_core.limits.declared import read_resources
from duly_core.limits.store import QUOTA
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutTask, FoundProblem, found
from duly_core.problems.queues import LONG, LateQueues, first_tasks, split_by_hosts
from duly_core.tasks.lifecycle import Status
from duly_frontend.explain.pending import enqueued_reasons, pending_reasons
from duly_frontend.explain.text import span
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.ids import TaskId
from duly_wire.v1 import explain_pb2

_MOST_EXPLAINED = 20
"""Tasks in a round: each costs some statements. One stands for all queues that the same hosts serve."""
_HELD_LONG = timedelta(seconds=10)
"""Slots that are held for less are busy, and nobody holds them."""
_SECOND, _MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)
_STATUSES = {number: status for status, number in STATUS_TO_WIRE.items()}
_OF_ITSELF = frozenset(
    {
        explain_pb2.REASON_KIND_RESOURCE,
        explain_pb2.REASON_KIND_RATE,
        explain_pb2.REASON_KIND_GATE,
        explain_pb2.REASON_KIND_DUE_LATER,
        explain_pb2.REASON_KIND_BACKOFF,
        explain_pb2.REASON_KIND_VERSION_UNKNOWN,
        explain_pb2.REASON_KIND_LAMBDA_UNKNOWN,
        explain_pb2.REASON_KIND_LAMBDA_DELETED,
        explain_pb2.REASON_KIND_ENDS_SOON,
        explain_pb2.REASON_KIND_EXPIRES,
        explain_pb2.REASON_KIND_ENQUEUED,
    }
)
"""Reasons of a task that say nothing about another queue; or that say only that it is in SQS, if there is a better one."""


_STOPS = _OF_ITSELF - {explain_pb2.REASON_KIND_ENQUEUED, explain_pb2.REASON_KIND_EXPIRES}
"""Reasons by which a task in SQS waits for itself."""


async def find_late(
    store: Store, late: LateQueues, held_back: Collection[QueueKey], now: datetime
) -> list[FoundProblem]:
    """Return a problem for each reason why queues are late that no gate holds.

    Raises:
        StoreUnavailableError: ask again.
    """
    left = [queue for queue in late.since if queue not in held_back]
    served = await split_by_hosts(store, late, left)
    broken = {
        hosts: of_hosts
        for hosts, queues in served.by_hosts.items()
        if (of_hosts := [queue for queue in queues if late.is_broken(queue, now)])
    }
    return [*served.problems, *await _explained(store, late, broken, now)]


async def _explained(
    store: Store, late: LateQueues, by_hosts: Mapping[frozenset[str], list[QueueKey]], now: datetime
) -> list[FoundProblem]:
    """Explain the oldest task of queues that the same hosts serve, those first that hit most queues."""
    groups = sorted(by_hosts.values(), key=len, reverse=True)
    first = {queues[0]: queues for queues in groups[:_MOST_EXPLAINED]}
    tasks = await first_tasks(store, late, [*first])
    slots: dict[str, list[QueueKey]] = {}
    holders: dict[str, explain_pb2.Reason] = {}
    others: list[QueueKey] = [queue for queues in groups[_MOST_EXPLAINED:] for queue in queues]
    text = ""
    for queue, queues in first.items():
        reasons = await _reasons(store, tasks.get(queue))
        main = next((each for each in reasons if each.kind not in _OF_ITSELF), None) or _unclaimed(reasons)
        holder = None if main is None else held_by(main, now)
        if main is not None and holder is not None:
            slots.setdefault(holder, []).extend(queues)
            holders.setdefault(holder, main)
            continue
        if main is None and len(queues) == 1 and reasons:
            continue  # its own reason: another problem has it
        others += queues
        text = text or (main.text if main is not None else "")
    quotas = await _quotas(store, slots)
    problems = [
        _held(late, holder, holders[holder], queues, quotas.get(holder), now)
        for holder, queues in slots.items()
    ]
    if others:
        problems.append(_late(late, others, text, now))
    return problems


async def _reasons(store: Store, task_id: TaskId | None) -> list[explain_pb2.Reason]:
    row = None if task_id is None else await read_explained(store, task_id)
    if row is not None and row["status"] == Status.ENQUEUED:
        return await enqueued_reasons(store, row, None)
    if row is None or row["status"] not in (Status.NEW, Status.RETRIABLE_FAILURE):
        return []
    return await pending_reasons(store, row, None, withheld=True)


def _unclaimed(reasons: Sequence[explain_pb2.Reason]) -> explain_pb2.Reason | None:
    """Return the reason that says that nobody claims a reference in SQS."""
    if {each.kind for each in reasons} & _STOPS:
        return None
    return next((each for each in reasons if each.kind == explain_pb2.REASON_KIND_ENQUEUED), None)


def held_by(reason: explain_pb2.Reason, now: datetime) -> str | None:
    """Return the lambda that has held more than half of the slots that a reason tells of for long; None: none has."""
    if reason.kind != explain_pb2.REASON_KIND_SLOTS_TAKEN:
        return None
    long = [
        getattr(task, "lambda")
        for task in reason.tasks
        if task.HasField("held_since_at") and now - task.held_since_at.ToDatetime(now.tzinfo) > _HELD_LONG
    ]
    if not long:
        return None
    name, count = Counter(long).most_common(1)[0]
    return name if 2 * count > min(len(reason.tasks), reason.limit) else None


async def _quotas(store: Store, lambda_names: Collection[str]) -> dict[str, int]:
    """Return the quotas of these lambdas, of those that have one."""
    stored = await read_resources(store, [f"{QUOTA}{name}" for name in lambda_names])
    return {name.removeprefix(QUOTA): each.limit.capacity for name, each in stored.items()}


def _held(
    late: LateQueues,
    holder: str,
    reason: explain_pb2.Reason,
    queues: list[QueueKey],
    quota: int | None,
    now: datetime,
) -> FoundProblem:
    tasks = [each for each in reason.tasks if getattr(each, "lambda") == holder]
    return found(
        Kind.SLOTS_HELD,
        Severity.CRITICAL,
        tasks[0].held_since_at.ToDatetime(now.tzinfo),
        holder,
        lambdas=late.lambdas(queues),
        at_least=not late.is_complete,
        holders=[
            AboutTask(
                each.task_id,
                getattr(each, "lambda"),
                _STATUSES[each.status].value,
                each.held_since_at.ToDatetime(now.tzinfo),
                each.holder,
            )
            for each in tasks
        ],
        slots=reason.limit,
        shown=len(reason.tasks),
        held=len(tasks),
        quota="" if quota is None else quota,
    )


def _late(late: LateQueues, queues: list[QueueKey], text: str, now: datetime) -> FoundProblem:
    promised = {late.promised[queue] for queue in queues}
    return found(
        Kind.LATE,
        Severity.CRITICAL if late.longest_past(queues, now) >= LONG else Severity.WARNING,
        late.oldest(queues),
        lambdas=late.lambdas(queues),
        at_least=not late.is_complete,
        why=text,
        # empty: their objectives differ
        within=_words(promised.pop()) if len(promised) == 1 else "",
    )


def _words(promised: timedelta) -> str:
    return span(promised) if promised >= _SECOND else f"{promised // _MILLISECOND} ms"
