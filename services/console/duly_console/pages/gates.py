"""Gates: what operators hold back; set one after a count of what it hits, remove one. Breakers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import grpc
from starlette.responses import Response

from duly_console import formatting
from duly_console.errors import PageError
from duly_console.formatting import count, word
from duly_console.frontend_calls import Answer
from duly_console.page import Page, check
from duly_core.config.durations import format_duration, parse_duration
from duly_wire.gate_names import usual_name
from duly_wire.time_conversion import to_duration, to_timedelta
from duly_wire.v1 import gates_pb2, limits_pb2

_PATHS = {
    "kind": "kind",
    "lambda": "scope.lambda",
    "collection": "scope.collection",
    "priority": "scope.priority",
    "session": "scope.session",
    "delay": "delay",
    "reason": "reason",
}
"""The inputs of the form, and the fields that they change."""
_PART_FOR_COUNTS = 0.25
"""Of the time of a page: the confirmation is to come without a count rather than not at all."""
_UNCOUNTED = "What it holds could not be counted."


async def show_list(page: Page) -> Response:
    """List gates by name, and breakers by lambda: there are a thousand of each at most. A filter by lambda is of the gates only."""
    wanted = {"lambda": page.asked("lambda"), "cell": page.asked("cell")}
    request = gates_pb2.ListGatesRequest(cell=wanted["cell"])
    setattr(request, "lambda", wanted["lambda"])
    gates: gates_pb2.ListGatesResponse
    breakers: gates_pb2.ListBreakersResponse
    gates, breakers = await asyncio.gather(
        page.call(page.stubs.gates.ListGates, request),
        page.call(page.stubs.gates.ListBreakers, gates_pb2.ListBreakersRequest(cell=wanted["cell"])),
    )
    asked = page.asked("gate")
    chosen = next((each for each in gates.gates if asked and each.name == asked), None)
    return page.render(
        "gates.html",
        gates=gates.gates,
        shown=_shown(chosen) if chosen else {},
        has_end=chosen is not None and chosen.HasField("expires_at"),
        breakers=breakers.breakers,
        wanted=wanted,
        cells=gates.cell_names,
        can_change=page.viewer.may_everywhere("OPERATE"),
    )


async def put(page: Page) -> Response:
    """Set a gate, or change what differs from what the form showed of it; before, count what it would hit."""
    request = _request(page)
    if not page.is_confirmed:
        request.dry_run = True
        counted: gates_pb2.PutGateResponse = await page.call(page.stubs.gates.PutGate, request)
        to_be = counted.gate
        until = until_text(to_be, page.form.get("duration", ""), "until somebody removes it")
        described = ", ".join(f"{name} {value}" for name, value in _shown(to_be).items() if value)
        is_changed = "" if counted.created else "It is there already, and what you do not change stays. "
        text = (
            f"{is_changed}Gate {to_be.name} is in force {until}: {described}. It would hit now: {hits_text(counted)}. "
            "Callbacks that run are not touched."
        )
        title = "Set this gate?" if counted.created else "Change this gate?"
        return page.confirm(title, text, "Set the gate", "/gates", **page.form)
    answer: gates_pb2.PutGateResponse = await page.call(page.stubs.gates.PutGate, request)
    return page.redirect("/gates", f"Gate {answer.gate.name} is in force.")


async def remove(page: Page) -> Response:
    """Remove a gate."""
    name = page.form.get("name", "")
    back = page.back("/gates")
    if not page.is_confirmed:
        there: gates_pb2.ListGatesResponse = await page.call(
            page.stubs.gates.ListGates, gates_pb2.ListGatesRequest()
        )
        gate = next((each for each in there.gates if each.name == name), None)
        if gate is None:
            return page.redirect(back, f"No gate {name[:100]!r} is in force any more.")
        # what a pause of the same tasks would hit is what it holds. Asked by its name, the Frontend would refuse the gate of a
        # breaker, and a kind that it does not know.
        same = gates_pb2.Gate(kind=gates_pb2.GATE_KIND_PAUSE, scope=gate.scope)
        held: gates_pb2.PutGateResponse | None = await _counted(
            page, page.stubs.gates.PutGate, gates_pb2.PutGateRequest(gate=same, dry_run=True)
        )
        hits = f"Gate {name} hits now: {hits_text(held)}. " if held is not None else f"{_UNCOUNTED} "
        text = f"{hits}Tasks whose time has come are due at once."
        return page.confirm("Remove this gate?", text, "Remove", back, name=name, back=back)
    request = gates_pb2.DeleteGatesRequest(names=[name])
    answer: gates_pb2.DeleteGatesResponse = await page.call(page.stubs.gates.DeleteGates, request)
    check(answer.results[0].error)
    return page.redirect(back, f"Gate {name} was removed.")


async def remove_breaker(page: Page) -> Response:
    """Remove the breaker of a lambda, and its gate."""
    name = page.form.get("lambda", "")
    back = page.back("/gates")
    if not page.is_confirmed:
        backlog: limits_pb2.GetBacklogResponse | None = await _counted(
            page, page.stubs.limits.GetBacklog, limits_pb2.GetBacklogRequest(lambdas=[name])
        )
        text = f"Failures no longer pause {name}. Tasks that its gate holds now become due at once"
        if backlog is None:
            text += f". {_UNCOUNTED}"
        else:
            wait = sum(each.ready + each.parked for each in backlog.lambdas)
            text += (
                f": {formatting.counted(wait, 'task')} of it {'is' if wait == 1 else 'are'} ready or parked."
            )
        sent = {"lambda": name, "back": back}
        return page.confirm("Remove this breaker?", text, "Remove", back, **sent)
    request = gates_pb2.DeleteBreakersRequest(lambdas=[name])
    answer: gates_pb2.DeleteBreakersResponse = await page.call(page.stubs.gates.DeleteBreakers, request)
    check(answer.results[0].error)
    return page.redirect(back, f"The breaker of {name} was removed.")


async def _counted(page: Page, method: Callable[[Any], Awaitable[Answer]], request: Any) -> Answer | None:
    """Return what a removal would set free; None: the Frontend does not say soon. Nobody should need a count to remove a gate."""
    try:
        return await page.calls.within(page.timeout * _PART_FOR_COUNTS)(method, request)
    except grpc.aio.AioRpcError:
        return None


def hits_text(counted: gates_pb2.PutGateResponse) -> str:
    """Return what a gate would hit, by status."""
    hits = ", ".join(f"{count(each.count)} {word(each.status, 'status')}" for each in counted.hits)
    return (hits or "no task") + (" and more, which were not counted" if counted.truncated else "")


def until_text(gate: gates_pb2.Gate, duration: str, without: str) -> str:
    """Return how long a gate is in force, of the answer of a dry run with this duration; `without`: if it has no end."""
    if duration:
        return f"for {duration}"
    return f"until {formatting.moment(gate.expires_at)} UTC" if gate.HasField("expires_at") else without


def _shown(gate: gates_pb2.Gate) -> dict[str, str]:
    """Return what a form shows of a gate, by the names of its inputs."""
    scope = gate.scope
    return {
        "name": gate.name,
        "kind": word(gate.kind, "gate_kind"),
        "lambda": getattr(scope, "lambda"),
        "collection": scope.collection,
        "priority": word(scope.priority, "priority") if scope.priority else "",
        "session": scope.session,
        "delay": format_duration(to_timedelta(gate.delay)) if gate.HasField("delay") else "",
        "reason": gate.reason,
    }


def _request(page: Page) -> gates_pb2.PutGateRequest:
    """Return the request that names what differs from what the form showed: nothing, for a new gate."""
    form = {name: text.strip() for name, text in page.form.items()}
    changed = {
        name: form.get(name, "") for name in _PATHS if form.get(name, "") != form.get(f"was_{name}", "")
    }
    request = gates_pb2.PutGateRequest(gate=gates_pb2.Gate(name=form.get("name") or _usual_name(form)))
    gate, mask = request.gate, request.update_mask
    mask.paths.extend(_PATHS[name] for name in changed)
    for name, text in changed.items():
        match name:
            case "kind":
                gate.kind = formatting.number(text, "gate_kind")
            case "priority":
                gate.scope.priority = formatting.number(text, "priority")
                if text and not gate.scope.priority:  # without this the gate would hit all priorities
                    raise PageError(400, f"There is no priority {text[:50]!r}.")
            case "delay":
                if text:
                    gate.delay.CopyFrom(to_duration(read_duration(text)))
            case "reason":
                gate.reason = text
            case _:
                setattr(gate.scope, name, text)
    if "kind" in changed and gate.kind != gates_pb2.GATE_KIND_DELAY and "delay" not in changed:
        mask.paths.append("delay")
    if form.get("no_end") == "yes":
        mask.paths.append("expires_at")
    if duration := form.get("duration"):
        request.duration.CopyFrom(to_duration(read_duration(duration)))
    if not mask.paths and not request.HasField("duration"):
        raise PageError(400, "Nothing was changed in the form.")
    if not mask.paths:
        mask.paths.append("expires_at")
    return request


def _usual_name(form: Mapping[str, str]) -> str:
    """Return the name that `duly gates set` gives such a gate."""
    parts = (form.get(each, "") for each in ("collection", "priority", "session"))
    return usual_name(form.get("kind", ""), form.get("lambda", ""), *parts)


def read_duration(text: str) -> timedelta:
    """Return the duration that a form sent.

    Raises:
        PageError: it is none.
    """
    try:
        found = parse_duration(text.strip())
    except ValueError as error:
        raise PageError(400, str(error)) from error
    if not isinstance(found, timedelta):
        raise PageError(400, f"{text[:50]!r} is not a duration: write 2h, 30m.")
    return found
