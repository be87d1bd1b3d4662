"""What the HSC counts, and its log."""

from collections import Counter as Count
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog
from prometheus_client import Counter, Histogram

from duly_core.process.lambda_metrics import ByLambda
from duly_core.process.telemetry import SECONDS, SIZES
from duly_core.tasks.task import Applied, ClaimedTask, HeartbeatAnswer, Result
from duly_wire.enums import Outcome

log = structlog.get_logger()

_claims = Counter("duly_claims_total", "Claims asked for, by verdict.", ["verdict"])
heartbeats = Counter("duly_heartbeats_total", "Tasks heartbeated, by verdict.", ["verdict"])
_results = Counter("duly_results_total", "Results written, by outcome and verdict.", ["outcome", "verdict"])
_retries = ByLambda(
    Counter(
        "duly_retries_total",
        "Retries written, by whether the lambda's budget put them off.",
        ["lambda", "held_back"],
    )
)
releases = Counter("duly_released_total", "Claims released, by verdict.", ["verdict"])
poll_seconds = Histogram(
    "duly_hsc_poll_seconds",
    "How long a poll for due tasks took, one that claims or one that only asks. The rows of claims: duly_hsc_group_size of ClaimWork.",
    buckets=SECONDS,
)
group_size = Histogram("duly_hsc_group_size", "Items of one statement, by RPC.", ["rpc"], buckets=SIZES)


def claimed(answers: Sequence[ClaimedTask | None]) -> None:
    """Claims were answered."""
    refused = sum(answer is None for answer in answers)
    _claims.labels("claimed").inc(len(answers) - refused)
    _claims.labels("refused").inc(refused)


def answered(counter: Counter, verdicts: Sequence[HeartbeatAnswer] | Sequence[Applied]) -> None:
    """Count answers by verdict."""
    for verdict, count in Count(verdicts).items():
        counter.labels(verdict.value).inc(count)


def results_written(results: Sequence[Result], verdicts: Sequence[Applied]) -> None:
    """Results were answered."""
    for (outcome, verdict), count in Count(
        (result.outcome, verdict) for result, verdict in zip(results, verdicts, strict=True)
    ).items():
        _results.labels(Outcome(outcome).name.lower(), verdict.value).inc(count)


def retries_written(retried: Mapping[str, int], held_back: Mapping[str, timedelta]) -> None:
    """Retries were written, of some lambdas no sooner than their budget allows."""
    for name, count in retried.items():
        _retries.labels(name, "yes" if name in held_back else "no").inc(count)
