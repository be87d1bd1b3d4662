"""A history as a file: kept with a run that was wrong, and judged again by `python -m tests.chaos.checker FILE`."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from tests.chaos.history import (
    AckedTask,
    AddressUse,
    Change,
    EdgeRow,
    EventRow,
    Execution,
    Fault,
    FileLeft,
    FileRead,
    FileSent,
    FileUse,
    FinalRow,
    GraphRow,
    History,
    Leftover,
    Limits,
    NodeRow,
    PassedOver,
    Sample,
    Seen,
    SessionRow,
    StaleWrite,
    TickRow,
    TimeTableRow,
    Told,
    Transition,
    UseRow,
    WatchStretch,
)

_RECORDS: Mapping[str, type[Any]] = {
    "acked": AckedTask,
    "executions": Execution,
    "transitions": Transition,
    "final": FinalRow,
    "sessions": SessionRow,
    "changes": Change,
    "graphs": GraphRow,
    "nodes": NodeRow,
    "edges": EdgeRow,
    "time_tables": TimeTableRow,
    "ticks": TickRow,
    "uses": UseRow,
    "passed_over": PassedOver,
    "faults": Fault,
    "seen": Seen,
    "samples": Sample,
    "stale_writes": StaleWrite,
    "leftovers": Leftover,
    "file_reads": FileRead,
    "files_sent": FileSent,
    "file_uses": FileUse,
    "files_left": FileLeft,
    "watches": WatchStretch,
    "told": Told,
    "address_uses": AddressUse,
    "events": EventRow,
}


def dump(history: History, path: Path) -> None:
    """Write it as JSON; a record a line, so that grep finds one."""
    lines = []
    for field in fields(history):
        value = getattr(history, field.name)
        if field.name in _RECORDS:
            records = ",\n".join(json.dumps(_plain(record)) for record in value)
            lines.append(f"{json.dumps(field.name)}: [\n{records}\n]")
        else:
            plain = _plain(value) if isinstance(value, Limits) else value
            lines.append(f"{json.dumps(field.name)}: {json.dumps(plain, default=dict)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def load(path: Path) -> History:
    """Read what `dump` wrote."""
    read = json.loads(path.read_text(encoding="utf-8"))
    records = {
        name: tuple(_record(kind, one) for one in read.get(name, ())) for name, kind in _RECORDS.items()
    }
    limits = _record(Limits, read["limits"] | {"paces": _pairs(read["limits"])})
    moves = tuple((before, after) for before, after in read["clock_moves"])
    return History(
        **read
        | records
        | {"limits": limits, "unreadable": tuple(read["unreadable"])}
        | {"clock_moves": moves}
    )


def _pairs(limits: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (pace, burst) for name, (pace, burst) in limits.get("paces", {}).items()}


def _plain(record: Any) -> dict[str, Any]:
    """Without what is as it is by default."""
    plain = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.default is MISSING or value != field.default:
            plain[field.name] = sorted(value) if isinstance(value, frozenset) else value
    return json.loads(json.dumps(plain, default=dict))


def _record(kind: type[Any], plain: dict[str, Any]) -> Any:
    legal = {"legal": frozenset(plain["legal"])} if "legal" in plain else {}
    tuples = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return kind(**plain | tuples | legal)
