"""Sessions: those that have live tasks or are blocked; unblock."""

from starlette.responses import Response

from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_core.lambdas.names import DEFAULT_NAMESPACE
from duly_wire.v1 import sessions_pb2

_WAITING_SHOWN = 50


async def show_list(page: Page) -> Response:
    """List sessions by namespace and key."""
    only_blocked, namespace = bool(page.asked("blocked")), page.asked("namespace")
    cell = page.asked("cell")
    if not namespace and not page.viewer.may_everywhere(
        "READ"
    ):  # who may not list all sees the first of the own
        namespace = next(iter(page.viewer.namespaces("READ")), "")
    request = sessions_pb2.ListSessionsRequest(
        namespace=_read(namespace) if namespace else None,
        blocked=only_blocked,
        cell=cell,
        page_size=PAGE_SIZE,
        page_token=page.asked("page"),
    )
    answer: sessions_pb2.ListSessionsResponse = await page.call(page.stubs.sessions.ListSessions, request)
    said = {"blocked": "1" if only_blocked else "", "namespace": namespace, "cell": cell}
    return page.render(
        "sessions.html",
        sessions=answer.sessions,
        only_blocked=only_blocked,
        namespace=namespace,
        cell=cell,
        cells=answer.cell_names,
        first=query("/sessions", **said) if page.asked("page") else "",
        next=query("/sessions", **said, page=answer.next_page_token) if answer.next_page_token else "",
    )


async def show(page: Page) -> Response:
    """Show a session, with the tasks that stand first in it."""
    request = sessions_pb2.GetSessionRequest(
        keys=[page.asked("key")], namespace=_read(page.asked("namespace")), max_tasks=_WAITING_SHOWN
    )
    answer: sessions_pb2.GetSessionResponse = await page.call(page.stubs.sessions.GetSession, request)
    (result,) = answer.results
    check(result.error)
    return page.render(
        "session.html",
        session=result.session,
        waiting=result.waiting_task_ids,
        can_unblock=page.viewer.may_somewhere("REDRIVE"),
    )


async def unblock(page: Page) -> Response:
    """End the block of a session."""
    key, blocker = page.form.get("key", ""), page.form.get("blocker", "")
    namespace = page.form.get("namespace", "")
    back = query("/sessions/session", namespace=namespace, key=key)
    if not page.is_confirmed:
        text = f"The next task of session {key!r} runs. Task {blocker} stays a dead letter."
        return page.confirm(
            "Unblock this session?", text, "Unblock", back, namespace=namespace, key=key, blocker=blocker
        )
    request = sessions_pb2.UnblockSessionRequest(
        keys=[key], namespace=_read(namespace), blocked_by_task_ids=[blocker]
    )
    answer: sessions_pb2.UnblockSessionResponse = await page.call(page.stubs.sessions.UnblockSession, request)
    check(answer.results[0].error)
    return page.redirect("/sessions", f"Session {key[:100]!r} is unblocked.")


def _read(namespace: str) -> str:
    """Return what the wire has for a namespace as people write it."""
    return "" if namespace == DEFAULT_NAMESPACE else namespace
