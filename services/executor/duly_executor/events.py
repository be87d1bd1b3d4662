"""What the Executor counts, and the log lines that go with it."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from uuid import UUID

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.process.histograms import observe_all
from duly_core.process.lambda_metrics import ByLambda
from duly_core.process.telemetry import SECONDS
from duly_executor.slots.use import SlotUse
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

log = structlog.get_logger()

_lateness = ByLambda(
    Histogram(
        "duly_start_lateness_seconds",
        "From when a run was due to its start; written when the run ends. Time in which a gate, units or a rate held it back"
        " does not count.",
        ["lambda", "priority"],
        buckets=SECONDS,
    )
)
_ended = ByLambda(
    Counter(
        "duly_attempts_total",
        "Runs that ended, by outcome; released ones are left out.",
        ["lambda", "outcome"],
    )
)
_held = Gauge("duly_held_tasks", "Tasks whose claims this Executor holds: running and prefetched ones.")
_slots = Gauge("duly_slots", "Slots of this Executor's callback processes.")
_busy_slots = Gauge("duly_busy_slots", "Slots of this Executor whose callbacks run.")
_reserved = Gauge(
    "duly_reserved_slots",
    "Slots that this Executor keeps for a lambda, or for one of its priorities.",
    ["lambda", "priority"],
)
_reserved_used = Gauge(
    "duly_reserved_slots_used", "Reserved slots that are used by whom they are for.", ["lambda", "priority"]
)
_strikes = Counter("duly_strikes_total", "Heartbeat calls that failed.")
_lost = Counter("duly_lost_claims_total", "Claims that this Executor lost.")
_killed = Counter(
    "duly_killed_processes_total", "Callback processes that Duly killed, by reason.", ["reason"]
)
for _reason in ("cancel", "kill", "lost_claim", "max_runtime", "no_answer", "no_longer_ours", "stopped"):
    _killed.labels(_reason)  # a counter whose first sample is 1 shows no increase
_recycled = Counter(
    "duly_recycled_processes_total",
    "Callback processes that were replaced because they had ended many tasks, or used much memory.",
    ["reason"],
)
for _reason in ("memory", "tasks"):
    _recycled.labels(_reason)
_crashed = Counter("duly_crashed_processes_total", "Callback processes that died by themselves.")


def attempts_ended(ends: Iterable[tuple[hsc_pb2.ClaimedTask, hsc_pb2.TaskResult]]) -> None:
    """Callbacks are over."""
    outcomes: Tally[tuple[str, hsc_pb2.Outcome.ValueType]] = Tally()
    lateness: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for task, result in ends:
        queue = name, _ = _queue_of(task)
        outcomes[name, result.outcome] += 1
        started = result.started_at
        due = task.startable_at if task.HasField("startable_at") else task.due_at
        lateness[queue].append(started.seconds - due.seconds + (started.nanos - due.nanos) / 1e9)
    for (name, priority), values in lateness.items():
        series = _lateness.labels(name, _PRIORITIES[priority], uses=len(values))
        observe_all(series, [max(0.0, value) for value in values])
    for (name, outcome), count in outcomes.items():
        _ended.labels(name, _OUTCOMES[outcome]).inc(count)


_queue_of = attrgetter("lambda", "priority")
_PRIORITIES = {int(priority): priority.name.lower() for priority in Priority}
_OUTCOMES = {number: name.removeprefix("OUTCOME_").lower() for name, number in hsc_pb2.Outcome.items()}


def held(tasks: int) -> None:
    """So many claims are held."""
    _held.set(tasks)


def count_slots(slots: int, busy: Callable[[], int]) -> None:
    """There are so many slots; `busy` is asked how many are used when somebody reads the metrics, in another thread."""
    _slots.set(slots)
    _busy_slots.set_function(busy)


def slots_used(use: SlotUse) -> None:
    """So many reserved slots are used."""
    for each in use.reservations:
        labels = each.lambda_name, "any" if each.priority is None else each.priority.name.lower()
        _reserved.labels(*labels).set(each.slots)
        _reserved_used.labels(*labels).set(use.used(each))


def strike(count: int, reason: str, cell: str) -> None:
    """A heartbeat call failed."""
    _strikes.inc()
    log.warning("heartbeat call failed", strikes=count, reason=reason, **({"cell": cell} if cell else {}))


def cell_given_up(cell: str, tasks: int) -> None:
    """The tasks of a cell are stopped, before it gives them to others."""
    log.error(
        "cell does not answer heartbeats: its tasks here are stopped and handed back", cell=cell, tasks=tasks
    )


def process_parted(pid: int, cell: str) -> None:
    """A callback process runs tasks of a cell that does not answer, and may have to be killed for that."""
    log.warning("cell does not answer heartbeats: a process with its tasks is replaced", pid=pid, cell=cell)


def claims_lost(count: int, where: str) -> None:
    """The store has given these to others, or ended them."""
    _lost.inc(count)
    log.warning("claims lost", count=count, told_by=where)


def process_killed(pid: int, reason: str, task_id: TaskId, lambda_name: str) -> None:
    """A callback process was killed on purpose."""
    _killed.labels(reason).inc()
    named = {"task": str(UUID(bytes=task_id)), "lambda": lambda_name} if task_id else {}
    log.warning("callback process killed", pid=pid, reason=reason, **named)


def process_crashed(pid: int, code: int, suspects: Collection[tuple[TaskId, str]], traceback: str) -> None:
    """A callback process died by itself; one of these tasks is the cause."""
    _crashed.inc()
    log.error(
        "callback process died",
        pid=pid,
        code=code,
        suspects=_named(suspects),
        **({"traceback": traceback[:_TRACEBACK_LENGTH]} if traceback else {}),
    )


def process_recycled(pid: int, reason: str, tasks: int, memory: int) -> None:
    """A callback process is old: another takes its place."""
    _recycled.labels(reason).inc()
    log.info("callback process is replaced", pid=pid, reason=reason, tasks=tasks, memory_bytes=memory)


def process_lingers(pid: int, overdue: Iterable[tuple[TaskId, str]]) -> None:
    """A callback process takes no more work: these callbacks were interrupted and do not end."""
    log.warning("callback process takes no more work: callback overdue", pid=pid, overdue=_named(overdue))


def _named(tasks: Iterable[tuple[TaskId, str]]) -> list[dict[str, str]]:
    return [{"task": str(UUID(bytes=task_id)), "lambda": name} for task_id, name in tasks]


_TRACEBACK_LENGTH = 4_000


def unreported(what: str, count: int, reason: str) -> None:
    """The HSC refused or was away too long."""
    log.error("report refused by the HSC", what=what, count=count, reason=reason)
