"""What the autoscaler counts, and the log lines that go with it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import structlog
from prometheus_client import Counter, Gauge, Histogram

from duly_core.pools.planner import Workers
from duly_core.process.loop import worth_logging
from duly_core.process.telemetry import SECONDS

log = structlog.get_logger()

_leads = Gauge("duly_autoscaler_leads", "1 while this autoscaler leads; of all of them one does.")
_desired = Gauge(
    "duly_pool_desired_workers", "Workers that a pool is to have; shown by the leader.", ["pool"]
)
_workers = Gauge(
    "duly_pool_workers",
    "Workers of a pool by state: alive, starting, draining; shown by the leader.",
    ["pool", "state"],
)
_failing = Gauge(
    "duly_pool_driver_failing",
    "1 while the driver of a pool does not do what it is told; shown by the leader.",
    ["pool"],
)
_changes = Counter(
    "duly_pool_changes_total",
    "How often another number of workers was planned, by direction: up, down.",
    ["pool", "direction"],
)
_calls = Histogram(
    "duly_autoscaler_driver_call_seconds",
    "How long calls of drivers took, by outcome: done, failed, timeout, given_up.",
    ["outcome"],
    buckets=SECONDS,
)
_spin_up = Gauge(
    "duly_pool_spin_up_seconds", "How long a worker takes until it reports, as learned.", ["pool"]
)
rounds = Histogram("duly_autoscaler_round_seconds", "How long a round of plans took.", buckets=SECONDS)
last_round = Gauge("duly_autoscaler_last_round_timestamp_seconds", "When the leader last completed a round.")

_shown: set[str] = set()


def leads(fence: int) -> None:
    """Log that this autoscaler leads from now on."""
    _leads.set(1)
    log.info("leads: plans for the pools from now on", fence=fence)


def leads_no_more(reason: str) -> None:
    """Log that this autoscaler does not lead any more, and show nothing of pools."""
    _leads.set(0)
    keep([])
    log.warning("leads no more", reason=reason)


def keep(pools: Collection[str]) -> None:
    """Show these pools only."""
    for name in _shown - {*pools}:
        _desired.remove(name)
        _failing.remove(name)
        _spin_up.remove(name)
        for state in ("alive", "starting", "draining"):
            _workers.remove(name, state)
        _shown.discard(name)


def planned(pool: str, desired: int, workers: Workers, spin_up: timedelta, *, failing: bool) -> None:
    """Show the plan of a pool."""
    _shown.add(pool)
    _desired.labels(pool).set(desired)
    _failing.labels(pool).set(failing)
    _spin_up.labels(pool).set(spin_up.total_seconds())
    counts: Mapping[str, int] = {
        "alive": workers.alive,
        "starting": workers.starting,
        "draining": workers.draining,
    }
    for state, number in counts.items():
        _workers.labels(pool, state).set(number)


def changed(pool: str, before: int, desired: int, reasons: Sequence[str]) -> None:
    """Count and log another number of workers."""
    _changes.labels(pool, "up" if desired > before else "down").inc()
    log.info("pool scaled", pool=pool, before=before, desired=desired, reason=reasons[0])


def driver_called(outcome: str, took: timedelta) -> None:
    """Count a call of a driver."""
    _calls.labels(outcome).observe(took.total_seconds())


def driver_failed(pool: str, driver: str, failures: int, reason: str, pause: timedelta) -> None:
    """Log that a driver failed."""
    if worth_logging(failures):
        log.error(
            "driver failed",
            pool=pool,
            driver=driver,
            failures=failures,
            reason=reason,
            again_in_s=round(pause.total_seconds(), 1),
        )


def driver_works_again(pool: str, driver: str, failures: int) -> None:
    """Log that a driver works after failures."""
    log.info("driver works again", pool=pool, driver=driver, after_failures=failures)


def drained(pool: str, host_ids: Collection[str]) -> None:
    """Log which workers are to end."""
    log.info("workers are to drain", pool=pool, hosts=sorted(host_ids)[:20], count=len(host_ids))
