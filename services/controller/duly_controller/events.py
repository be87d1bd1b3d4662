"""Everything the Controller logs and counts."""

from collections.abc import Collection

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.telemetry import SIZES

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
_executors = Gauge("duly_executors", "Executors attached to this Controller.")


def serving(address: str, host_id: str) -> None:
    """The Controller answers from now on."""
    log.info("controller serves", address=address, host=host_id)


def attached(executor_id: str, pid: int, lambdas: Collection[str], executors: int) -> None:
    """An Executor said what it serves."""
    _executors.set(executors)
    log.info("executor attached", executor=executor_id, pid=pid, lambdas=sorted(lambdas))


def executor_ended(executor_id: str, crashed: int, released: int, executors: int) -> None:
    """An attached Executor's process ended; with the numbers of its tasks that had started and that had not."""
    _executors.set(executors)
    level = log.warning if crashed or released else log.info
    level("executor ended", executor=executor_id, tasks_crashed=crashed, tasks_released=released)


def taken_over(executor_id: str, crashed: int, released: int) -> None:
    """An Executor died with its Controller, or this host restarted; with the number of its tasks that had started."""
    (log.warning if crashed or released else log.info)(
        "took over what a dead executor held",
        executor=executor_id,
        tasks_crashed=crashed,
        tasks_released=released,
    )


def journal_dropped(name: str) -> None:
    """A claim journal without an owner, whose processes could not be proved dead here; its leases have run out."""
    log.warning("unusable claim journal removed (damaged, or of another host)", journal=name)


def not_registered(reason: str) -> None:
    """The Frontend could not take the lambdas; it is tried again."""
    log.warning("lambda registration failed; trying again", reason=reason)


def registered_over(name: str, warning: str) -> None:
    """The registry took a lambda, over a declaration that probably was to stay."""
    log.warning("lambda declaration replaced", **{"lambda": name}, problem=warning)


def refused_late(problems: str) -> None:
    """The registry refused lambdas that an Executor serves already: their tasks cannot be scheduled."""
    log.error("lambdas refused by the registry", problems=problems)


def claimed(tasks: int, refused: int) -> None:
    """The HSC answered."""
    _claims.labels("claimed").inc(tasks)
    _claims.labels("refused").inc(refused)
    _handed.observe(tasks)


def claim_unknown(references: int, reason: str) -> None:
    """No definite answer in time: the messages are left to come back."""
    _claims.labels("unknown").inc(references)
    log.warning("claim without a definite answer", references=references, reason=reason)


def unreported(executor_id: str, tasks: int, reason: str) -> None:
    """A dead Executor's tasks could not be reported: their leases will run out."""
    log.error("crash report failed", executor=executor_id, tasks=tasks, reason=reason)


def delete_failed(messages: int, reason: str) -> None:
    """Messages stay in the queue; their tasks' next claims are refused."""
    log.warning("messages not deleted", messages=messages, reason=reason)


def give_back_failed(messages: int, reason: str) -> None:
    """Messages stay hidden until their visibility ends."""
    log.warning("messages not given back", messages=messages, reason=reason)


def delete_failed_unexpectedly(messages: int, error: Exception) -> None:
    """The same, for a reason that nobody foresaw."""
    log.error("messages not deleted", messages=messages, exc_info=error)


def crash_report_failed(executor_id: str, tasks: int, error: Exception) -> None:
    """A dead Executor's tasks could not be dealt with, for a reason that nobody foresaw; their leases run out."""
    log.error("crash report failed unexpectedly", executor=executor_id, tasks=tasks, exc_info=error)


def stale(references: int) -> None:
    """Buffered references expired: their messages are about to become visible to others."""
    _stale.inc(references)
    log.warning("buffered references expired; their messages return", references=references)


def given_back(messages: int) -> None:
    """Messages were returned to their queue at once, for other hosts."""
    _given_back.inc(messages)


def executor_killed(pid: int) -> None:
    """An Executor did not end within its grace when told to."""
    log.error("executor killed: drain timeout", pid=pid)


def not_handed_back(error: Exception) -> None:
    """What was claimed for an Executor that hung up is not known, for a reason that nobody foresaw; it runs out."""
    log.error("release of claims failed unexpectedly", exc_info=error)


def claim_refused(references: int, reason: str) -> None:
    """The HSC does not take these claims from us, and would not if it was asked again at once."""
    _claims.labels("unknown").inc(references)
    log.error(
        "claims refused by the HSC; messages hidden until their visibility ends",
        references=references,
        reason=reason,
    )


def unanswered(executor_id: str, calls: int) -> None:
    """Answers to calls of NextWork did not reach an Executor; the claims in them are released."""
    log.warning("unanswered NextWork; claims released", executor=executor_id, calls=calls)
