"""Lambdas: the list, and one with all that bears on its tasks; it is paused, rolled back and given away here."""

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from duly_console.board import CARDS_SHOWN, cards_of, gates_on
from duly_console.causes import Group, grouped
from duly_console.errors import PageError
from duly_console.formatting import counted
from duly_console.page import PAGE_SIZE, Page, check
from duly_console.pages import trends
from duly_console.pages.gates import hits_text, read_duration, until_text
from duly_console.pages.problems import problems_of
from duly_console.pages.tasks import LIVE
from duly_console.rendering import query
from duly_core.lambdas.names import DEFAULT_NAMESPACE, base_name, namespace_of
from duly_core.lambdas.patterns import covers
from duly_wire.gate_names import BREAKER, usual_name
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import fleet_pb2, frontend_pb2, gates_pb2, limits_pb2, registry_pb2, task_pb2

_FAILURES_READ = 200
"""The newest tasks of the lambda whose last run failed."""
_CAUSES_SHOWN = 10
_MOST_REMOVED = 100
"""Gates that one call removes."""
_HOSTS_SHOWN = 20
_WAITING_READ = 50
"""The newest tasks that have not ended: what they need is what the lambda uses."""


async def show_list(page: Page) -> Response:
    """List lambdas by name, each with its backlog."""
    part, cell = page.asked("name"), page.asked("cell")
    request = registry_pb2.ListLambdasRequest(
        name_part=part, cell=cell, page_size=PAGE_SIZE, page_token=page.asked("page")
    )
    answer: registry_pb2.ListLambdasResponse = await page.call(page.stubs.registry.ListLambdas, request)
    backlog = await read_backlog(page, [each.lambda_.name for each in map(_Row, answer.lambdas)])
    return page.render(
        "lambdas.html",
        lambdas=[(each, backlog.get(each.lambda_.name)) for each in map(_Row, answer.lambdas)],
        part=part,
        cell=cell,
        cells=answer.cell_names,
        first=query("/lambdas", name=part, cell=cell) if page.asked("page") else "",
        next=query("/lambdas", name=part, cell=cell, page=answer.next_page_token)
        if answer.next_page_token
        else "",
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
    """Show one lambda, with what holds it back, who runs it, and why its tasks failed."""
    name = page.request.path_params["name"]
    request = registry_pb2.GetLambdaRequest(name=name)
    backlogs: dict[str, limits_pb2.LambdaBacklog]
    detail: registry_pb2.GetLambdaResponse
    detail, backlogs, gates, breaker, hosts, failures, resources, problems = await asyncio.gather(
        page.call(page.stubs.registry.GetLambda, request),
        read_backlog(page, [name]),
        _gates(page, name),
        _breaker(page, name),
        _hosts(page, name),
        _failures(page, name),
        _resources(page, name),
        problems_of(page, lambda_name=name),
    )
    check(detail.error)
    names = {each.name for each in gates} if page.viewer.may_everywhere("READ") else None
    cards = cards_of(problems, page.viewer, f"/lambdas/{quote(name)}", names)
    in_force = _Row(detail.in_force) if detail.HasField("in_force") else None
    return page.render(
        "lambda.html",
        name=name,
        detail=detail,
        in_force=in_force,
        policy=in_force and in_force.lambda_,
        backlog=backlogs.get(name),
        gates=[each for each in gates if each.name not in gates_on(cards)],
        cards=cards,
        most_cards=CARDS_SHOWN,
        left_out=problems.left_out if problems else 0,
        pauses=[each.name for each in gates if pauses_all(each, name)],
        breaker=breaker,
        hosts=hosts.hosts,
        more_hosts=bool(hosts.next_page_token),
        causes=failures[:_CAUSES_SHOWN],
        failures_read=_FAILURES_READ,
        resources=resources,
        can_change=page.viewer.may("REGISTER", name) or page.viewer.may("OPERATE", name),
        can_transfer=page.viewer.may("OPERATE", name),
        ranges=trends.RANGES,
        range=trends.range_of(page),
    )


async def _gates(page: Page, name: str) -> list[gates_pb2.Gate]:
    """Return the gates that may hit tasks of a lambda."""
    answer: gates_pb2.ListGatesResponse = await page.call(
        page.stubs.gates.ListGates, gates_pb2.ListGatesRequest()
    )
    return [each for each in answer.gates if covers(getattr(each.scope, "lambda"), name)]


async def _breaker(page: Page, name: str) -> gates_pb2.Breaker | None:
    answer: gates_pb2.ListBreakersResponse = await page.call(
        page.stubs.gates.ListBreakers, gates_pb2.ListBreakersRequest()
    )
    return next((each for each in answer.breakers if getattr(each, "lambda") == base_name(name)), None)


async def _hosts(page: Page, name: str) -> fleet_pb2.ListHostsResponse:
    states = [fleet_pb2.HOST_STATE_ALIVE, fleet_pb2.HOST_STATE_DRAINING, fleet_pb2.HOST_STATE_SILENT]
    request = fleet_pb2.ListHostsRequest(states=states, page_size=_HOSTS_SHOWN)
    setattr(request, "lambda", name)
    return await page.call(page.stubs.fleet.ListHosts, request)


async def _failures(page: Page, name: str) -> Sequence[Group]:
    """Return why the newest tasks failed that are dead letters, or wait for another attempt; the last failure first."""
    request = frontend_pb2.ListTasksRequest(
        statuses=[task_pb2.TASK_STATUS_FATAL_FAILURE, task_pb2.TASK_STATUS_RETRIABLE_FAILURE],
        page_size=_FAILURES_READ,
    )
    setattr(request, "lambda", name)
    answer: frontend_pb2.ListTasksResponse = await page.call(page.stubs.frontend.ListTasks, request)
    groups = grouped(task for task in answer.tasks if task.HasField("last_failure"))
    return sorted(groups, key=lambda group: group.last_failed_at.ToNanoseconds(), reverse=True)


async def _resources(page: Page, name: str) -> list[limits_pb2.Resource]:
    """Return the quotas of a lambda and its namespace, and the resources that its newest live tasks need."""
    lambda_name = base_name(name)
    namespace = namespace_of(lambda_name) or DEFAULT_NAMESPACE
    live = frontend_pb2.ListTasksRequest(statuses=LIVE, page_size=_WAITING_READ)
    setattr(live, "lambda", name)
    tasks: frontend_pb2.ListTasksResponse
    declared: list[limits_pb2.Resource]
    tasks, declared = await asyncio.gather(
        page.call(page.stubs.frontend.ListTasks, live), _declared_resources(page)
    )
    needed = {need.name for task in tasks.tasks for need in task.resources}
    needed |= {f"{kind}:{lambda_name}" for kind in ("lambda", "schedule")}
    needed |= {f"{kind}:{namespace}" for kind in ("namespace", "schedule-namespace")}
    return [each for each in declared if each.limit.name in needed]


async def _declared_resources(page: Page) -> list[limits_pb2.Resource]:
    found: list[limits_pb2.Resource] = []
    request = limits_pb2.ListResourcesRequest(page_size=1_000)
    while True:
        answer: limits_pb2.ListResourcesResponse = await page.call(page.stubs.limits.ListResources, request)
        found += answer.resources
        request.page_token = answer.next_page_token
        if not request.page_token:
            return found


def pauses_all(gate: gates_pb2.Gate, name: str) -> bool:
    """Whether a gate pauses all tasks of just this lambda, and no breaker set it."""
    scope = gate.scope
    is_part = scope.collection or scope.priority or scope.session
    is_pause = gate.kind == gates_pb2.GATE_KIND_PAUSE and not gate.name.startswith(BREAKER)
    return bool(is_pause and getattr(scope, "lambda") == name and not is_part)


async def _check_free(page: Page, gate_name: str, name: str) -> None:
    """Refuse to turn a gate that does something else into the pause of this lambda: what it holds would become due.

    Raises:
        PageError: there is such a gate.
    """
    answer: gates_pb2.ListGatesResponse = await page.call(
        page.stubs.gates.ListGates, gates_pb2.ListGatesRequest()
    )
    there = next((each for each in answer.gates if each.name == gate_name), None)
    if there is not None and not pauses_all(there, name):
        hit = getattr(there.scope, "lambda")
        raise PageError(
            409,
            f"The gate {gate_name} is there already, and does something else: it is on {hit}, or a part of it. "
            f"Pause {name} by a gate of another name, on the page of gates.",
        )


async def pause(page: Page) -> Response:
    """Pause a lambda by a gate, which `duly pause` calls the same; before, count what it would hit."""
    name = page.request.path_params["name"]
    back = f"/lambdas/{name}"
    reason = page.form.get("reason", "").strip()
    gate = gates_pb2.Gate(
        name=usual_name("pause", name),
        kind=gates_pb2.GATE_KIND_PAUSE,
        scope=gates_pb2.GateScope(**{"lambda": name}),
        reason=reason,
    )
    request = gates_pb2.PutGateRequest(gate=gate)
    request.update_mask.paths.extend(("kind", "scope.lambda", *(("reason",) if reason else ())))
    if duration := page.form.get("duration", "").strip():
        request.duration.CopyFrom(to_duration(read_duration(duration)))
    await _check_free(page, gate.name, name)
    if not page.is_confirmed:
        request.dry_run = True
        would: gates_pb2.PutGateResponse = await page.call(page.stubs.gates.PutGate, request)
        until = until_text(would.gate, duration, "until somebody resumes it")
        is_changed = (
            "" if would.created else f"Gate {gate.name} is there already, and what you do not change stays. "
        )
        text = (
            f"{is_changed}Tasks of {name} that nobody runs yet wait {until}. It would hit now: {hits_text(would)}. "
            "Callbacks that run are not touched."
        )
        return page.confirm("Pause this lambda?", text, "Pause", back, **page.form)
    await page.call(page.stubs.gates.PutGate, request)
    return page.redirect(back, f"{name} is paused.")


async def resume(page: Page) -> Response:
    """Remove the gates that pause all of a lambda: those that the person has seen, if there are more by then."""
    name = page.request.path_params["name"]
    back = f"/lambdas/{name}"
    gates = await _gates(page, name)
    names = [each.name for each in gates if pauses_all(each, name)][:_MOST_REMOVED]
    if page.is_confirmed:
        seen = page.form.get("gates", "").split()
        names = [each for each in names if each in seen]
    if not names:
        return page.redirect(back, f"No gate pauses all of {name} any more.")
    others = ", ".join(each.name for each in gates if each.name not in names)
    if not page.is_confirmed:
        what = counted(len(names), "gate")
        rest = f" Other gates on its tasks stay: {others}." if others else ""
        text = f"{what} ({', '.join(names)}) will be removed. What only they held is due at once.{rest}"
        return page.confirm("Resume this lambda?", text, "Resume", back, gates=" ".join(names))
    answer: gates_pb2.DeleteGatesResponse = await page.call(
        page.stubs.gates.DeleteGates, gates_pb2.DeleteGatesRequest(names=names)
    )
    for result in answer.results:
        check(result.error)
    told = (
        f"Removed: {', '.join(names)}. Other gates on tasks of {name} stay: {others}."
        if others
        else f"{name} is resumed."
    )
    return page.redirect(back, told)


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
