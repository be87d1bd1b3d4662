"""Counts calls that schedule and whether they were accepted, and adds it to the trends once a minute."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store, StoreNow, store_now
from duly_core.process.telemetry import observe_call
from duly_core.trends import store as trends
from duly_frontend.events import calls_counted, had_items_away, log, own_wait, took_limited
from duly_frontend.slo.verdicts import Verdict, verdict_of

_MOST_MINUTES = 1_500
"""While the store is away, calls are kept for so many: the newest."""
_AGAIN = timedelta(seconds=5)
_SETTLE = timedelta(seconds=1)
_MINUTE = 60


class AcceptedCalls:
    """`observe` is told of each call of this Frontend; `run_once` adds what was counted."""

    def __init__(self, store: Store | StoreNow, now: Callable[[], float] = time) -> None:
        """Make one; `now` is the wall clock, in seconds since 1970."""
        self._store = store_now(store)
        self._now = now
        self._minutes: dict[float, list[int]] = {}

    def observe(self, method: str, code: str, seconds: float) -> None:
        """Count a call that ended, for metrics and for what is promised."""
        observe_call(method, code, seconds)
        verdict = verdict_of(
            method,
            code,
            seconds - own_wait(),
            was_limited=took_limited(),
            had_items_away=had_items_away(),
        )
        if verdict is None:
            return
        calls_counted(verdict)
        if verdict is not Verdict.REFUSED:
            counts = self._of(self._now() // _MINUTE)
            counts[0] += 1
            counts[1] += verdict is Verdict.FAILED

    def _of(self, minute: float) -> list[int]:
        """Return the counts of a minute, by its number since 1970: calls, and those that failed."""
        found = self._minutes.get(minute)
        if found is None:
            found = self._minutes[minute] = [0, 0]
        return found

    async def run_once(self) -> timedelta:
        """Add what was counted; return when the next minute is over. What cannot be added is kept."""
        taken, self._minutes = self._minutes, {}
        try:
            if taken:
                by_minute = {
                    datetime.fromtimestamp(minute * _MINUTE, UTC): (calls, failed)
                    for minute, (calls, failed) in taken.items()
                }
                await trends.add_calls(self._store(), by_minute)
        except StoreUnavailableError as error:
            self._keep(taken)
            log.warning("calls not added to the trends yet", reason=str(error))
            return _AGAIN
        return timedelta(seconds=_MINUTE - self._now() % _MINUTE) + _SETTLE

    def _keep(self, taken: dict[float, list[int]]) -> None:
        for minute, (calls, failed) in taken.items():
            counts = self._of(minute)
            counts[0] += calls
            counts[1] += failed
        for minute in sorted(self._minutes)[:-_MOST_MINUTES]:
            del self._minutes[minute]
