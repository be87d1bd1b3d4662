"""The incident board: what is wrong now, and the changes that only the board offers."""

import json
from urllib.parse import quote_plus

import grpc
from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.formatting import counted
from duly_console.page import Page, check
from duly_wire.v1 import frontend_pb2, problems_pb2, sessions_pb2

_MOST_KILLED = 100
_SESSIONS_NAMED = 5
_MOST_SEEN_BYTES = 48 * 1024
"""Of the sessions in a form, as browsers send them: the guard refuses forms of 64 KiB."""


async def problems_of(
    page: Page, *, lambda_name: str = "", host: str = ""
) -> problems_pb2.ListProblemsResponse | None:
    """Return what hits a lambda, or is about a host; None: the Frontend does not say, and the page goes without."""
    request = problems_pb2.ListProblemsRequest(host=host)
    setattr(request, "lambda", lambda_name)
    try:
        answer: problems_pb2.ListProblemsResponse = await page.call(page.stubs.problems.ListProblems, request)
    except grpc.aio.AioRpcError:
        return None
    return answer


async def kill(page: Page) -> Response:
    """Kill the tasks that cause a problem, such as those that hold the slots: count first, then ask, then do it."""
    back = page.back("/")
    if not page.is_confirmed:
        problem = await _read(page, problems_pb2.PROBLEM_ACTION_KIND_CANCEL_TASKS)
        if problem is None or not problem.tasks:
            return page.redirect(back, "This is not a problem any more: nothing was killed.")
        number = counted(len(problem.tasks), "task")
        text = (
            f"{problem.text}. {number} of {problem.subject} "
            f"{'is' if len(problem.tasks) == 1 else 'are'} cancelled, and not run again. Each callback is interrupted with "
            "its next heartbeat. If it goes on, its process is killed. Other callbacks in that process get a short time to "
            "end; then they run again, uncharged."
        )
        seen = " ".join(each.task_id for each in problem.tasks)
        return page.confirm(f"Kill {number}?", text, f"Kill {number}", back, ids=seen, back=back)
    ids = page.form.get("ids", "").split()
    if not 1 <= len(ids) <= _MOST_KILLED:
        raise PageError(400, "The form is not valid. Load the page again.")
    request = frontend_pb2.CancelTaskRequest(task_ids=ids, kill=True)
    answer: frontend_pb2.CancelTaskResponse = await page.call(page.stubs.frontend.CancelTask, request)
    refused = [each.error for each in answer.results if each.error.code]
    if len(refused) == len(ids):
        check(refused[0])
    told = f"{counted(len(ids) - len(refused), 'task ends', 'tasks end')} with the next heartbeat, or ended before."
    if refused:
        told += f" {counted(len(refused), 'was', 'were')} not killed: {refused[0].message}."
    return page.redirect(back, told)


async def unblock(page: Page) -> Response:
    """Unblock the sessions of a problem: count first, then ask, then do it."""
    back = page.back("/")
    if not page.is_confirmed:
        problem = await _read(page, problems_pb2.PROBLEM_ACTION_KIND_UNBLOCK_SESSIONS)
        if problem is None or not problem.sessions:
            return page.redirect(back, "This is not a problem any more: nothing was unblocked.")
        pairs = _that_fit([[each.key, each.blocked_by_task_id] for each in problem.sessions])
        number = counted(len(pairs), "session")
        named = ", ".join(repr(key) for key, _ in pairs[:_SESSIONS_NAMED])
        more = len(pairs) - _SESSIONS_NAMED
        text = (
            f"The next task of {'this session runs' if len(pairs) == 1 else 'each session runs'}: {named}"
            f"{f' and {more} more' if more > 0 else ''}. The failed tasks stay dead letters. To run them again before those that "
            "wait, go back, and redrive them."
        )
        if left := len(problem.sessions) - len(pairs):
            text += f" {counted(left, 'other session stays', 'other sessions stay')} blocked: a form does not hold more."
        seen = _as_json(pairs)
        namespace = problem.sessions[0].namespace
        return page.confirm(
            f"Unblock {number}?", text, f"Unblock {number}", back, seen=seen, namespace=namespace, back=back
        )
    keys, blockers = _seen(page.form.get("seen", ""))
    request = sessions_pb2.UnblockSessionRequest(
        keys=keys, blocked_by_task_ids=blockers, namespace=page.form.get("namespace", "")
    )
    answer: sessions_pb2.UnblockSessionResponse = await page.call(page.stubs.sessions.UnblockSession, request)
    refused = [each.error for each in answer.results if each.error.code]
    if len(refused) == len(keys):
        check(refused[0])
    told = f"{counted(len(keys) - len(refused), 'session is', 'sessions are')} unblocked."
    if refused:
        told += f" {counted(len(refused), 'is', 'are')} not: {refused[0].message}."
    return page.redirect(back, told)


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _that_fit(pairs: list[list[str]]) -> list[list[str]]:
    """Return the first of these sessions: as many as a form holds. The others stay on the board."""
    size = 0
    for place, pair in enumerate(pairs):
        size += len(quote_plus(f"{_as_json(pair)}, "))
        if size > _MOST_SEEN_BYTES:
            return pairs[:place]
    return pairs


def _seen(text: str) -> tuple[list[str], list[str]]:
    """Read the sessions that the person saw, and what blocked each then."""
    try:
        pairs = json.loads(text)
        keys, blockers = [key for key, _ in pairs], [blocker for _, blocker in pairs]
    except (ValueError, TypeError, RecursionError):
        keys, blockers = [], []
    if not keys or not all(isinstance(each, str) and each for each in (*keys, *blockers)):
        raise PageError(400, "The form is not valid. Load the page again.")
    return keys, blockers


async def _read(
    page: Page, action: "problems_pb2.ProblemActionKind.ValueType"
) -> problems_pb2.Problem | None:
    """Return the problem that the form names, if this still ends it."""
    answer: problems_pb2.ListProblemsResponse = await page.call(
        page.stubs.problems.ListProblems, problems_pb2.ListProblemsRequest()
    )
    named = page.form.get("fingerprint", "")
    found = next((each for each in answer.problems if each.fingerprint == named), None)
    return found if found is not None and found.action.kind == action else None
