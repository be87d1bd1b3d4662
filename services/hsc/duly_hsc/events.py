"""What the HSC counts, and its log."""

from collections import Counter as Count
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog
from prometheus_client import Counter, Histogram

from duly.enums import Outcome
from duly_core.task import Applied, ClaimedTask, HeartbeatAnswer, Result
from duly_core.telemetry import SIZES

log = structlog.get_logger()

_claims = Counter("duly_claims_total", "Claims asked for, by verdict.", ["verdict"])
_beats = Counter("duly_heartbeats_total", "Tasks heartbeated, by verdict.", ["verdict"])
_results = Counter("duly_results_total", "Results written, by outcome and verdict.", ["outcome", "verdict"])
_retries = Counter(
    "duly_retries_total",
    "Retries written, by whether the lambda's budget put them off.",
    ["lambda", "held_back"],
)
_released = Counter("duly_released_total", "Claims released, by verdict.", ["verdict"])
_groups = Histogram("duly_hsc_group_size", "Items of one statement, by RPC.", ["rpc"], buckets=SIZES)


def group_written(rpc: str, size: int) -> None:
    """One statement carried this number of items of the RPC."""
    _groups.labels(rpc).observe(size)


def claimed(answers: Sequence[ClaimedTask | None]) -> None:
    """Claims were answered."""
    refused = sum(answer is None for answer in answers)
    _claims.labels("claimed").inc(len(answers) - refused)
    _claims.labels("refused").inc(refused)


def beaten(verdicts: Sequence[HeartbeatAnswer]) -> None:
    """Heartbeats were answered."""
    for verdict, count in Count(verdicts).items():
        _beats.labels(verdict.value).inc(count)


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


def released(verdicts: Sequence[Applied]) -> None:
    """Claims were released."""
    for verdict, count in Count(verdicts).items():
        _released.labels(verdict.value).inc(count)


def work_claimed(tasks: Sequence[ClaimedTask]) -> None:
    """A look for work claimed these; none: nothing was due."""
    _claims.labels("claimed").inc(len(tasks))
    group_written("ClaimWork", len(tasks))
