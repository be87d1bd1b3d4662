"""What the Controller counts, and the log lines that go with it."""

from collections.abc import Collection
from datetime import timedelta

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.config.settings import format_duration
from duly_core.process.telemetry import SIZES

log = structlog.get_logger()

_claims = Counter(
    "duly_controller_claims_total",
    "References for which the HSC was asked for a claim, by answer.",
    ["verdict"],
)
_handed = Histogram("duly_next_work_size", "Tasks handed out in one NextWork.", buckets=SIZES)
_stale = Counter(
    "duly_controller_stale_references_total", "References that were buffered too long and dropped."
)
_given_back = Counter(
    "duly_controller_given_back_messages_total",
    "Messages given back because no Executor here asked for them.",
)
_outlived = Counter(
    "duly_outlived_executors_total", "Executors that outlived the deadline of their claims, and were killed."
)
_executors = Gauge("duly_executors", "Executors attached to this Controller.")


def attached(executor_id: str, pid: int, lambdas: Collection[str], executors: int) -> None:
    """An Executor said what it serves."""
    _executors.set(executors)
    log.info("executor attached", executor=executor_id, pid=pid, lambdas=sorted(lambdas))


def executor_ended(executor_id: str, crashed: int, released: int, executors: int) -> None:
    """An attached Executor's process ended; with the numbers of its tasks that had started and that had not."""
    _executors.set(executors)
    level = log.warning if crashed or released else log.info
    level("executor ended", executor=executor_id, tasks_crashed=crashed, tasks_released=released)


def outlived(executor_id: str, late: timedelta) -> None:
    """An Executor's own timer did not end it, and this Controller did."""
    _outlived.inc()
    log.error(
        "executor killed: it outlived the deadline of its claims",
        executor=executor_id,
        late=format_duration(late),
    )


def taken_over(executor_id: str, crashed: int, released: int) -> None:
    """An Executor died with its Controller, or this host restarted; with the number of its tasks that had started."""
    (log.warning if crashed or released else log.info)(
        "took over what a dead executor held",
        executor=executor_id,
        tasks_crashed=crashed,
        tasks_released=released,
    )


def claimed(tasks: int, refused: int) -> None:
    """The HSC answered."""
    _claims.labels("claimed").inc(tasks)
    _claims.labels("refused").inc(refused)
    _handed.observe(tasks)


def claim_unknown(references: int, reason: str) -> None:
    """No definite answer in time: the messages are left to come back."""
    _claims.labels("unknown").inc(references)
    log.warning("claim without a definite answer", references=references, reason=reason)


def stale(references: int) -> None:
    """Buffered references expired: their messages are about to become visible to others."""
    _stale.inc(references)
    log.warning("buffered references expired; their messages return", references=references)


def given_back(messages: int) -> None:
    """Messages were returned to their queue at once, for other hosts."""
    _given_back.inc(messages)


def claim_refused(references: int, reason: str) -> None:
    """The HSC does not take these claims from us, and would not if it was asked again at once."""
    _claims.labels("unknown").inc(references)
    log.error(
        "claims refused by the HSC; messages hidden until their visibility ends",
        references=references,
        reason=reason,
    )
