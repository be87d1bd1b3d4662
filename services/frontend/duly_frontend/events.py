"""What the Frontend counts, and its log."""

from collections import Counter as Count
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.events.store import Sent
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.store import Board
from duly_core.process.lambda_metrics import GaugeByLambda
from duly_core.process.loop import worth_logging
from duly_core.process.seldom_log import SeldomLog
from duly_core.process.telemetry import SIZES
from duly_core.slo.objectives import Promised
from duly_core.tasks.completions import Completed, Completion
from duly_core.tasks.task import NewTask, Scheduled, Scheduling
from duly_frontend.slo.verdicts import Verdict
from duly_wire.queue_names import QueueName

log = structlog.get_logger()

_scheduled = Counter("duly_scheduled_total", "Tasks in Schedule calls, by verdict.", ["verdict"])
taken, refused = _scheduled.labels("taken"), _scheduled.labels("refused")
_graphs = Counter("duly_graphs_scheduled_total", "Graphs in ScheduleGraph calls, by verdict.", ["verdict"])
graphs_taken, graphs_refused = _graphs.labels("taken"), _graphs.labels("refused")
unblocked = Counter("duly_sessions_unblocked_total", "Sessions whose block an operator ended.")
redriven = Counter("duly_redriven_total", "Dead letters that were redriven.")
updated = Counter("duly_updated_total", "Tasks that were changed before they ran.")
purged = Counter("duly_purged_total", "Finished tasks that were deleted because somebody asked for it.")
_completions = Counter(
    "duly_completions_total", "Completions by token, by outcome and verdict.", ["outcome", "verdict"]
)
_unique_conflicts = Counter(
    "duly_unique_conflicts_total",
    "Tasks whose unique key another task had, by lambda and what became of them.",
    ["lambda", "verdict"],
)
_events_sent = Counter(
    "duly_events_sent_total",
    "Events that callers sent: received by tasks that waited, kept, repeated, or refused.",
    ["what"],
)
pools_changed = Counter(
    "duly_pools_changed_total", "Pools of workers that operators declared, changed or removed."
)
resources_changed = Counter(
    "duly_resources_changed_total", "Resources that operators declared, changed or removed."
)
gates_changed = Counter("duly_gates_changed_total", "Gates and breakers that operators set or removed.")
attachment_bytes = Counter(
    "duly_attachment_bytes_total",
    "Bytes of attachments: parts that were uploaded and fetched, uploads that were finished, and those that were there already.",
    ["what"],
)
_load_refused = Counter(
    "duly_load_refused_total",
    "Calls that were refused because their caller asks for too much, by kind.",
    ["kind"],
)
_calls = Counter(
    "duly_schedule_calls_total",
    "Calls of Schedule and ScheduleGraph: accepted, failed, or refused for what they ask or because their caller asks for too much.",
    ["verdict"],
)
_schedule_calls = {verdict: _calls.labels(verdict.value) for verdict in Verdict}
_is_limited: ContextVar[bool] = ContextVar("is_limited", default=False)
_own_wait: ContextVar[float] = ContextVar("own_wait", default=0.0)
_has_away_items: ContextVar[bool] = ContextVar("has_away_items", default=False)
_problems = Gauge(
    "duly_problems",
    "Problems on the incident board, by kind and severity; each Frontend shows what one of them found.",
    ["kind", "severity"],
)
_problems_of_lambda = GaugeByLambda(
    Gauge(
        "duly_lambda_problems",
        "Problems on the incident board that hit a lambda, by kind and severity.",
        ["lambda", "kind", "severity"],
    ),
    combine=sum,
)
_objective_seconds = GaugeByLambda(
    Gauge(
        "duly_start_objective_seconds",
        "Of a lambda with an objective of its own: how late its runs may begin.",
        ["lambda"],
    ),
    combine=None,  # rules leave out what it names: `other` would be all lambdas that HSCs do not name
)
_objective_ratio = GaugeByLambda(
    Gauge(
        "duly_start_objective_ratio",
        "Of a lambda with an objective of its own: the share of its runs that is to begin on time.",
        ["lambda"],
    ),
    combine=None,  # rules leave out what it names: `other` would be all lambdas that HSCs do not name
)
_board_at = Gauge(
    "duly_problem_board_timestamp_seconds",
    "When the incident board was computed last, by any Frontend; Unix time.",
)
_notifications_sent = Counter(
    "duly_notifications_sent_total", "Messages about problems that arrived, by target.", ["target"]
)
_notifications_failed = Counter(
    "duly_notifications_failed_total",
    "Deliveries of messages about problems that failed, by target.",
    ["target"],
)
_board_seconds = Gauge("duly_problem_board_seconds", "How long the last round of the incident board took.")
groups = Histogram("duly_schedule_group_size", "Tasks written in one statement.", buckets=SIZES)

_refusals = SeldomLog(log, "call refused: its caller asks for too much")


def completions_answered(asked: Sequence[Completion], answers: Sequence[Completed]) -> None:
    """Completions by token were answered."""
    for (outcome, verdict), count in Count(
        (each.outcome, answer.verdict) for each, answer in zip(asked, answers, strict=True)
    ).items():
        _completions.labels(outcome.name.lower(), verdict.value).inc(count)


_CONFLICTS = frozenset(
    {Scheduling.IGNORED, Scheduling.REJECTED, Scheduling.REPLACED, Scheduling.NOT_REPLACED}
)


def unique_answered(tasks: Sequence[NewTask], answers: Sequence[Scheduled]) -> None:
    """Tasks with unique keys were answered; their lambdas are registered."""
    for (name, verdict), count in Count(
        (QueueName.parse(task.lambda_name).lambda_name, answer.verdict)
        for task, answer in zip(tasks, answers, strict=True)
        if answer.verdict in _CONFLICTS
    ).items():
        _unique_conflicts.labels(name, verdict.name.lower()).inc(count)


def events_sent(answers: Sequence[Sent]) -> None:
    """Events that callers sent were answered."""
    for answer, count in Count(
        "repeated"
        if each.is_repeated
        else "refused"
        if each.is_refused
        else "received"
        if each.receivers
        else "kept"
        for each in answers
    ).items():
        _events_sent.labels(answer).inc(count)


def notifications_of(targets: Iterable[str]) -> None:
    """These targets are told of problems: their counters begin at 0."""
    for target in targets:
        _notifications_sent.labels(target)
        _notifications_failed.labels(target)


def notification_sent(target: str, failures: int) -> None:
    """A message arrived at its target, after so many failures."""
    _notifications_sent.labels(target).inc()
    log.info("notification sent", target=target, after_failures=failures)


def notification_failed(target: str, failures: int, failure: str) -> None:
    """A delivery failed; `failure` names no URL."""
    _notifications_failed.labels(target).inc()
    if worth_logging(failures):
        log.warning("notification failed", target=target, failures=failures, failure=failure)


def board_unread(kinds: Collection[Kind], error: Exception) -> None:
    """A round of the incident board could not read these kinds of problems, and goes on without."""
    log.warning("problems not read", kinds=[kind.name.lower() for kind in kinds], error=str(error))


def board_unknown() -> None:
    """Nobody has said recently what is wrong: the gauges tell nothing rather than what was wrong then."""
    _problems.clear()
    _problems_of_lambda.set({})


def objectives_read(promised: Mapping[str, Promised]) -> None:
    """What holds for lambdas with objectives of their own was read."""
    _objective_seconds.set({(name,): each.start_within.total_seconds() for name, each in promised.items()})
    _objective_ratio.set({(name,): each.share for name, each in promised.items()})


def board_read(board: Board) -> None:
    """The incident board was read, as it was published last."""
    if board.computed_at is None:
        return
    _board_at.set(board.computed_at.timestamp())
    if board.took is not None:
        _board_seconds.set(board.took.total_seconds())
    if board.is_stale:
        board_unknown()
        return
    found = Count((each.kind, each.severity) for each in board.problems)
    for kind in Kind:
        for severity in Severity:
            _problems.labels(kind.name.lower(), severity.name.lower()).set(found[kind, severity])
    of_lambdas = Count(
        (name, each.kind.name.lower(), each.severity.name.lower())
        for each in board.problems
        for name in each.lambdas
    )
    _problems_of_lambda.set({labels: float(count) for labels, count in of_lambdas.items()})


def took_limited() -> bool:
    """Return whether the call that this task serves was refused because its caller asks for too much."""
    return _is_limited.get()


def waited_for_own(seconds: float) -> None:
    """Note that the call that this task serves waited so long for other calls of its caller."""
    _own_wait.set(_own_wait.get() + seconds)


def own_wait() -> float:
    """Return for how many seconds the call that this task serves waited for other calls of its caller."""
    return _own_wait.get()


def items_away() -> None:
    """Note that the call that this task serves had items whose cell does not answer."""
    _has_away_items.set(True)


def had_items_away() -> bool:
    """Return whether the call that this task serves had items whose cell does not answer."""
    return _has_away_items.get()


def calls_counted(verdict: Verdict) -> None:
    """Count a call that schedules."""
    _schedule_calls[verdict].inc()


def load_refused(kind: str, caller: object) -> None:
    """Count and log a call that was refused; callers share a line a second."""
    _is_limited.set(True)
    _load_refused.labels(kind).inc()
    _refusals.warn(kind=kind, caller=caller)
