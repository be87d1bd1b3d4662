"""The overview: what waits and runs now, and the figures that its plots poll."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta

from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response

from duly.time_conversion import to_datetime, to_timedelta
from duly.v1 import inspection_pb2, limits_pb2
from duly_console.page import PAGE_SIZE, Page


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of all lambdas that the person may see."""

    ready: int
    held: int
    enqueued: int
    parked: int
    oldest: float
    """For how many seconds the oldest due task has waited; 0: none is due."""

    @classmethod
    def of(cls, backlog: Iterable[limits_pb2.LambdaBacklog]) -> "Totals":
        """Add up."""
        found = list(backlog)
        since = [to_datetime(each.ready_since).timestamp() for each in found if each.HasField("ready_since")]
        return cls(
            sum(each.ready for each in found),
            sum(each.held for each in found),
            sum(each.enqueued for each in found),
            sum(each.parked for each in found),
            max(0.0, time.time() - min(since)) if since else 0.0,
        )


async def _backlog(page: Page) -> list[limits_pb2.LambdaBacklog]:
    answer: limits_pb2.GetBacklogResponse = await page.call(
        page.stubs.limits.GetBacklog, limits_pb2.GetBacklogRequest()
    )
    return list(answer.lambdas)


async def _activity(page: Page) -> inspection_pb2.GetActivityResponse | None:
    """Return the activity of all lambdas; None: the person may not see them all."""
    if not page.viewer.may_everywhere("READ"):
        return None
    return await page.call(page.stubs.inspection.GetActivity, inspection_pb2.GetActivityRequest())


async def show(page: Page) -> Response:
    """Show the totals, and the lambdas with the most due tasks."""
    backlog, activity = await asyncio.gather(_backlog(page), _activity(page))
    totals = Totals.of(backlog)
    busy = [each for each in backlog if each.ready or each.held or each.parked or each.enqueued]
    busy.sort(key=lambda each: (-each.ready, -each.parked, -each.held))
    return page.render(
        "overview.html",
        totals=totals,
        oldest=timedelta(seconds=totals.oldest),
        activity=activity,
        backlog=busy[:PAGE_SIZE],
    )


async def live(page: Page) -> Response:
    """Answer the plots: counters, and what is so now."""
    backlog, activity = await asyncio.gather(_backlog(page), _activity(page))
    told: dict[str, float | None] = {"at": time.time(), **asdict(Totals.of(backlog))}
    if activity is not None:
        told |= {
            "at": to_datetime(activity.at).timestamp(),
            "scheduled": activity.scheduled,
            "ended": activity.ended,
            "median_lateness": _seconds(activity, "median_lateness"),
            "p99_lateness": _seconds(activity, "p99_lateness"),
        }
    return JSONResponse(told)


def _seconds(message: Message, name: str) -> float | None:
    return to_timedelta(getattr(message, name)).total_seconds() if message.HasField(name) else None
