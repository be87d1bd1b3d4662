"""The overview: what waits and runs now, and the figures that its plots poll."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import JSONResponse, Response

from duly.v1 import limits_pb2
from duly_console.page import PAGE_SIZE, Page


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of all lambdas that the person may see."""

    ready: int
    held: int
    enqueued: int
    parked: int
    oldest_at: float | None
    """When the oldest due task was due, in seconds since 1970."""

    @classmethod
    def of(cls, backlog: Iterable[limits_pb2.LambdaBacklog]) -> "Totals":
        """Add up."""
        found = list(backlog)
        since = [
            each.ready_since.seconds + each.ready_since.nanos / 1e9
            for each in found
            if each.HasField("ready_since")
        ]
        return cls(
            sum(each.ready for each in found),
            sum(each.held for each in found),
            sum(each.enqueued for each in found),
            sum(each.parked for each in found),
            min(since, default=None),
        )

    @property
    def oldest(self) -> float | None:
        """For how many seconds the oldest due task has waited."""
        return None if self.oldest_at is None else max(0.0, time.time() - self.oldest_at)


async def _backlog(page: Page) -> list[limits_pb2.LambdaBacklog]:
    answer: limits_pb2.GetBacklogResponse = await page.call(
        page.stubs.limits.GetBacklog, limits_pb2.GetBacklogRequest()
    )
    return list(answer.lambdas)


async def show(page: Page) -> Response:
    """Show the totals, and the lambdas with the most due tasks."""
    backlog = await _backlog(page)
    totals = Totals.of(backlog)
    busy = [each for each in backlog if each.ready or each.held or each.parked or each.enqueued]
    busy.sort(key=lambda each: (-each.ready, -each.parked, -each.held))
    return page.render(
        "overview.html",
        totals=totals,
        oldest=None if totals.oldest is None else timedelta(seconds=totals.oldest),
        backlog=busy[:PAGE_SIZE],
    )


async def live(page: Page) -> Response:
    """Answer the plots."""
    totals = Totals.of(await _backlog(page))
    return JSONResponse(
        {"at": time.time(), "ready": totals.ready, "held": totals.held, "oldest": totals.oldest or 0}
    )
