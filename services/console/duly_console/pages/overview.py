"""The overview: what waits and runs now, and the figures that its plots poll."""

import asyncio
import time
from dataclasses import asdict, dataclass
from datetime import timedelta

import grpc
from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response

from duly_console.board import CARDS_SHOWN, age_of, cards_of, gates_on, is_store_away
from duly_console.page import Page
from duly_console.pages import trends
from duly_wire.time_conversion import to_datetime, to_timedelta
from duly_wire.v1 import fleet_pb2, gates_pb2, inspection_pb2, problems_pb2

_COUNTED = 1_000
"""Queues of which the totals are the sums: those with the most due tasks."""
_QUEUES_SHOWN = 20
_GATES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of the queues with the most due tasks, of the lambdas that the person may see."""

    ready: int
    held: int
    enqueued: int
    waiting: int
    oldest: float
    """For how many seconds the oldest due task has waited; 0: none is due."""
    is_estimated: bool
    """Some of the numbers are estimates, or there are more queues."""

    @classmethod
    def of(cls, answer: fleet_pb2.ListQueuesResponse) -> "Totals":
        """Add up."""
        queues = answer.queues
        now = to_datetime(answer.counted_at).timestamp()
        since = [
            to_datetime(each.oldest_ready_at).timestamp()
            for each in queues
            if each.HasField("oldest_ready_at")
        ]
        counts = [
            count
            for each in queues
            for count in (each.ready, each.claimed, each.processing, each.enqueued, each.waiting)
        ]
        return cls(
            sum(each.ready.count for each in queues),
            sum(each.claimed.count + each.processing.count for each in queues),
            sum(each.enqueued.count for each in queues),
            sum(each.waiting.count for each in queues),
            max(0.0, now - min(since)) if since else 0.0,
            bool(answer.next_page_token) or any(count.estimated for count in counts),
        )


async def _queues(page: Page) -> fleet_pb2.ListQueuesResponse:
    request = fleet_pb2.ListQueuesRequest(order=fleet_pb2.QUEUE_ORDER_BACKLOG, page_size=_COUNTED)
    return await page.call(page.stubs.fleet.ListQueues, request)


async def _activity(page: Page) -> inspection_pb2.GetActivityResponse | None:
    """Return the activity of all lambdas; None: the person may not see them all."""
    if not page.viewer.may_everywhere("READ"):
        return None
    return await page.call(page.stubs.inspection.GetActivity, inspection_pb2.GetActivityRequest())


async def _problems(page: Page) -> problems_pb2.ListProblemsResponse | None:
    """Return what is wrong; None: the Frontend is of a release without a board.

    Raises:
        grpc.aio.AioRpcError: it does not say. A page without cards would look healthy.
    """
    if page.problems is not None:
        return page.problems
    try:
        answer: problems_pb2.ListProblemsResponse = await page.call(
            page.stubs.problems.ListProblems, problems_pb2.ListProblemsRequest()
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return None
    return answer


async def show(page: Page) -> Response:
    """Show the totals, what is wrong, and the lambdas with the most due tasks.

    Without Postgres a page that is opened shows the board alone. A refresh fails: the page keeps what it shows.
    """
    if not page.is_fragment and is_store_away(page.problems):
        cards = cards_of(page.problems, page.viewer, "/")
        return page.render("overview_away.html", 503, cards=cards, most_cards=CARDS_SHOWN)
    queues, activity, gates, page.problems = await asyncio.gather(
        _queues(page),
        _activity(page),
        page.call(page.stubs.gates.ListGates, gates_pb2.ListGatesRequest()),
        _problems(page),
    )
    totals = Totals.of(queues)
    # gates are read now: a card is some seconds old
    names = {each.name for each in gates.gates} if page.viewer.may_everywhere("READ") else None
    cards = cards_of(page.problems, page.viewer, "/", names)
    with_card = gates_on(cards)
    return page.render(
        "overview.html",
        totals=totals,
        about="~" if totals.is_estimated else "",
        oldest=timedelta(seconds=totals.oldest),
        activity=activity,
        gates=[each for each in gates.gates if each.name not in with_card],
        cards=cards,
        cells=[(each, age_of(each)) for each in page.problems.cells] if page.problems else (),
        most_cards=CARDS_SHOWN,
        left_out=page.problems.left_out if page.problems else 0,
        most_gates=_GATES_SHOWN,
        queues=queues.queues[:_QUEUES_SHOWN],
        total_queues=queues.total_queues,
        ranges=(trends.LIVE, *trends.RANGES),
        range=trends.range_of(page, trends.LIVE),
    )


async def live(page: Page) -> Response:
    """Answer the plots: counters, and what is so now."""
    queues, activity = await asyncio.gather(_queues(page), _activity(page))
    told: dict[str, float | None] = {"at": time.time(), **asdict(Totals.of(queues))}
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
