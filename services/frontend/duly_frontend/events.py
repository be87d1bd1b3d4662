"""What the Frontend counts, and its log."""

from collections.abc import Iterable

import structlog
from prometheus_client import Counter, Histogram

from duly_core.telemetry import SIZES

log = structlog.get_logger()

_scheduled = Counter("duly_scheduled_total", "Tasks in Schedule calls, by verdict.", ["verdict"])
_taken, _refused = _scheduled.labels("taken"), _scheduled.labels("refused")
_graphs = Counter("duly_graphs_scheduled_total", "Graphs in ScheduleGraph calls, by verdict.", ["verdict"])
_graphs_taken, _graphs_refused = _graphs.labels("taken"), _graphs.labels("refused")
_unblocked = Counter("duly_sessions_unblocked_total", "Sessions whose block an operator ended.")
_redriven = Counter("duly_redriven_total", "Dead letters that were redriven.")
_updated = Counter("duly_updated_total", "Tasks that were changed before they ran.")
_purged = Counter("duly_purged_total", "Finished tasks that were deleted because somebody asked for it.")
_resources_changed = Counter(
    "duly_resources_changed_total", "Resources that operators declared, changed or removed."
)
_groups = Histogram("duly_schedule_group_size", "Tasks written in one statement.", buckets=SIZES)


def scheduled(taken: int, refused: int) -> None:
    """So many tasks of one call are there, and so many are not."""
    _taken.inc(taken)
    _refused.inc(refused)


def graph_scheduled(nodes: int) -> None:
    """A graph of so many tasks is there."""
    _graphs_taken.inc()
    _taken.inc(nodes)


def graph_refused() -> None:
    """A graph was not written."""
    _graphs_refused.inc()


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


def resource_put(name: str, capacity: int) -> None:
    """An operator declared or changed a resource."""
    _resources_changed.inc()
    log.info("resource declared", resource=name, capacity=capacity)


def resource_deleted(name: str) -> None:
    """An operator removed a resource."""
    _resources_changed.inc()
    log.info("resource removed", resource=name)


def group_written(size: int) -> None:
    """One statement carried so many tasks."""
    _groups.observe(size)


def time_table_put(name: str, verdict: str) -> None:
    """A time table was created or changed, or was so already."""
    log.info("time table defined", time_table=name, verdict=verdict)


def time_tables_changed(change: str, names: Iterable[str]) -> None:
    """Somebody deleted, paused or resumed these."""
    log.info("time tables changed", change=change, time_tables=sorted(names))


def time_table_backfilled(name: str, created: int) -> None:
    """So many past ticks of a time table have tasks now."""
    log.info("time table backfilled", time_table=name, created=created)
