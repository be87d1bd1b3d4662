"""The audit log: who changed what, who looked at payloads, and who was refused."""

from starlette.responses import Response

from duly_console.page import PAGE_SIZE, Page
from duly_console.pages.tasks import instant
from duly_console.rendering import query
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import access_pb2


async def show_list(page: Page) -> Response:
    """List events, the newest first."""
    said = {name: page.asked(name) for name in ("actor", "method", "mentions", "since", "refused")}
    request = access_pb2.ListAuditEventsRequest(
        actor=said["actor"],
        method=said["method"],
        mentions=said["mentions"],
        refused=bool(said["refused"]),
        page_size=PAGE_SIZE,
        page_token=page.asked("page"),
    )
    if said["since"]:
        request.since.CopyFrom(to_timestamp(instant(said["since"])))
    answer: access_pb2.ListAuditEventsResponse = await page.call(page.stubs.access.ListAuditEvents, request)
    return page.render(
        "audit.html",
        events=answer.events,
        wanted=said,
        is_filtered=any(said.values()),
        first=query("/audit", **said) if page.asked("page") else "",
        next=query("/audit", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )
