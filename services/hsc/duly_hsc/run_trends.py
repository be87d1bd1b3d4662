"""Counts how runs begin and end, by lambda and minute, and adds it to the trends once a minute."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from time import time
from typing import Any

from duly_core.errors import CellFencedError, StoreUnavailableError
from duly_core.gates.ends import GateEnds
from duly_core.postgres.pool import Store
from duly_core.tasks.task import Applied, ClaimedTask, ReleasedClaim, Result
from duly_core.trends import store as trends
from duly_core.trends.rules import minute_of, place_of
from duly_core.trends.run_counts import RunCounts
from duly_hsc.events import log
from duly_hsc.startable import could_start_at
from duly_wire.enums import Outcome
from duly_wire.ids import TaskId

_MOST_CLAIMS = 100_000
"""Claims whose lambdas are remembered: of what ends without, a part is looked up."""
_MOST_LOOKED_UP = 5_000
_FAILED = frozenset((Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.CRASHED))
_ENDED = frozenset((Outcome.SUCCESS, Outcome.CANCELLED))
"""The task ended with it. Dead letters are counted by the Store Consumer, however they came."""
_COUNTED = _FAILED | _ENDED
_SETTLE = timedelta(seconds=1)
"""After the end of a minute: what was claimed in it is counted."""
_MOST_FENCED = 100
"""Rounds that are kept while the cell moves."""
_NO_CLAIM = (None, 0)
_MICROSECONDS = 1e6
_MINUTE = 60


Fenced = list[Sequence[Mapping[str, Any]]]
"""Rows of rounds that a cell refused because it moves: they are added at its next place."""


class RunTrends:
    """`run_once` adds what was counted."""

    def __init__(self, store: Store, now: Callable[[], float] = time, fenced: Fenced | None = None) -> None:
        """Make one.

        Args:
            store: has the trends.
            now: the wall clock, in seconds since 1970.
            fenced: shared with those of the same cell at its other places; None: it has no others.
        """
        self._store = store
        self._fenced = [] if fenced is None else fenced
        self._now = now
        self._counts = RunCounts()
        self._claims: dict[TaskId, tuple[str, int]] = {}
        """The lambda of each claim, and where its start was counted."""
        self._unknown: list[tuple[TaskId, bool]] = []
        self._minute_ends = 0.0

    def claimed(self, tasks: Sequence[ClaimedTask | None], ends: GateEnds | None = None) -> None:
        """Count tasks that were claimed, by how late they were after they could start. `ends`: of gates that held whole queues."""
        now = self._begin()
        claims, late_at = self._claims, now * _MICROSECONDS
        starts = []
        for task in tasks:
            if task is not None:
                is_plain = task.startable_at_us is None and (ends is None or ends.newest is None)
                due_at = task.due_at_us if is_plain else could_start_at(task, ends)
                start = task.lambda_name, place_of((late_at - due_at) / _MICROSECONDS)
                claims[task.task_id] = start
                starts.append(start)
        self._counts.started(starts)
        if len(claims) > _MOST_CLAIMS:  # of claims that ended elsewhere, or not at all
            for task_id in list(islice(claims, _MOST_CLAIMS // 2)):
                del claims[task_id]

    def released(self, releases: Sequence[ReleasedClaim], verdicts: Sequence[Applied]) -> None:
        """Take back the starts of claims that were handed back before their callbacks began: others begin them."""
        self._begin()
        for release, verdict in zip(releases, verdicts, strict=True):
            if verdict is Applied.APPLIED and release.started_at is None:
                start = self._claims.pop(release.task_id, None)
                if start is not None:
                    self._counts.did_not_start(*start)

    def ended(self, results: Sequence[Result], verdicts: Sequence[Applied]) -> None:
        """Count results that were written; those that were written before do not count again."""
        self._begin()
        runs, claims = self._counts.runs, self._claims
        for result, verdict in zip(results, verdicts, strict=True):
            name, _ = claims.pop(result.task_id, _NO_CLAIM)
            if verdict is not Applied.APPLIED or result.outcome not in _COUNTED:
                continue
            failed = result.outcome in _FAILED
            if name is None:
                if len(self._unknown) < _MOST_LOOKED_UP:
                    self._unknown.append((result.task_id, failed))
            elif failed:
                runs(name).failed += 1
            else:
                runs(name).ended += 1

    def _begin(self) -> float:
        now = self._now()
        if not self._minute_ends - _MINUTE <= now < self._minute_ends:  # or the clock was set back
            minute = minute_of(datetime.fromtimestamp(now, UTC))
            self._counts.begin(minute)
            self._minute_ends = minute.timestamp() + _MINUTE
        return now

    async def run_once(self) -> timedelta:
        """Add what was counted; return when the next minute is over.

        What cannot be added is lost, for it may have been added; but what a fence refused was not, and is kept.
        """
        try:
            await self._look_up()
            self._begin()
            if rows := self._counts.take():
                self._fenced.append(rows)
            await self._add()
        except StoreUnavailableError as error:
            log.warning("runs not added to the trends", reason=str(error))
        return timedelta(seconds=self._minute_ends - self._begin()) + _SETTLE

    async def _add(self) -> None:
        """Add what is there, a round at a time: two may have the same minute."""
        while self._fenced:
            rows = self._fenced.pop(0)
            try:
                await trends.add_runs(self._store, rows)
            except CellFencedError:
                self._fenced[:] = [rows, *self._fenced][-_MOST_FENCED:]
                raise

    async def _look_up(self) -> None:
        """Count what ended here, and was claimed elsewhere or before this process."""
        unknown, self._unknown = self._unknown, []
        if not unknown:
            return
        names = await trends.lambdas_of(self._store, [task_id for task_id, _ in unknown])
        for task_id, failed in unknown:
            if (name := names.get(task_id)) is not None:
                found = self._counts.runs(name)
                found.failed += failed
                found.ended += not failed
