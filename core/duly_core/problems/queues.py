"""Reads which queues are late, what they have in common, and who serves them: cheap reads for all of them at once."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.config.live_sections import LiveSloSettings
from duly_core.counting.statements import COUNTING
from duly_core.events.wait_nodes import is_wait_lambda
from duly_core.explain.hosts import LATE_REPORT
from duly_core.gates.rules import GateSet
from duly_core.lambdas.names import QueueKey, base_name
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutHost, FoundProblem, found
from duly_core.problems.statements import PROBLEMS
from duly_core.process.newer_values import known
from duly_core.slo.objectives import Objectives
from duly_core.slo.store import list_objectives
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from duly_wire.queue_names import QueueName

STANDS_AFTER = timedelta(seconds=5)
"""A task that nobody serves will not start by itself: it is told after so long, however late it may start."""
LEAST_LATE = timedelta(seconds=1)
"""A round looks every ten seconds at one moment: less says nothing, even if less is promised. Budgets judge each run."""
LONG = timedelta(minutes=1)
"""Later than promised by so much is critical."""
_MOST_LOOKED_AT = 50_000
_MOST_LATE = 10_000
_MOST_COUNTED_QUEUES = 1_000
_MOST_COUNTED = 20_000
_LEAST_OF_A_QUEUE = 10
_MOST_OF_A_QUEUE = 5_000
_MOST_HOSTS = 5
_MOST_LAST_HOSTS = 1_000
_MOST_HELD = 10_000
_MOST_WATCHED = 10_000
"""Tasks on their way or running that are looked at for references that nobody claims."""
_MOST_CARDS = 50


@dataclass(slots=True)
class LateQueues:
    """Queues of (lambda, priority) whose oldest task has been due for longer than is promised, or than a task without a host may be."""

    since: dict[QueueKey, datetime]
    """When the oldest task of each was due, or its reference was sent to SQS."""
    promised: dict[QueueKey, timedelta] = field(default_factory=dict)
    """Within what time after it is due a task of each must start."""
    counts: dict[QueueKey, int] = field(default_factory=dict)
    """Due tasks, as far as they were counted."""
    is_complete: bool = True
    """No queue has more than were counted."""
    unclaimed: dict[QueueKey, TaskId] = field(default_factory=dict)
    """Of queues with references in SQS that nobody claims: the task that has waited there the longest."""

    def lambdas(self, queues: Iterable[QueueKey]) -> Counter[str]:
        """Return how many due tasks the lambdas of queues have."""
        counted: Counter[str] = Counter()
        for queue in queues:
            counted[queue.lambda_name] += self.counts.get(queue, 1)
        return counted

    def oldest(self, queues: Collection[QueueKey]) -> datetime:
        """Return since when the first task of some queues has been due."""
        return min(self.since[queue] for queue in queues)

    def is_broken(self, queue: QueueKey, now: datetime) -> bool:
        """Whether what is promised of a queue is not kept."""
        return now - self.since[queue] > max(LEAST_LATE, self.promised[queue])

    def longest_past(self, queues: Iterable[QueueKey], now: datetime) -> timedelta:
        """Return by how much the first task of some queue is later than promised, at most."""
        return max(now - self.since[queue] - self.promised[queue] for queue in queues)


class _Waits(NamedTuple):
    """Of a queue: the task that has waited the longest for a host."""

    queue: QueueKey
    since: datetime
    task_id: TaskId | None = None
    """Of one whose reference is in SQS."""
    tasks: int = 0
    """Of such references."""


async def read_late(
    store: Store, now: datetime, settings: LiveSloSettings, shortest: timedelta | None
) -> LateQueues:
    """Return the late queues, the oldest 10,000 of them, with counts.

    Args:
        store: the store.
        now: by its clock.
        settings: what is promised of lambdas without an objective of their own.
        shortest: time within which a lambda with an objective of its own must start; None: there is none.

    Raises:
        StoreUnavailableError: ask again.
    """
    due_for = max(LEAST_LATE, min(STANDS_AFTER, settings.start_within, shortest or STANDS_AFTER))
    ready, sent = await _read_ready(store, due_for), await _read_sent(store, due_for)
    own = await list_objectives(store) if shortest is not None and (ready or sent) else ()
    objectives = Objectives(settings, own)
    promised = {
        each.queue: objectives.of(base_name(each.queue.lambda_name)).start_within for each in (*ready, *sent)
    }
    late = LateQueues({}, promised)

    def is_told(waits: _Waits) -> bool:
        return now - waits.since > max(LEAST_LATE, min(STANDS_AFTER, promised[waits.queue]))

    late.since = {each.queue: each.since for each in ready if is_told(each)}
    await _count(store, late)
    for each in filter(is_told, sent):
        late.counts[each.queue] = late.counts.get(each.queue, 0) + each.tasks
        if each.task_id is not None and each.since <= late.since.get(each.queue, each.since):
            late.since[each.queue], late.unclaimed[each.queue] = each.since, each.task_id
    late.is_complete &= sum(each.tasks for each in sent) < _MOST_WATCHED
    return late


async def _read_ready(store: Store, due_for: timedelta) -> list[_Waits]:
    asked = {"due_for": due_for, "most": _MOST_LATE, "most_looked_at": _MOST_LOOKED_AT}
    return [
        _Waits(QueueKey(name, of_priority), due_at)
        for name, priority, due_at in await store.run(PROBLEMS["late_queues"], asked)
        if (of_priority := known(Priority, priority)) is not None
    ]


async def _read_sent(store: Store, due_for: timedelta) -> list[_Waits]:
    """Return tasks whose references are in SQS: a gate or a resource held them before, and is no fault of the queue."""
    asked = {"due_for": due_for, "most": _MOST_WATCHED}
    return [
        _Waits(QueueKey(name, of_priority), waits_since, task_id, count)
        for name, priority, waits_since, count, task_id in await store.run(
            PROBLEMS["unclaimed_references"], asked
        )
        if (of_priority := known(Priority, priority)) is not None
    ]


async def _count(store: Store, late: LateQueues) -> None:
    counted = [*late.since][:_MOST_COUNTED_QUEUES]
    if counted:
        most = max(_LEAST_OF_A_QUEUE, min(_MOST_OF_A_QUEUE, _MOST_COUNTED // len(counted)))
        for name, priority, count in await store.run(
            COUNTING["count_ready"],
            {
                "lambdas": texts([queue.lambda_name for queue in counted]),
                "priorities": int2s([queue.priority for queue in counted]),
                "most": most,
            },
        ):
            late.counts[QueueKey(name, Priority(priority))] = max(1, count)
            late.is_complete &= count < most
    late.is_complete &= len(counted) == len(late.since)


def held_by_gates(late: LateQueues, gates: GateSet) -> dict[str, list[QueueKey]]:
    """Return the late queues that gates hold as a whole, by the names of these."""
    held: dict[str, list[QueueKey]] = {}
    for queue in late.since:
        for gate in gates.of(queue.lambda_name).every:
            if gate.is_on_queues and gate.scope.priority in (None, queue.priority):
                held.setdefault(gate.name, []).append(queue)
                break
    return held


class Served(NamedTuple):
    """Late queues by who serves them."""

    by_hosts: Mapping[frozenset[str], list[QueueKey]]
    """Queues that the same live hosts serve."""
    problems: list[FoundProblem]
    """Of queues whose lambda is gone, or that nobody serves."""


async def split_by_hosts(store: Store, late: LateQueues, queues: Sequence[QueueKey]) -> Served:
    """Say who serves late queues.

    Raises:
        StoreUnavailableError: ask again.
    """
    names = sorted({queue.lambda_name for queue in queues})
    if not names:
        return Served({}, [])
    gone = {row[0] for row in await store.run(PROBLEMS["unregistered_queues"], {"lambdas": texts(names)})}
    hosts = await _serving(store, [name for name in names if name not in gone])
    unserved = {name for name, ids in hosts.items() if not ids and not is_wait_lambda(name)}
    last: Mapping[str, tuple[AboutHost, str]] = {}
    if unserved:
        last = await _last_hosts(store, sorted(unserved))
        # workers of your own may claim without reporting a host
        held = {row[0] for row in await store.run(PROBLEMS["held_lambdas"], {"most": _MOST_HELD})}
        unserved -= {name for name in held if name not in last}
    by_hosts: dict[frozenset[str], list[QueueKey]] = {}
    nobody: dict[str, list[QueueKey]] = {}
    unknown = []
    for queue in queues:
        name = queue.lambda_name
        if name in gone:
            unknown.append(queue)
        elif name in unserved:
            nobody.setdefault(last[name][0].host_id if name in last else "", []).append(queue)
        else:
            by_hosts.setdefault(hosts[name], []).append(queue)
    problems = []
    if unknown:
        problems.append(_gone(late, unknown))
    of_host = {host.host_id: (host, state) for host, state in last.values()}
    for host_id, of_queues in sorted(nobody.items(), key=lambda each: -len(each[1]))[:_MOST_CARDS]:
        problems.append(_no_host(late, of_queues, of_host.get(host_id)))
    return Served(by_hosts, problems)


def _columns(names: Sequence[str]) -> dict[str, object]:
    bases, versions = [], []
    for name in names:
        base, version, domain, labels = QueueName.parse(name)
        bases.append(base)
        versions.append("" if domain or labels else version)
    return {"lambdas": texts(names), "bases": texts(bases), "versions": texts(versions)}


async def _serving(store: Store, names: Sequence[str]) -> dict[str, frozenset[str]]:
    asked = _columns(names) | {"late": LATE_REPORT, "most": _MOST_HOSTS}
    return {
        name: frozenset(hosts) for name, hosts in await store.run(PROBLEMS["serving_hosts_of_lambdas"], asked)
    }


async def _last_hosts(store: Store, names: Sequence[str]) -> dict[str, tuple[AboutHost, str]]:
    rows = await store.run(PROBLEMS["last_hosts_of_lambdas"], _columns(names[:_MOST_LAST_HOSTS]))
    return {
        name: (AboutHost(host_id, host_name, "", reported_at), state)
        for name, host_id, host_name, reported_at, state in rows
    }


def _gone(late: LateQueues, queues: list[QueueKey]) -> FoundProblem:
    return found(
        Kind.LAMBDA_GONE,
        Severity.WARNING,
        late.oldest(queues),
        lambdas=late.lambdas(queues),
        at_least=not late.is_complete,
    )


def _no_host(late: LateQueues, queues: list[QueueKey], last: tuple[AboutHost, str] | None) -> FoundProblem:
    return found(
        Kind.NO_HOST,
        Severity.CRITICAL,
        late.oldest(queues),
        "" if last is None else last[0].name,
        "" if last is None else last[0].host_id,
        lambdas=late.lambdas(queues),
        at_least=not late.is_complete,
        hosts=[] if last is None else [last[0]],
        state="" if last is None else last[1],
    )


async def first_tasks(store: Store, late: LateQueues, queues: Sequence[QueueKey]) -> dict[QueueKey, TaskId]:
    """Return the oldest task of late queues; of those that have none any more, nothing.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(
        PROBLEMS["first_tasks"],
        {
            "lambdas": texts([queue.lambda_name for queue in queues]),
            "priorities": int2s([queue.priority for queue in queues]),
        },
    )
    ready = {QueueKey(name, Priority(priority)): task_id for name, priority, task_id in rows}
    return ready | {queue: late.unclaimed[queue] for queue in queues if queue in late.unclaimed}
