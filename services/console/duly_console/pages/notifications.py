"""Targets of notifications: who is told of problems, and whether messages arrive; operators send a test."""

import grpc
from starlette.responses import Response

from duly_console.page import Page, check
from duly_wire.time_conversion import to_timedelta
from duly_wire.v1 import problems_pb2

_PATH = "/notifications"
_PATIENCE = 0.9
"""Of the page's time: the rest is for the page that says that a target takes longer."""


async def show_list(page: Page) -> Response:
    """List the targets that the Frontend has in its settings, without addresses and secrets."""
    answer: problems_pb2.ListNotificationTargetsResponse = await page.call(
        page.stubs.problems.ListNotificationTargets, problems_pb2.ListNotificationTargetsRequest()
    )
    return page.render(
        "notifications.html", targets=answer.targets, can_test=page.viewer.may_everywhere("OPERATE")
    )


async def send_test(page: Page) -> Response:
    """Send a test to a target, and tell what came of it."""
    name = page.form.get("name", "").strip()
    if not page.is_confirmed:
        text = f"{name} gets a message that says that it is a test. The audit log has who sent it. A test that arrives sends a waiting message at once."
        return page.confirm(f"Send a test to {name}?", text, "Send a test", _PATH, name=name)
    calls = page.calls.within(page.timeout * _PATIENCE)
    try:
        answer: problems_pb2.TestNotificationTargetsResponse = await calls(
            page.stubs.problems.TestNotificationTargets,
            problems_pb2.TestNotificationTargetsRequest(names=[name]),
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        told = f"{name} did not answer within {calls.timeout:g} s. This command waits longer: duly notifications test {name}"
        return page.redirect(_PATH, told)
    (result,) = answer.results
    check(result.error)
    took = f"{to_timedelta(result.took).total_seconds():.1f} s"
    told = f"did not arrive ({took}): {result.failure}" if result.failure else f"arrived ({took})"
    return page.redirect(_PATH, f"The test of {name} {told}")
