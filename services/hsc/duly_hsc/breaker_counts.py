"""Counts how runs end, of lambdas that have breakers: written once a second, and not at all while there are no breakers."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.gates import breakers
from duly_core.postgres.pool import Store
from duly_core.process.pace import USUAL, Pace
from duly_core.tasks.task import Applied, Result
from duly_hsc.events import log
from duly_wire.enums import Outcome
from duly_wire.ids import TaskId

_EVERY = timedelta(seconds=1)
_MOST = 5_000
"""A second; others do not count."""
_ENDS = {
    Outcome.SUCCESS: False,
    Outcome.COMPLETE_LATER: False,  # of a lambda that always hands over, only the failures would count: no breaker would ever close
    Outcome.WAIT_FOR_EVENT: False,
    Outcome.FATAL_FAILURE: True,
    Outcome.RETRIABLE_FAILURE: True,
    Outcome.CRASHED: True,
}


class BreakerCounts:
    """`run_once` writes what was noted."""

    def __init__(
        self, store: Store, breaker_lambdas: Callable[[], Collection[str]], pace: Pace = USUAL
    ) -> None:
        """Make one; `breaker_lambdas` returns the lambdas that have breakers, `pace` is that of loops of the store."""
        self.wake = asyncio.Event()
        self._pace = pace
        self._rests = False
        self._store = store
        self._breaker_lambdas = breaker_lambdas
        self._noted: list[tuple[TaskId, bool]] = []

    def note(self, results: Sequence[Result], verdicts: Sequence[Applied]) -> None:
        """Note results that were written; those that were written before do not count again."""
        if not self._breaker_lambdas() or len(self._noted) >= _MOST:
            return
        self._noted += [
            (result.task_id, _ENDS[result.outcome])
            for result, verdict in zip(results, verdicts, strict=True)
            if verdict is Applied.APPLIED and result.outcome in _ENDS
        ]
        if self._rests and self._noted:
            self.wake.set()

    async def run_once(self) -> timedelta:
        """Write what was noted; what cannot be written does not count."""
        noted, self._noted = self._noted[:_MOST], []
        if noted:
            try:
                await breakers.count_ends(self._store, noted)
            except StoreUnavailableError as error:
                log.warning("runs not counted for breakers", runs=len(noted), reason=str(error))
        pause = _EVERY if noted else self._pace.rest(_EVERY)
        self._rests = pause > _EVERY
        return pause
