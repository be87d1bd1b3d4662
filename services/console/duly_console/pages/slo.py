"""What is promised, how much of it is kept, and what is left of the error budgets: of all lambdas, or of one."""

from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from duly_console import formatting
from duly_console.page import Page
from duly_wire.time_conversion import to_timedelta
from duly_wire.v1 import inspection_pb2

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_NO_DATA = "no data"
_STARTS = inspection_pb2.SERVICE_LEVEL_INDICATOR_STARTS


@dataclass(frozen=True, slots=True)
class _Row:
    """A promise in words."""

    promise: str
    lambda_name: str
    """Empty: calls, or all lambdas together."""
    is_starts: bool
    objective: str
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
    """Show the promises that the person may read."""
    name = page.asked("lambda")
    request = inspection_pb2.GetServiceLevelsRequest()
    setattr(request, "lambda", name)
    answer: inspection_pb2.GetServiceLevelsResponse = await page.call(
        page.stubs.inspection.GetServiceLevels, request
    )
    since = [each for each in answer.levels if each.HasField("counted_since")]
    first = min(since, key=lambda each: each.counted_since.ToNanoseconds(), default=None)
    return page.render(
        "slo.html",
        rows=[_row(each) for each in answer.levels],
        window=_window(answer.levels[0]) // _DAY if answer.levels else 0,
        since=first,
        wanted={"lambda": name},
        can_change=page.viewer.may_everywhere("OPERATE"),
    )


def _row(level: inspection_pb2.ServiceLevel) -> _Row:
    is_starts = level.indicator == _STARTS
    left = level.budget_left if level.HasField("budget_left") else None
    burns = next((each for each in level.spans if to_timedelta(each.length) == _HOUR), None)
    has_burn = burns is not None and burns.HasField("burn_rate")
    return _Row(
        promise=f"starts within {formatting.duration(level.start_within)}" if is_starts else "calls accepted",
        lambda_name=getattr(level, "lambda"),
        is_starts=is_starts,
        objective=_percent(level.objective),
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
