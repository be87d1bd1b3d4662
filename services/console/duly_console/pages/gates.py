"""Gates: what operators hold back; set one after a count of what it hits, remove one. Breakers."""

import asyncio
from datetime import timedelta

from starlette.responses import Response

from duly.time_conversion import to_duration
from duly.v1 import gates_pb2
from duly_console import formatting
from duly_console.errors import PageError
from duly_console.formatting import count, word
from duly_console.page import Page, check
from duly_core.durations import parse_duration


async def show_list(page: Page) -> Response:
    """List gates by name, and breakers by lambda: there are a thousand of each at most."""
    gates: gates_pb2.ListGatesResponse
    breakers: gates_pb2.ListBreakersResponse
    gates, breakers = await asyncio.gather(
        page.call(page.stubs.gates.ListGates, gates_pb2.ListGatesRequest()),
        page.call(page.stubs.gates.ListBreakers, gates_pb2.ListBreakersRequest()),
    )
    return page.render(
        "gates.html",
        gates=gates.gates,
        breakers=breakers.breakers,
        can_change=page.viewer.may_everywhere("OPERATE"),
    )


async def put(page: Page) -> Response:
    """Set a gate; before, count what it would hit."""
    request = _request(page)
    gate = request.gate
    if not page.is_confirmed:
        request.dry_run = True
        counted: gates_pb2.PutGateResponse = await page.call(page.stubs.gates.PutGate, request)
        hits = ", ".join(f"{count(each.count)} {word(each.status, 'status')}" for each in counted.hits)
        more = " and more, which were not counted" if counted.truncated else ""
        until = f"for {page.form['duration']}" if page.form.get("duration") else "until somebody removes it"
        text = (
            f"Gate {gate.name} is in force {until}. It would hit now: {hits or 'no task'}{more}. "
            "Callbacks that run are not touched."
        )
        return page.confirm("Set this gate?", text, "Set the gate", "/gates", **page.form)
    answer: gates_pb2.PutGateResponse = await page.call(page.stubs.gates.PutGate, request)
    return page.redirect("/gates", f"Gate {answer.gate.name} is in force.")


async def remove(page: Page) -> Response:
    """Remove a gate."""
    name = page.form.get("name", "")
    if not page.is_confirmed:
        text = f"What gate {name} holds is due at once."
        return page.confirm("Remove this gate?", text, "Remove", "/gates", name=name)
    request = gates_pb2.DeleteGatesRequest(names=[name])
    answer: gates_pb2.DeleteGatesResponse = await page.call(page.stubs.gates.DeleteGates, request)
    check(answer.results[0].error)
    return page.redirect("/gates", f"Gate {name} was removed.")


async def remove_breaker(page: Page) -> Response:
    """Remove the breaker of a lambda, and its gate."""
    name = page.form.get("lambda", "")
    if not page.is_confirmed:
        text = f"Failures of {name} pause it no more. If its gate holds tasks now, they are due at once."
        return page.confirm("Remove this breaker?", text, "Remove", "/gates", **{"lambda": name})
    request = gates_pb2.DeleteBreakersRequest(lambdas=[name])
    answer: gates_pb2.DeleteBreakersResponse = await page.call(page.stubs.gates.DeleteBreakers, request)
    check(answer.results[0].error)
    return page.redirect("/gates", f"The breaker of {name} was removed.")


def _request(page: Page) -> gates_pb2.PutGateRequest:
    form = page.form
    kind = formatting.number(form.get("kind", ""), "gate_kind")
    asked = form.get("priority", "")
    priority = formatting.number(asked, "priority")
    if asked and not priority:  # without this the gate would hit all priorities
        raise PageError(400, f"There is no priority {asked[:50]!r}.")
    scope = gates_pb2.GateScope(
        collection=form.get("collection", ""), session=form.get("session", ""), priority=priority
    )
    setattr(scope, "lambda", form.get("lambda", ""))
    gate = gates_pb2.Gate(
        name=form.get("name", "").strip(), kind=kind, scope=scope, reason=form.get("reason", "").strip()
    )
    request = gates_pb2.PutGateRequest(gate=gate)
    if delay := form.get("delay"):
        request.gate.delay.CopyFrom(to_duration(_duration(delay)))
    if duration := form.get("duration"):
        request.duration.CopyFrom(to_duration(_duration(duration)))
    return request


def _duration(text: str) -> timedelta:
    try:
        found = parse_duration(text.strip())
    except ValueError as error:
        raise PageError(400, str(error)) from error
    if not isinstance(found, timedelta):
        raise PageError(400, f"{text[:50]!r} is not a duration: write 2h, 30m.")
    return found
