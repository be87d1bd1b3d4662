"""Everything the Frontend logs and counts."""

from collections.abc import Mapping, Sequence

import structlog
from prometheus_client import Counter, Histogram

from duly_core.telemetry import SIZES

log = structlog.get_logger()

_scheduled = Counter("duly_scheduled_total", "Tasks in Schedule calls, by verdict.", ["verdict"])
_taken, _refused = _scheduled.labels("taken"), _scheduled.labels("refused")
_unblocked = Counter("duly_sessions_unblocked_total", "Sessions whose block an operator ended.")
_redriven = Counter("duly_redriven_total", "Dead letters that were redriven.")
_updated = Counter("duly_updated_total", "Tasks that were changed before they ran.")
_purged = Counter("duly_purged_total", "Finished tasks that were deleted because somebody asked for it.")
_groups = Histogram("duly_schedule_group_size", "Tasks written in one statement.", buckets=SIZES)


def serving(address: str) -> None:
    """The Frontend answers from now on."""
    log.info("frontend serves", address=address)


def scheduled(taken: int, refused: int) -> None:
    """So many tasks of one call are there, and so many are not."""
    _taken.inc(taken)
    _refused.inc(refused)


def redriven(count: int) -> None:
    """So many dead letters run again."""
    _redriven.inc(count)


def updated(count: int) -> None:
    """So many pending tasks were changed."""
    _updated.inc(count)


def purged(count: int) -> None:
    """So many finished tasks were deleted."""
    if count:
        _purged.inc(count)
        log.info("tasks purged", count=count)


def sessions_unblocked(count: int) -> None:
    """So many blocked sessions go on."""
    _unblocked.inc(count)


def group_written(size: int) -> None:
    """One statement carried so many tasks."""
    _groups.observe(size)


def lambdas_registered(names: list[str], owner: str) -> None:
    """A host declared its lambdas."""
    log.info("lambdas registered", lambdas=names, owner=owner)


def lambdas_replaced(warnings: Mapping[str, str]) -> None:
    """Declarations were replaced that probably were to stay; a warning by lambda."""
    for name, warning in sorted(warnings.items()):
        log.warning("lambda declaration replaced", **{"lambda": name}, problem=warning)


def settings_set(values: Mapping[str, str]) -> None:
    """An operator set these."""
    log.info("settings changed", settings=dict(values))


def settings_reset(names: Sequence[str]) -> None:
    """An operator reset these."""
    log.info("settings reset", settings=list(names))
