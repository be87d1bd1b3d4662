"""What a Store Consumer does, when it is told to and not by itself: timeouts, ticks, gates, breakers."""

from collections.abc import Collection
from datetime import timedelta

from duly_core.config.timing import Timing
from duly_core.gates.cache import GateCache
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_hsc.breaker_counts import BreakerCounts
from duly_server.stepped.clock import Look, SteppedClock
from duly_store_consumer.breaker_loop import BreakerLoop
from duly_store_consumer.gate_loop import GateLoop
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.time_table_loop import TimeTableLoop
from duly_store_consumer.timeouts import Timeouts
from duly_store_consumer.turn_loop import TurnLoop

_FOREVER = timedelta(days=3650)
_MOST_ROUNDS = 1_000
"""Of one kind at one instant."""


class Rounds:
    """`settle` does all that is due now."""

    def __init__(
        self, store: Store, clock: SteppedClock, gates: GateCache, counts: BreakerCounts, notifier: Notifier
    ) -> None:
        """Make one; `gates` and `counts` are those of the HSC of this process."""
        self._store = store
        self._gates = gates
        self._counts = counts
        self._notifier = notifier
        self._live_config = LiveConfig(store, StoreConsumerSettings(), gates)
        self._timeouts = Timeouts(
            store,
            ReclaimGuard(Timing(), clock.nanoseconds),
            self._live_config,
            lambda: gates.breaker_lambdas,
        )
        self._time_tables = TimeTableLoop(
            store,
            lambda: _FOREVER,
            lambda lambdas, tasks: notifier.due_in(timedelta(), lambdas, tasks),
        )
        self._turns = TurnLoop(store, gates)
        self._breakers = BreakerLoop(store, gates, self._names, notifier.due_in)
        self._turn = 0.0
        """For what is not done twice within a short time: each look counts as one at another time."""
        self._gate_changes = -1

    def _names(self) -> Collection[str]:
        return self._live_config.lambdas

    @property
    def queues(self) -> list[str]:
        """The names of all queues, as they were last read."""
        return self._live_config.lambdas

    async def read(self) -> None:
        """Read lambdas, settings and gates again: what a test has changed holds at once."""
        self._turn += 60.0
        self._live_config.changed()
        await self._live_config.read(self._turn)
        await self._give_turns()

    async def settle(self, look: Look) -> bool:
        """Do what `look` found; return whether anything was done."""
        done = await self._handle_timeouts() if look.timeouts else False
        if look.ticks:
            done |= await self._fire_ticks()
        if look.gates or self._gates.changes != self._gate_changes:
            await self._see_to_gates()
        return done

    async def _handle_timeouts(self) -> bool:
        done = False
        for _ in range(_MOST_ROUNDS):
            self._turn += 60.0
            found, _pause = await self._timeouts.handle_due(self._turn)
            if found.problem is not None:
                raise found.problem
            if not (found.again or found.ended or found.uncompleted or found.revoked or found.released):
                return done
            done = True
        return done

    async def _fire_ticks(self) -> bool:
        return await self._time_tables.run_once() <= timedelta()  # the next look finds what is left

    async def _give_turns(self) -> None:
        """Find out which lambdas have fair keys, and let the HSC know."""
        for _ in range(2):  # a lambda whose first fair key is found now has its turns in the second
            await self._gates.run_once()
            for _ in range(_MOST_ROUNDS):
                if await self._turns.run_once() > timedelta():
                    break

    async def _see_to_gates(self) -> None:
        await self._gates.run_once()
        await self._counts.run_once()
        await self._breakers.run_once()
        await self._gates.run_once()
        # a new loop remembers no rest that it would have to keep
        loop = GateLoop(self._store, self._gates, self._names, self._notifier.due_in, has_queues=False)
        for _ in range(_MOST_ROUNDS):
            if await loop.run_once() > timedelta():
                break
        self._gate_changes = self._gates.changes
