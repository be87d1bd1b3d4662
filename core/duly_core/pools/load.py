"""Reads what there is to do for pools: backlogs, what runs, arrivals, run times, and what is due soon."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from duly_core.counting.queue_statements import PRESENT, TAKEN
from duly_core.counting.queues import ENQUEUED
from duly_core.gates.rules import GateSet
from duly_core.lambdas.names import QueueKey
from duly_core.pools.planner import Due, LambdaLoad, RunTime
from duly_core.pools.rules import Pool, served_by
from duly_core.pools.statements import POOLS
from duly_core.postgres.arrays import int2s, texts, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import Statement
from duly_core.upkeep.partitions import first_id
from duly_wire.enums import Priority

STEP = timedelta(seconds=5)
"""Due times are counted in steps of this length."""
ARRIVAL_WINDOW = timedelta(seconds=30)
_MOST_TAKEN = 20_000
_MOST_DUE = 20_000
"""Rows of a queue that are due or will be soon."""
_MOST_DUE_TOGETHER = 200_000
_LEAST_DUE = 100
_MOST_ARRIVALS = 2_000
_MOST_ARRIVALS_TOGETHER = 20_000
_LEAST_ARRIVALS = 20
_MOST_LAMBDAS = 1_000
"""Whose arrivals and run times are read in a round."""
_RUNS = 60
"""Of each of the ages below."""
_AGES = (timedelta(), timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=3), timedelta(days=1))
_OLDEST = timedelta(days=8)
_FRESH_RUN_TIMES = timedelta(seconds=20)
_NAMES = Statement("lambda_names", "select name from lambda order by name")


@dataclass(slots=True)
class _Found:
    ready: int = 0
    oldest_age: timedelta = timedelta()
    held: int = 0
    due: dict[int, tuple[int, datetime]] = field(default_factory=dict)


class LoadReader:
    """Reads the load of pools; what was measured of run times it remembers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._run_times: dict[str, RunTime] = {}
        self._measured_at: dict[str, datetime] = {}
        self.unmeasured = 0
        """Lambdas of pools beyond those whose arrivals and run times are read."""

    async def read(
        self, pools: Sequence[Pool], ahead: timedelta, gates: GateSet
    ) -> tuple[datetime, dict[str, list[LambdaLoad]]]:
        """Return the store's time, and by pool what there is to do. What a gate holds back is left out.

        A queue that several pools serve is shared among them equally.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        present = await self._store.run(PRESENT, {})
        (now,) = (at for at, *_ in present if at is not None)
        serving: dict[str, list[Pool]] = {}

        def is_served(name: str) -> bool:
            if name not in serving:
                serving[name] = served_by(pools, name)
            return bool(serving[name])

        queues = [
            key
            for at, name, priority in present
            if at is None
            and is_served(name)
            and not gates.holds_back(key := QueueKey(name, Priority(priority)))
        ]
        found = await self._pending(queues, now, ahead)
        for name, _, status, number, _ in await self._store.run(TAKEN, {"most": _MOST_TAKEN}):
            if is_served(name):
                if status == ENQUEUED:
                    found[name].ready += number
                else:
                    found[name].held += number
        registered = [name for (name,) in await self._store.run(_NAMES, {}) if is_served(name)]
        names = [*dict.fromkeys([*found, *registered])]
        self.unmeasured = max(0, len(names) - _MOST_LAMBDAS)
        measured = names[:_MOST_LAMBDAS]
        arrivals = await self._arrivals(measured, now)
        await self._measure_runs(measured, now)
        loads: dict[str, list[LambdaLoad]] = {pool.name: [] for pool in pools}
        for name in names:
            load = self._load(name, found.get(name, _Found()), arrivals.get(name, 0.0))
            sharing = serving[name]
            for place, pool in enumerate(sharing):
                loads[pool.name].append(_part(load, place, len(sharing)))
        return now, loads

    async def _pending(
        self, queues: Sequence[QueueKey], now: datetime, ahead: timedelta
    ) -> defaultdict[str, _Found]:
        found: defaultdict[str, _Found] = defaultdict(_Found)
        if not queues:
            return found
        most = max(_LEAST_DUE, min(_MOST_DUE, _MOST_DUE_TOGETHER // len(queues)))
        asked = {
            "lambdas": texts([queue.lambda_name for queue in queues]),
            "priorities": int2s([queue.priority for queue in queues]),
            "now": now,
            "ahead": ahead,
            "step": STEP,
            "most": most,
        }
        for name, _, step, number, first in await self._store.run(POOLS["load_of_queues"], asked):
            each = found[name]
            if step <= 0:
                each.ready += number
                each.oldest_age = max(each.oldest_age, now - first)
            else:
                before, earliest = each.due.get(step, (0, first))
                each.due[step] = before + number, min(earliest, first)
        return found

    async def _arrivals(self, names: Sequence[str], now: datetime) -> dict[str, float]:
        if not names:
            return {}
        most = max(_LEAST_ARRIVALS, min(_MOST_ARRIVALS, _MOST_ARRIVALS_TOGETHER // len(names)))
        asked = {"lambdas": texts(names), "first_id": first_id(now - ARRIVAL_WINDOW), "most": most}
        rates = {}
        for name, at_once, number, oldest in await self._store.run(POOLS["arrivals"], asked):
            window = ARRIVAL_WINDOW if number < most else max(now - oldest, timedelta(milliseconds=100))
            rates[name] = at_once / window.total_seconds()
        return rates

    async def _measure_runs(self, names: Sequence[str], now: datetime) -> None:
        old = [
            name
            for name in names
            if now - self._measured_at.get(name, now - 2 * _FRESH_RUN_TIMES) > _FRESH_RUN_TIMES
        ]
        if not old:
            return
        asked = {
            "lambdas": texts(old),
            "before": uuids([first_id(now + timedelta(seconds=1) - age).bytes for age in _AGES]),
            "oldest": first_id(now - _OLDEST),
            "most": _RUNS,
        }
        for name, runs, mean, (median, p95) in await self._store.run(POOLS["run_times"], asked):
            self._run_times[name] = RunTime(
                timedelta(seconds=mean), timedelta(seconds=median), timedelta(seconds=p95), runs
            )
        self._measured_at |= dict.fromkeys(old, now)

    def _load(self, name: str, found: _Found, arrivals: float) -> LambdaLoad:
        due = tuple(Due(first, number) for _, (number, first) in sorted(found.due.items()))
        return LambdaLoad(
            name, found.ready, found.oldest_age, found.held, arrivals, self._run_times.get(name), due
        )


def _part(load: LambdaLoad, place: int, parts: int) -> LambdaLoad:
    """Return the part of a load that one of several pools is to do; all parts together are the load."""
    if parts == 1:
        return load

    def share(number: int) -> int:
        return number // parts + (place < number % parts)

    return replace(
        load,
        ready=share(load.ready),
        held=share(load.held),
        arrivals=load.arrivals / parts,
        due=tuple(Due(each.at, share(each.tasks)) for each in load.due),
    )
