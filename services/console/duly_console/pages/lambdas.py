"""Lambdas: the list, and one with its policy, versions and backlog; its version in force and its owner are changed here."""

import asyncio

from starlette.responses import Response

from duly_console.errors import PageError
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.rendering import query
from duly_wire.v1 import limits_pb2, registry_pb2


async def show_list(page: Page) -> Response:
    """List lambdas by name, each with its backlog."""
    part = page.asked("name")
    request = registry_pb2.ListLambdasRequest(
        name_part=part, page_size=PAGE_SIZE, page_token=page.asked("page")
    )
    answer: registry_pb2.ListLambdasResponse = await page.call(page.stubs.registry.ListLambdas, request)
    backlog = await read_backlog(page, [each.lambda_.name for each in map(_Row, answer.lambdas)])
    return page.render(
        "lambdas.html",
        lambdas=[(each, backlog.get(each.lambda_.name)) for each in map(_Row, answer.lambdas)],
        part=part,
        first=query("/lambdas", name=part) if page.asked("page") else "",
        next=query("/lambdas", name=part, page=answer.next_page_token) if answer.next_page_token else "",
    )


class _Row:
    """A registered lambda, with a name for the field that Python keeps for itself."""

    def __init__(self, registered: registry_pb2.RegisteredLambda) -> None:
        self.lambda_: registry_pb2.Lambda = getattr(registered, "lambda")
        self.registered = registered


async def read_backlog(page: Page, names: list[str]) -> dict[str, limits_pb2.LambdaBacklog]:
    """Return the backlogs of at most a hundred lambdas, by name."""
    if not names:
        return {}
    request = limits_pb2.GetBacklogRequest(lambdas=names)
    answer: limits_pb2.GetBacklogResponse = await page.call(page.stubs.limits.GetBacklog, request)
    return {getattr(each, "lambda"): each for each in answer.lambdas}


async def show(page: Page) -> Response:
    """Show one lambda."""
    name = page.request.path_params["name"]
    request = registry_pb2.GetLambdaRequest(name=name)
    backlogs: dict[str, limits_pb2.LambdaBacklog]
    detail: registry_pb2.GetLambdaResponse
    detail, backlogs = await asyncio.gather(
        page.call(page.stubs.registry.GetLambda, request), read_backlog(page, [name])
    )
    check(detail.error)
    in_force = _Row(detail.in_force) if detail.HasField("in_force") else None
    return page.render(
        "lambda.html",
        name=name,
        detail=detail,
        in_force=in_force,
        policy=in_force and in_force.lambda_,
        backlog=backlogs.get(name),
        can_change=page.viewer.may("REGISTER", name) or page.viewer.may("OPERATE", name),
        can_transfer=page.viewer.may("OPERATE", name),
    )


async def change(page: Page) -> Response:
    """Put another version in force, or give the lambda to another owner."""
    name = page.request.path_params["name"]
    back = f"/lambdas/{name}"
    request = registry_pb2.UpdateLambdaRequest(name=name)
    if revision := page.form.get("revision"):
        request.expected_revision = _whole(revision)
    if "version" in page.form:
        request.version = page.form["version"]
        title, button = "Put this version in force?", "Put in force"
        text = f"The policy of version {request.version!r} of {name} takes effect at once. Later versions no longer take effect."
    else:
        request.owner = page.form.get("owner", "").strip()
        title, button = "Give it to another owner?", "Transfer"
        text = f"{name} belongs to {request.owner!r} from now on. Workers that declare another owner are refused."
    if not page.is_confirmed:
        return page.confirm(title, text, button, back, **page.form)
    answer: registry_pb2.UpdateLambdaResponse = await page.call(page.stubs.registry.UpdateLambda, request)
    check(answer.error)
    return page.redirect(back, f"{name} was changed.")


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise PageError(400, "The form is not valid. Load the page again.")
    return int(text)
