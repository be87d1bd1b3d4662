"""The figures of the charts of a day: what the script of a page asks for, of one lambda or of all."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import JSONResponse, Response

from duly_console.errors import PageError
from duly_console.page import Page
from duly_wire.time_conversion import to_datetime, to_timedelta, to_timestamp
from duly_wire.v1 import inspection_pb2

RANGES = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
"""What a chart shows, by its name in the address."""
LIVE = "live"
"""What happens now: the plots of the overview."""
_DEFAULT = "1h"
_KINDS = {
    inspection_pb2.TREND_MARK_KIND_GATE: "gate",
    inspection_pb2.TREND_MARK_KIND_BREAKER: "breaker",
    inspection_pb2.TREND_MARK_KIND_SETTING: "setting",
    inspection_pb2.TREND_MARK_KIND_RESOURCE: "resource",
    inspection_pb2.TREND_MARK_KIND_VERSION: "version",
    inspection_pb2.TREND_MARK_KIND_POOL: "pool",
    inspection_pb2.TREND_MARK_KIND_OBJECTIVE: "objective",
}


def range_of(page: Page, *others: str) -> str:
    """Return the name of the range that the address asks for: of RANGES, or one of `others`.

    Raises:
        PageError: there is no such range.
    """
    wanted = page.asked("range") or _DEFAULT
    known = (*others, *RANGES)
    if wanted not in known:
        raise PageError(400, f"There is no range {wanted[:20]!r}: use one of {', '.join(known)}.")
    return wanted


async def figures(page: Page) -> Response:
    """Answer the points and the marks, by column, in seconds since 1970."""
    length = RANGES[range_of(page)]
    until = datetime.now(UTC)
    request = inspection_pb2.GetTrendsRequest(since=to_timestamp(until - length), until=to_timestamp(until))
    setattr(request, "lambda", page.asked("lambda"))
    answer: inspection_pb2.GetTrendsResponse = await page.call(page.stubs.inspection.GetTrends, request)
    # a week of hours, or a day of minutes: other pages have their turn meanwhile
    return JSONResponse(await asyncio.to_thread(_told, answer, until, length))


def _told(answer: inspection_pb2.GetTrendsResponse, until: datetime, length: timedelta) -> dict[str, Any]:
    step = to_timedelta(answer.step).total_seconds()
    minutes = step / 60
    rows = [_row(each, minutes) for each in answer.points]
    return {
        "at": to_datetime(answer.at).timestamp(),
        "since": (until - length).timestamp(),
        "until": until.timestamp(),
        "step": step,
        "objective": answer.objective * 100,
        "on_time_within": to_timedelta(answer.on_time_within).total_seconds(),
        "points": rows,
        "marks": [
            {
                "at": to_datetime(each.at).timestamp(),
                "kind": _KINDS.get(each.kind, "change"),
                "text": each.text,
                "by": each.principal,
            }
            for each in answer.marks
        ],
    }


def _row(point: inspection_pb2.TrendPoint, minutes: float) -> dict[str, float | None]:
    def seconds(name: str) -> float | None:
        return to_timedelta(getattr(point, name)).total_seconds() if point.HasField(name) else None  # type: ignore[arg-type]

    return {
        "at": to_datetime(point.at).timestamp(),
        "scheduled": point.scheduled / minutes if point.measured else None,
        "started": point.started / minutes,
        "ended": point.ended / minutes,
        "failed": point.failed_runs / minutes,
        "dead": point.dead if point.measured else None,
        "median": seconds("median_lateness"),
        "p95": seconds("p95_lateness"),
        "on_time": 100 * point.started_on_time / point.started if point.started else None,
        "ready": point.ready if point.measured else None,
        "held": point.held if point.measured else None,
        "slots": point.slots if point.measured else None,
        "oldest": seconds("oldest_ready"),
    }
