"""What the Store Consumer counts, and the log lines that go with it."""

from collections import Counter as Count
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.attachments.ownership import Owner
from duly_core.attachments.sweep import Stored, SweepRound
from duly_core.counting.backlog import Ready
from duly_core.gates.breakers import Moved
from duly_core.gates.rules import Gate
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.server_identity import ServerCheck
from duly_core.process.cell_metrics import GaugeByCell
from duly_core.process.lambda_metrics import ByLambda, GaugeByLambda
from duly_core.process.telemetry import SECONDS, SIZES
from duly_core.tasks.polling import TimedOut
from duly_core.tasks.task import DueTask
from duly_core.time_tables.ticks import Fired
from duly_core.upkeep.retention import RetentionRound
from duly_wire.enums import FailureKind

log = structlog.get_logger()

_enqueued = ByLambda(
    Counter("duly_enqueued_total", "References sent to queues.", ["lambda", "priority", "kind"])
)
_unsent = ByLambda(
    Counter(
        "duly_unsent_references_total",
        "References that could not be sent and were put back.",
        ["lambda", "priority"],
    )
)
_reclaimed = Counter("duly_reclaimed_total", "Claims reclaimed from silent Executors.")
_uncompleted = Counter(
    "duly_uncompleted_total", "Attempts that failed because nobody completed them by token in time."
)
_ended = Counter(
    "duly_store_consumer_ended_total",
    "Tasks ended by the Store Consumer: expired, quarantined, cancelled, skipped, failed with their session.",
)
_queue_depth = GaugeByLambda(
    Gauge(
        "duly_queue_depth",
        "References in the queue, as the Store Consumer estimates.",
        ["lambda", "priority"],
    ),
    combine=sum,
)
_polls = Histogram("duly_poll_size", "References one poll took.", buckets=SIZES)
_reclaim_guard = GaugeByCell(
    Gauge("duly_failover_grace", "1 in the failover grace period, in which nothing is reclaimed."),
    combine=max,
)
server_changes = Counter("duly_store_changes_total", "How often Postgres was found to be another server.")
clock_steps = Counter(
    "duly_store_clock_steps_total", "Forward steps of Postgres's clock beyond timing.clock_step."
)
_partitions = Counter("duly_partitions_total", "Partitions of the store made and dropped.", ["change"])
_removed = Counter("duly_removed_total", "Finished tasks that were removed one by one after their retention.")
_moved = Counter(
    "duly_partition_survivors_total", "Tasks that outlived their partition and were moved to the default one."
)
_rest_bytes = GaugeByCell(
    Gauge(
        "duly_default_partition_bytes",
        "Size of the default partition. Beyond 64 MB no partition is made.",
    ),
    combine=max,
)
_attachments_removed = Counter(
    "duly_attachments_removed_total", "Attachments that were removed because no task used them any more."
)
_attachment_orphans = Counter(
    "duly_attachment_orphans_total", "Contents of no attachment that were removed: what crashes left behind."
)
_attachments = GaugeByCell(
    Gauge("duly_attachments_stored", "Attachments that are stored, or being uploaded."), combine=sum
)
_attachment_bytes = GaugeByCell(Gauge("duly_attachments_stored_bytes", "Bytes that these have."), combine=sum)
_ticks = Counter("duly_ticks_total", "Tasks that time tables scheduled.")
_ticks_left_out = Counter(
    "duly_ticks_left_out_total", "Rounds in which a time table left ticks out: missed, or overlapping."
)
_ticks_put_off = Counter(
    "duly_ticks_put_off_total",
    "Rounds in which a time table was put off: its ticks could not be computed, or a row was locked.",
)
sessions_blocked = GaugeByCell(
    Gauge("duly_sessions_blocked", "Sessions that a failed task blocks, up to 100,000; counted each minute."),
    combine=sum,
)
hosts = GaugeByCell(
    Gauge(
        "duly_hosts",
        "Hosts by state: alive, draining, silent (missed three reports), stopped; kept for a day.",
        ["state"],
    ),
    combine=max,
)
skewed_clocks = GaugeByCell(
    Gauge(
        "duly_skewed_clocks",
        "Live hosts and services whose clocks differ from Postgres's by more than 2 s, by kind: host, service.",
        ["kind"],
    ),
    combine=max,
)
_oldest_ready = GaugeByLambda(
    Gauge(
        "duly_oldest_ready_seconds",
        "How long the task that waits longest for a host has been due; time under a gate on its queue does not count.",
        ["lambda", "priority"],
    ),
    combine=max,
)
_backlog = GaugeByLambda(
    Gauge(
        "duly_backlog_tasks",
        "Tasks that are due and that no host has; each lambda and priority is counted up to a limit of 10 to 10,000."
        " Queues that a gate holds are left out.",
        ["lambda", "priority"],
    ),
    combine=sum,
)
_held_back = GaugeByLambda(
    Gauge(
        "duly_gated_backlog_tasks",
        "As duly_backlog_tasks, of queues that a gate or a breaker holds.",
        ["lambda", "priority"],
    ),
    combine=sum,
)
_serving_slots = GaugeByLambda(
    Gauge(
        "duly_serving_slots",
        "Slots of live hosts that serve a lambda with a backlog, busy ones among them.",
        ["lambda"],
    ),
    combine=sum,
)
_dead_letters = ByLambda(
    Counter(
        "duly_dead_letters_total",
        "New dead letters since this process began, by kind; each Store Consumer counts all.",
        ["lambda", "kind"],
    )
)
_newest_dead_letter = GaugeByCell(
    Gauge(
        "duly_newest_dead_letter_timestamp_seconds", "When the newest dead letter ended; 0: there is none."
    ),
    combine=max,
)
_rounds = Histogram(
    "duly_store_consumer_round_seconds", "How long a round of the Store Consumer took.", buckets=SECONDS
)
_gated = Counter("duly_gated_tasks_total", "Tasks that gates parked, dropped or delayed.", ["kind"])
_gate_released = Counter("duly_gate_released_tasks_total", "Parked tasks that were released from gates.")
_breaker_changes = ByLambda(
    Counter(
        "duly_breaker_changes_total",
        "How often the breaker of a lambda moved to a state.",
        ["lambda", "state"],
    )
)
_breaker_open = GaugeByLambda(
    Gauge(
        "duly_breaker_open",
        "1 while the breaker of a lambda is open or half open; each Store Consumer shows all.",
        ["lambda"],
    ),
    combine=max,
)
last_round = GaugeByCell(
    Gauge("duly_last_round_timestamp_seconds", "When a round was last completed."), combine=min
)


def backlog(
    queues: Sequence[QueueKey], waiting: Mapping[QueueKey, Ready], held: Mapping[QueueKey, Ready]
) -> None:
    """Show what is due of each queue: what waits for a host, and what a gate holds back."""
    shown = {queue: waiting.get(queue, Ready()) for queue in queues}
    _oldest_ready.set({_labels(queue): each.age.total_seconds() for queue, each in shown.items()})
    _backlog.set({_labels(queue): each.tasks for queue, each in shown.items()})
    _held_back.set({_labels(queue): each.tasks for queue, each in held.items()})


def serving_slots(slots: Mapping[str, int]) -> None:
    """Show how many slots serve the lambdas that have a backlog."""
    _serving_slots.set({(name,): number for name, number in slots.items()})


def queue_depths(depths: Mapping[QueueKey, int]) -> None:
    """Show how many references each queue holds."""
    _queue_depth.set({_labels(queue): depth for queue, depth in depths.items()})


def _labels(queue: QueueKey) -> tuple[str, str]:
    return queue.lambda_name, queue.priority.name.lower()


def dead_letters(counts: Mapping[tuple[str, FailureKind | None], int], newest_at: datetime | None) -> None:
    """Count new dead letters, by lambda and kind, and show when the newest ended."""
    _newest_dead_letter.set(newest_at.timestamp() if newest_at else 0)
    for (name, kind), count in counts.items():
        _dead_letters.labels(name, kind.name.lower() if kind else "unknown").inc(count)


def time_round() -> AbstractContextManager[object]:
    """Measure how long a round takes."""
    return _rounds.time()


def sent(references: Mapping[QueueKey, int], kind: str) -> None:
    """Count references sent to these queues: `due` for the first time, `again` after a timeout."""
    for queue, count in references.items():
        _enqueued.labels(queue.lambda_name, queue.priority.name.lower(), kind).inc(count)
    if kind == "due":
        _polls.observe(sum(references.values()))


def unsent(tasks: Sequence[DueTask]) -> None:
    """Count and log references that could not be sent."""
    for queue, count in Count(task.queue for task in tasks).items():
        _unsent.labels(queue.lambda_name, queue.priority.name.lower()).inc(count)
    log.warning("references not sent; put back", count=len(tasks))


def timeouts_handled(found: TimedOut) -> None:
    """Count and log tasks whose next trigger passed while they were on their way or running."""
    _reclaimed.inc(found.reclaimed)
    _ended.inc(found.ended)
    _uncompleted.inc(found.uncompleted)
    sent_again = len(found.again) - found.reclaimed
    if sent_again:
        log.info("unclaimed references sent again", count=sent_again)
    if found.uncompleted:
        log.warning("attempts failed that nobody completed in time", count=found.uncompleted)
    silent_ended = found.revoked - found.reclaimed
    if found.revoked:
        log.warning("silent claims ended", reclaimed=found.reclaimed, ended=silent_ended)
    if without_run := found.ended - silent_ended:
        log.info("tasks ended without a run: expired, skipped, or not completed in time", count=without_run)


def server_changed(seen: ServerCheck, *, expected: bool) -> None:
    """Log that Postgres changed: `expected`, this process has just begun, too, so a restart is nothing to look into."""
    server_changes.inc()
    report = log.info if expected and not seen.failed_over else log.warning
    if not seen.changed:
        report("Postgres clock was set back", server=seen.server)
    elif not seen.was_restarted:
        report("Postgres server changed", before=seen.before, now=seen.server)
    elif expected:
        report("Postgres was restarted before this process, as usual", before=seen.before, now=seen.server)
    else:
        report("Postgres was restarted", before=seen.before, now=seen.server)


def failover_grace(left: timedelta, *, expected: bool) -> None:
    """Log that a failover grace period began or (zero left) ended; `expected`: this process has just begun, too."""
    _reclaim_guard.set(bool(left))
    if left:
        seconds = round(left.total_seconds(), 3)
        if expected:
            log.info("silent claims are not ended yet, as usual after a restart", seconds=seconds)
        else:
            log.warning("failover grace period started", seconds=seconds)
    else:
        log.info("grace period over: silent claims are ended again")


def sweep_round(done: SweepRound, stored: Stored, where: str) -> None:
    """Count and log what a sweep of the place `where` did."""
    _attachments_removed.inc(done.attachments)
    _attachment_orphans.inc(done.orphans)
    _attachments.set(stored.attachments)
    _attachment_bytes.set(stored.bytes)
    if done.attachments or done.orphans:
        log.info("attachments removed", count=done.attachments, bytes=done.bytes, orphans=done.orphans)
    if done.owner is Owner.ANOTHER:
        log.error(
            "the store of attachments is marked as another database's: nothing is removed from it. If no other database uses it, "
            "remove `store-id` from it; otherwise set attachments.folder, or attachments.prefix, to another",
            place=where,
        )
    if done.owner is Owner.COPY:
        log.error(
            "another copy of this database uses the store of attachments: nothing is removed from it. If this is a restored "
            "backup, and the other one is gone, remove `store-id` from the store; otherwise give one of them a copy of the "
            "contents, in another attachments.folder or attachments.prefix, and then remove `store-id` from both",
            place=where,
        )


def retention_round(done: RetentionRound) -> None:
    """Count and log what a round of the retention did."""
    _partitions.labels("added").inc(len(done.added))
    _partitions.labels("dropped").inc(len(done.dropped))
    _removed.inc(done.removed)
    _moved.inc(done.moved)
    if done.added:
        log.info("partitions made", partitions=done.added)
    if done.dropped:
        log.info("partitions dropped after their retention", partitions=done.dropped, moved=done.moved)
    if done.removed:
        log.info("finished tasks removed row by row", count=done.removed)
    if done.locked:
        log.info("retention delayed: table locked; trying again later")
    if done.rest_bytes is not None:
        _rest_bytes.set(done.rest_bytes)
    if done.crowded:
        log.warning(
            "no partition made: task_rest is too large; see docs/operators/postgres.md",
            bytes=done.rest_bytes,
        )
    if done.clock_stepped is not None:
        log.warning(
            "Postgres clock stepped ahead: no removal for a day, unless it is set back",
            ahead=str(done.clock_stepped),
        )


def ticked(fired: Fired) -> None:
    """Count and log what a round of the time tables did."""
    _ticks.inc(fired.tasks)
    _ticks_left_out.inc(len(fired.left_out))
    _ticks_put_off.inc(len(fired.put_off))
    if fired.left_out:
        log.info(
            "ticks skipped by catch_up or overlap", time_tables=fired.left_out[:20], count=len(fired.left_out)
        )
    if fired.cancelled:
        log.info("running tasks cancelled by the next tick", count=fired.cancelled)
    for name, problem in fired.put_off.items():
        log.warning("time table cannot fire; trying again later", time_table=name, reason=problem)


def gate_swept(gate: Gate, tasks: int) -> None:
    """Count and log tasks that a gate parked, dropped or delayed."""
    _gated.labels(gate.kind).inc(tasks)
    log.info("tasks gated", gate=gate.name, kind=str(gate.kind), count=tasks)


def gate_released(released: Mapping[str, int]) -> None:
    """Count and log tasks that were parked on gates that are gone; by lambda."""
    count = sum(released.values())
    _gate_released.inc(count)
    log.info("gated tasks released", count=count)


def breakers_open(lambdas: Collection[str]) -> None:
    """Show the lambdas whose breakers are open or half open."""
    _breaker_open.set({(name,): 1 for name in lambdas})


def breaker_moved(moved: Moved) -> None:
    """Count and log that a breaker opened, lets probes through, or closed."""
    _breaker_changes.labels(moved.lambda_name, moved.state).inc()
    log.warning(
        "breaker changed state", **{"lambda": moved.lambda_name}, state=str(moved.state), reason=moved.reason
    )
