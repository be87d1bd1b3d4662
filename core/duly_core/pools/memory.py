"""What a plan keeps for the next one, as JSON: another autoscaler may make that. No I/O."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from duly_core.pools.planner import Announced, Memory, Recent
from duly_core.pools.spin_up import SpinUp

_SECOND = timedelta(seconds=1)


def memory_to_json(memory: Memory) -> dict[str, Any]:
    """Return a memory as JSON has it."""
    spin_up = memory.spin_up
    return {
        "planned_at": _text(memory.planned_at),
        "desired": memory.desired,
        "recent": [[each.until.isoformat(), each.workers] for each in memory.recent],
        "used_s": memory.used / _SECOND,
        "spin_ups_s": [each / _SECOND for each in spin_up.samples],
        "asked": [each.isoformat() for each in spin_up.asked],
        "seen_until": _text(spin_up.seen_until),
        "lost": spin_up.lost,
    }


def memory_from_json(found: Mapping[str, Any]) -> Memory:
    """Return a memory; what an older release did not write is as at the start."""
    return Memory(
        _moment(found.get("planned_at")),
        found.get("desired", 0),
        tuple(Recent(datetime.fromisoformat(at), workers) for at, workers in found.get("recent", ())),
        SpinUp(
            tuple(timedelta(seconds=each) for each in found.get("spin_ups_s", ())),
            tuple(datetime.fromisoformat(each) for each in found.get("asked", ())),
            _moment(found.get("seen_until")),
            found.get("lost", 0),
        ),
        timedelta(seconds=found.get("used_s", 0)),
    )


def announced_to_json(announced: Announced | None) -> dict[str, Any] | None:
    """Return what is announced as JSON has it; None: nothing."""
    if announced is None:
        return None
    return {
        "start_at": announced.start_at.isoformat(),
        "workers": announced.workers,
        "reason": announced.reason,
    }


def announced_from_json(found: Mapping[str, Any]) -> Announced:
    """Return what is announced."""
    return Announced(datetime.fromisoformat(found["start_at"]), found["workers"], found["reason"])


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
