"""Makes one row of those that several cells have of one thing: a host, a resource, a gate. No I/O."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

_MOST_LAMBDAS = 1_000


def instant(moment: Timestamp) -> tuple[int, int]:
    """Return what compares as the moments do."""
    return moment.seconds, moment.nanos


def latest(rows: Iterable[Any], field: str) -> Any:
    """Return the row whose moment in `field` is the latest, the first of several."""
    return max(rows, key=lambda row: instant(getattr(row, field)))


def hosts(rows: Sequence[Any]) -> Any:
    """Return one host: as it reported last, with the lambdas that it serves in each cell."""
    host = deepcopy(latest(rows, "reported_at"))
    if any(row.lambdas for row in rows):
        served = {(each.name, each.lambda_set): each for row in rows for each in row.lambdas}
        del host.lambdas[:]
        host.lambdas.extend(served[key] for key in sorted(served)[:_MOST_LAMBDAS])
    host.lambda_count = max(len(host.lambdas), *(row.lambda_count for row in rows))
    host.cells[:] = cells(rows)
    return host


def cells(rows: Iterable[Any]) -> list[str]:
    """Return the cells of rows of one thing."""
    return sorted({cell for row in rows for cell in row.cells})


def newest_report(rows: Sequence[Any]) -> Any:
    """Return one process of a service: as it reported last, with the cells that it reports to."""
    process = deepcopy(latest(rows, "reported_at"))
    process.cells[:] = cells(rows)
    return process


def resources(rows: Sequence[Any]) -> Any:
    """Return one resource: as it was changed last, with what tasks of all cells use of it. Units hold in each cell."""
    resource = deepcopy(latest(rows, "changed_at"))
    resource.used = sum(row.used for row in rows)
    resource.parked = sum(row.parked for row in rows)
    most = max(len(row.keys) for row in rows)
    used: dict[str, int] = defaultdict(int)
    parked: dict[str, int] = defaultdict(int)
    for row in rows:
        for key in row.keys:
            used[key.key] += key.used
            parked[key.key] += key.parked
    del resource.keys[:]
    for name in sorted(used)[:most]:
        resource.keys.add(key=name, used=used[name], parked=parked[name])
    until = max((row.starts_until for row in rows if row.HasField("starts_until")), key=instant, default=None)
    if until is not None:
        resource.starts_until.CopyFrom(until)
    return resource


def gates(rows: Sequence[Any]) -> Any:
    """Return one gate: as it was set last, with the cells that have it and the tasks that it parks in all of them."""
    gate = deepcopy(latest(rows, "created_at"))
    # a cell that was added, or was away, has a copy: it is in force since the first
    alike = [row for row in rows if _without_times(row) == _without_times(gate)]
    gate.created_at.CopyFrom(min((row.created_at for row in alike), key=instant))
    gate.parked = sum(row.parked for row in rows)
    gate.cells[:] = cells(rows)
    return gate


def _without_times(gate: Any) -> Any:
    """Return what a gate is, without what differs between the cells that have it."""
    same = deepcopy(gate)
    for field in ("created_at", "parked", "cells"):
        same.ClearField(field)
    return same


def calendars(rows: Sequence[Any]) -> Any:
    """Return one calendar, which every cell has: as it was changed last, with the time tables of all cells that name it."""
    state = deepcopy(latest(rows, "updated_at"))
    names = sorted({name for row in rows for name in row.time_tables})
    del state.time_tables[:]
    state.time_tables.extend(names[:100])
    return state


def pools(rows: Sequence[Any]) -> Any:
    """Return one pool: that of the cell whose autoscaler planned last, as operators changed it last."""
    status = deepcopy(max(rows, key=lambda row: (instant(row.plan.planned_at), instant(row.changed_at))))
    newest = latest(rows, "changed_at")
    status.pool.CopyFrom(newest.pool)
    status.changed_at.CopyFrom(newest.changed_at)
    # workers report to each cell whose lambdas they serve: the cell that most of them report to counts them best
    for field in ("alive", "slots", "busy_slots", "starting", "draining"):
        setattr(status, field, max(getattr(row, field) for row in rows))
    return status
