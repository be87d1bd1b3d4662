"""The incident board: what is wrong now, and the change that only the board offers."""

import grpc
from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.formatting import counted
from duly_console.page import Page, check
from duly_wire.v1 import frontend_pb2, problems_pb2

_MOST_KILLED = 100


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
        problem = await _read(page)
        if problem is None:
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


async def _read(page: Page) -> problems_pb2.Problem | None:
    """Return the problem that the form names, if it still has tasks to kill."""
    answer: problems_pb2.ListProblemsResponse = await page.call(
        page.stubs.problems.ListProblems, problems_pb2.ListProblemsRequest()
    )
    named = page.form.get("fingerprint", "")
    found = next((each for each in answer.problems if each.fingerprint == named), None)
    is_kill = found is not None and found.action.kind == problems_pb2.PROBLEM_ACTION_KIND_CANCEL_TASKS
    return found if is_kill and found is not None and found.tasks else None
