"""Everything the Frontend logs and counts."""

import structlog
from prometheus_client import Counter, Histogram

from duly_core.telemetry import SIZES

log = structlog.get_logger()

_scheduled = Counter("duly_scheduled_total", "Tasks asked for, by what became of them.", ["verdict"])
_redriven = Counter("duly_redriven_total", "Dead letters that were let run again.")
_groups = Histogram("duly_schedule_group_size", "Tasks written in one statement.", buckets=SIZES)


def serving(address: str) -> None:
    """The Frontend answers from now on."""
    log.info("frontend serves", address=address)


def scheduled(verdict: str, count: int) -> None:
    """So many tasks of one call met this verdict."""
    _scheduled.labels(verdict).inc(count)


def redriven(count: int) -> None:
    """So many dead letters run again."""
    _redriven.inc(count)


def group_written(size: int) -> None:
    """One statement carried so many tasks."""
    _groups.observe(size)


def lambdas_registered(names: list[str], owner: str) -> None:
    """A host declared its lambdas."""
    log.info("lambdas registered", lambdas=names, owner=owner)
