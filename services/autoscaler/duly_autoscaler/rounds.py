"""The rounds of the autoscaler that leads: read, plan, write, then have the drivers do it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from duly_autoscaler import events
from duly_autoscaler.calls import DriverCalls
from duly_autoscaler.drivers.port import Driver, Order
from duly_autoscaler.leadership import Leadership, Term
from duly_autoscaler.loads import CellLoads, FoundLoads
from duly_core.pools.lease import PlanToWrite, request_drain, write_plans
from duly_core.pools.planner import Memory, Plan, Workers, look_ahead, plan
from duly_core.pools.rules import Pool
from duly_core.pools.store import PoolWorker, StoredPlan, count_workers, list_plans, list_pools, workers_of
from duly_core.postgres.pool import Store

_RECONCILE = timedelta(seconds=30)
"""A driver is told the same number again after so long: what it stands on may have changed by itself."""
_MOST_AUDITED = 4
"""Reasons in an entry of the audit log."""


class Rounds:
    """`run_once` does nothing while another autoscaler leads."""

    def __init__(
        self,
        store: Store,
        leadership: Leadership,
        drivers: Mapping[str, Driver],
        loads: CellLoads,
        interval: timedelta,
        driver_timeout: timedelta,
        home: str = "",
    ) -> None:
        """Make one.

        Args:
            store: has the pools, their plans and the lease: that of the cell `home`; empty: the sole store.
            leadership: by which this autoscaler may lead.
            drivers: by name.
            loads: what there is to do in all cells.
            interval: between two rounds.
            driver_timeout: how long a call of a driver may take.
            home: the name of the cell.
        """
        self._store = store
        self._leadership = leadership
        self._drivers = drivers
        self._interval = interval
        self._driver_timeout = driver_timeout
        self._loads = loads
        self._home = home
        self._calls: dict[str, DriverCalls] = {}
        self._told: dict[str, tuple[int, float]] = {}
        """What each pool's driver was told last, and when, on the loop's clock."""
        self._unmeasured = 0
        self._away: set[str] = set()
        """Cells that did not answer in the last round."""
        self._term: Term | None = None
        """That of the last plans."""

    async def run_once(self) -> timedelta:
        """Plan for all pools; return when to come back.

        Raises:
            StoreUnavailableError: nothing was planned, or the plans may not be written.
        """
        term = self._leadership.term
        if term is None:
            await self._forget([])
            return self._interval
        with events.rounds.time():
            await self._plan_all(term)
        events.last_round.set_to_current_time()
        return self._interval

    async def close(self) -> None:
        """Give up calls that are under way."""
        await self._forget([])

    async def _plan_all(self, term: Term) -> None:
        pools = [each.pool for each in await list_pools(self._store)]
        await self._forget([pool.name for pool in pools])
        if not pools:
            return
        plans = await list_plans(self._store, [pool.name for pool in pools])
        workers = await workers_of(self._store, pools)
        memories = {pool.name: _memory(plans.get(pool.name)) for pool in pools}
        ahead = max(look_ahead(pool, memories[pool.name].spin_up) for pool in pools)
        found_loads = await self._loads.read(self._home, pools, ahead)
        now = found_loads.now
        self._tell_unmeasured()
        self._tell_away({cell for cells in found_loads.away.values() for cell in cells})
        made: dict[str, Plan] = {}
        orders: dict[str, Order] = {}
        changes = []
        for pool in pools:
            self._go_on(pool, plans.get(pool.name))
            found, memory = workers[pool.name], memories[pool.name]
            planned, order = self._plan(pool, found_loads, found, memory, is_first=term is not self._term)
            made[pool.name], orders[pool.name] = planned, order
            before = plans[pool.name].desired if pool.name in plans else 0
            if planned.desired != before:
                changes.append((pool.name, before, planned))
        written = await write_plans(
            self._store,
            self._leadership.holder,
            term.fence,
            now,
            [self._to_write(pool, made[pool.name]) for pool in pools],
            [_audited(name, before, planned, workers[name]) for name, before, planned in changes],
        )
        if written is None:
            self._leadership.end("another autoscaler leads: the plans were refused")
            return
        self._term = term
        for name, before, planned in changes:
            events.changed(name, before, planned.desired, planned.reasons)
        for pool in pools:
            if pool.name in written:
                await self._carry_out(pool, orders[pool.name], workers[pool.name], term, now)

    def _plan(
        self,
        pool: Pool,
        loads: FoundLoads,
        found: Sequence[PoolWorker],
        memory: Memory,
        *,
        is_first: bool,
    ) -> tuple[Plan, Order]:
        calls, now = self._calls_of(pool), loads.now
        spin_up = memory.spin_up.arrived([each.first_reported_at for each in found], now)
        if calls.failure is not None and spin_up.seen_until != memory.spin_up.seen_until:
            calls.end_pause()  # a worker came: the driver may work again
        if calls.failure is not None:
            memory = replace(memory, spin_up=spin_up).without_missing()
        if calls.failure is not None or is_first:
            spin_up = spin_up.wanted(
                0, now
            )  # nothing was started, or another autoscaler may not have come to it
        workers = count_workers(found, len(spin_up.asked))
        planned = plan(
            pool,
            loads.loads[pool.name],
            workers,
            replace(memory, spin_up=spin_up),
            now,
            loads.away.get(pool.name, ()),
        )
        missing = max(0, planned.desired - workers.alive)
        asked = spin_up if calls.is_busy and missing > len(spin_up.asked) else spin_up.wanted(missing, now)
        start = max(0, len(asked.asked) - len(spin_up.asked))
        planned = replace(planned, memory=replace(planned.memory, spin_up=asked))
        events.planned(
            pool.name,
            planned.desired,
            replace(workers, starting=len(asked.asked)),
            asked.expected,
            failing=calls.failure is not None,
        )
        return planned, Order(pool, planned.desired, start, tuple(each.host_id for each in found))

    async def _carry_out(
        self, pool: Pool, order: Order, found: Sequence[PoolWorker], term: Term, now: datetime
    ) -> None:
        calls = self._calls_of(pool)
        if calls.is_busy or self._leadership.term is not term:
            return
        driver = self._drivers.get(pool.driver)
        if driver is None:
            known = ", ".join(sorted(self._drivers)) or "none"
            reason = f"this autoscaler has no driver of this name (autoscaler.drivers): it has {known}"
            calls.refuse(pool.driver, reason, now)
            return
        drained: set[str] = set()
        if not driver.ends_workers and (chosen := choose_to_drain(found, order.desired)):
            drained = await request_drain(self._store, self._leadership.holder, term.fence, pool.name, chosen)
            if drained:
                events.drained(pool.name, drained)
        loop_time = asyncio.get_running_loop().time()
        told, told_at = self._told.get(pool.name, (-1, float("-inf")))
        is_same = told == order.desired and loop_time - told_at < _RECONCILE.total_seconds()
        if order.start or drained or not is_same or calls.failure is not None:
            self._told[pool.name] = order.desired, loop_time
            calls.begin(partial(_call, driver, order, sorted(drained)), pool.driver, term, now)

    def _go_on(self, pool: Pool, stored: StoredPlan | None) -> None:
        """Begin with the failure that another autoscaler left."""
        is_known = pool.name in self._calls
        if stored and stored.failure and stored.failed_since and not is_known:
            self._calls_of(pool).go_on_from(stored.failure, stored.failed_since)

    def _calls_of(self, pool: Pool) -> DriverCalls:
        if pool.name not in self._calls:
            self._calls[pool.name] = DriverCalls(pool.name, self._driver_timeout)
        return self._calls[pool.name]

    def _to_write(self, pool: Pool, planned: Plan) -> PlanToWrite:
        calls = self._calls_of(pool)
        return PlanToWrite(pool.name, planned, calls.failure, calls.failed_since)

    async def _forget(self, but: Sequence[str]) -> None:
        """Give up the calls of all pools but these."""
        events.keep(but)
        for name in [*self._calls.keys() - {*but}]:
            self._told.pop(name, None)
            await self._calls.pop(name).close()

    def _tell_away(self, away: set[str]) -> None:
        for cell in sorted(away - self._away):
            events.log.warning(
                "a cell does not answer: what it said last counts, and pools that may have tasks there keep their workers",
                cell=cell,
            )
        for cell in sorted(self._away - away):
            events.log.info("cell answers again", cell=cell)
        self._away = away

    def _tell_unmeasured(self) -> None:
        if self._loads.unmeasured != self._unmeasured:
            self._unmeasured = self._loads.unmeasured
            events.log.warning("pools have more lambdas than are measured", left_out=self._unmeasured)


def choose_to_drain(found: Sequence[PoolWorker], desired: int) -> list[str]:
    """Return the workers that are to end so that the desired number is left: idle ones first, then the newest.

    >>> choose_to_drain([], 0)
    []
    """
    alive = [each for each in found if each.takes_tasks]
    order = sorted(
        alive, key=lambda each: (each.busy_slots, -each.first_reported_at.timestamp(), each.host_id)
    )
    return [each.host_id for each in order[: max(0, len(alive) - desired)]]


async def _call(driver: Driver, order: Order, drained: Sequence[str]) -> None:
    if drained:
        await driver.drain(order.pool, drained)
    await driver.ensure(order)


def _memory(stored: StoredPlan | None) -> Memory:
    return Memory() if stored is None else stored.memory


def _audited(name: str, before: int, planned: Plan, found: Sequence[PoolWorker]) -> str:
    counted: Workers = count_workers(found, 0)
    entry = {
        "pool": name,
        "from": before,
        "to": planned.desired,
        "alive": counted.alive,
        "reasons": [reason[:300] for reason in planned.reasons[:_MOST_AUDITED]],
    }
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
