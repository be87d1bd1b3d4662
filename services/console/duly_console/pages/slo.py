"""What is promised, how much of it is kept, and what is left of the error budgets: of all lambdas, or of one. Objectives of lambdas."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import grpc
from starlette.responses import Response

from duly_console import formatting
from duly_console.errors import PageError
from duly_console.page import Page, check
from duly_core.config.durations import format_duration, parse_duration
from duly_core.config.live_sections import START_WITHIN
from duly_wire.time_conversion import to_duration, to_timedelta
from duly_wire.v1 import inspection_pb2, objectives_pb2

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_NO_DATA = "no data"
_DIGITS = 12
"""Of a share: 99.9 / 100 is 0.999."""
_STARTS = inspection_pb2.SERVICE_LEVEL_INDICATOR_STARTS


@dataclass(frozen=True, slots=True)
class _Row:
    """A promise in words."""

    promise: str
    lambda_name: str
    """Empty: calls, or all lambdas together."""
    cell: str
    """Of one lambda. Empty: the installation has no cells."""
    is_starts: bool
    objective: str
    objective_of: str
    """The prefix whose objective holds; empty: it is the lambda's own, or that of the settings."""
    hour: str
    day: str
    window: str
    budget: str
    budget_share: float | None
    """What is left of it, from 0 to 1; None: nothing was counted."""
    burns: str
    alert: str
    """The severity with which it alerts; empty: it does not."""


async def show(page: Page) -> Response:
    """Show the promises that the person may read, and the objectives of lambdas."""
    name, cell = page.asked("lambda"), page.asked("cell")
    request = inspection_pb2.GetServiceLevelsRequest(cell=cell)
    setattr(request, "lambda", name)
    answer: inspection_pb2.GetServiceLevelsResponse
    known: Sequence[objectives_pb2.Objective] | None
    answer, known = await asyncio.gather(
        page.call(page.stubs.inspection.GetServiceLevels, request), _objectives_if_served(page, cell)
    )
    objectives = known or ()
    since = [each for each in answer.levels if each.HasField("counted_since")]
    first = min(since, key=lambda each: each.counted_since.ToNanoseconds(), default=None)
    asked = page.asked("objective")
    chosen = next((each for each in objectives if asked and getattr(each, "lambda") == asked), None)
    return page.render(
        "slo.html",
        rows=[_row(each) for each in answer.levels],
        has_own=any(each.objective_of for each in answer.levels),
        window=_window(answer.levels[0]) // _DAY if answer.levels else 0,
        since=first,
        wanted={"lambda": name, "cell": cell},
        cells=answer.cell_names,
        objectives=[(each, _percent(each.share)) for each in objectives],
        times=[(format_duration(each), formatting.span(each)) for each in START_WITHIN],
        shown={} if chosen is None else _shown(chosen),
        can_change=known is not None and page.viewer.may_somewhere("OPERATE"),
        can_set_settings=page.viewer.may_everywhere("OPERATE"),
    )


async def put(page: Page) -> Response:
    """Set the objective of a lambda or prefix, or change what differs from what the form showed of it."""
    form = page.form
    pattern = form.get("lambda", "").strip()
    objective = objectives_pb2.Objective()
    setattr(objective, "lambda", pattern)
    request = objectives_pb2.PutObjectiveRequest(objective=objective)
    within, share = form.get("within", ""), form.get("share", "").strip()
    if within != form.get("was_within"):
        request.objective.start_within.CopyFrom(to_duration(_time(within)))
        request.update_mask.paths.append("start_within")
    if share != form.get("was_share"):
        request.objective.share = _share_of(share)
        request.update_mask.paths.append("share")
    if not request.update_mask.paths:
        return page.redirect("/slo", f"The objective of {pattern} stays as it is.")
    if not page.is_confirmed:
        before = next((each for each in await _objectives(page) if getattr(each, "lambda") == pattern), None)
        former = "" if before is None else f" Until now: {_in_words(before)}."
        text = (
            f"{share} % of the runs of {pattern} are to start within {formatting.span(_time(within))} of when they could.{former} "
            "Runs of the past are judged by it, too."
        )
        return page.confirm("Set this objective?", text, "Set", "/slo", **form)
    answer: objectives_pb2.PutObjectiveResponse = await page.call(page.stubs.objectives.PutObjective, request)
    reach = (
        f"It holds for {formatting.counted(answer.lambdas, 'registered lambda')}."
        if answer.lambdas
        else "It holds for no registered lambda yet."
    )
    return page.redirect("/slo", f"The objective of {pattern} is set. {reach}")


async def reset(page: Page) -> Response:
    """Remove the objective of a lambda or prefix."""
    pattern = page.form.get("lambda", "")
    if not page.is_confirmed:
        text = f"What is promised of {pattern} is what a shorter prefix says, or the settings. Runs of the past are judged by it, too."
        return page.confirm("Remove this objective?", text, "Remove", "/slo", **{"lambda": pattern})
    request = objectives_pb2.DeleteObjectivesRequest(lambdas=[pattern])
    answer: objectives_pb2.DeleteObjectivesResponse = await page.call(
        page.stubs.objectives.DeleteObjectives, request
    )
    check(answer.results[0].error)
    return page.redirect("/slo", f"The objective of {pattern} was removed.")


async def _objectives(page: Page, cell: str = "") -> Sequence[objectives_pb2.Objective]:
    answer: objectives_pb2.ListObjectivesResponse = await page.call(
        page.stubs.objectives.ListObjectives, objectives_pb2.ListObjectivesRequest(cell=cell)
    )
    return answer.objectives


async def _objectives_if_served(page: Page, cell: str) -> Sequence[objectives_pb2.Objective] | None:
    """Return the objectives; None: the Frontend is of a release without them, and has promises all the same."""
    try:
        return await _objectives(page, cell)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        return None


def _shown(objective: objectives_pb2.Objective) -> dict[str, str]:
    """Return what the form shows of an objective, by the names of its inputs."""
    return {
        "lambda": getattr(objective, "lambda"),
        "within": format_duration(to_timedelta(objective.start_within)),
        "share": f"{100 * objective.share:.12g}",
    }


def _in_words(objective: objectives_pb2.Objective) -> str:
    return f"{_percent(objective.share)} within {formatting.duration(objective.start_within)}"


def _time(text: str) -> timedelta:
    try:
        within = parse_duration(text)
    except ValueError as error:
        raise PageError(400, f"The time: {error}.") from error
    if not isinstance(within, timedelta):
        raise PageError(400, f"The time must be one of {', '.join(map(format_duration, START_WITHIN))}.")
    return within


def _share_of(text: str) -> float:
    """Return a share of a percentage that was typed; the Frontend says whether it can be promised."""
    try:
        return round(float(text) / 100, _DIGITS)
    except ValueError as error:
        raise PageError(400, "The share must be a percentage, such as 99.9.") from error


def _row(level: inspection_pb2.ServiceLevel) -> _Row:
    is_starts = level.indicator == _STARTS
    left = level.budget_left if level.HasField("budget_left") else None
    burns = next((each for each in level.spans if to_timedelta(each.length) == _HOUR), None)
    has_burn = burns is not None and burns.HasField("burn_rate")
    return _Row(
        promise=f"starts within {formatting.duration(level.start_within)}" if is_starts else "calls accepted",
        lambda_name=getattr(level, "lambda"),
        cell=level.cell,
        is_starts=is_starts,
        objective=_percent(level.objective),
        objective_of=level.objective_of if level.objective_of != getattr(level, "lambda") else "",
        hour=_share(level, _HOUR),
        day=_share(level, _DAY),
        window=_share(level, _window(level)),
        budget=_NO_DATA if left is None else f"{100 * left:,.0f} %",
        budget_share=None if left is None else min(1.0, max(0.0, left)),
        burns=f"{burns.burn_rate:.1f}x" if burns is not None and has_burn else "",
        alert=formatting.word(level.alert, "severity") if level.alert else "",
    )


def _window(level: inspection_pb2.ServiceLevel) -> timedelta:
    return to_timedelta(level.spans[-1].length) if level.spans else timedelta()


def _share(level: inspection_pb2.ServiceLevel, length: timedelta) -> str:
    for span in level.spans:
        if to_timedelta(span.length) == length and span.total:
            return _percent(span.good / span.total)
    return _NO_DATA


def _percent(share: float) -> str:
    """Return a percentage that says 100 only if it is."""
    percent = 100 * share if share == 1 else min(100 * share, 99.999)
    return f"{percent:.3f}".rstrip("0").rstrip(".") + " %"
