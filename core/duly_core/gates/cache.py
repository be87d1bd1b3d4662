"""What a service remembers of gates: all that are in force, compared with the store each second and when one changed.

With them it remembers what else decides which tasks a pick takes, and changes rarely: which lambdas have keys that take turns.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from duly_core.fairness.store import FairLambdas, fair_lambdas
from duly_core.gates import store as store_gates
from duly_core.gates.ends import GateEnds
from duly_core.gates.rules import NO_GATES, Gate, GateSet
from duly_core.postgres.pool import Store
from duly_core.process.pace import USUAL, Pace

INTERVAL = timedelta(seconds=1)
"""How long a change may go unnoticed without its notification."""


class Gates(Protocol):
    """Who knows the gates in force."""

    @property
    def now(self) -> GateSet:
        """Those that were last read; none before the first read."""
        ...

    @property
    def fair(self) -> FairLambdas:
        """Those whose keys take turns, as they were last read."""
        ...

    @property
    def ends(self) -> GateEnds:
        """When gates ended that were in force."""
        ...

    async def known(self) -> GateSet:
        """Return those that were last read, and read them if nobody has.

        Raises:
            StoreUnavailableError: nobody has, and the store does not answer.
        """
        ...


class FixedGates:
    """Gates that do not change, for tests and for who has none."""

    def __init__(self, now: GateSet = NO_GATES, fair: FairLambdas | None = None) -> None:
        self.now = now
        self.fair = fair or {}
        self.ends = GateEnds()

    async def known(self) -> GateSet:
        """Return them."""
        return self.now


class GateCache:
    """`run_once` reads them; `wake` cuts the pause between two reads short."""

    def __init__(self, store: Store, changed: Callable[[], None] = lambda: None, pace: Pace = USUAL) -> None:
        """Make one; `changed` is called when others are in force than before."""
        self._pace = pace
        self.wake = asyncio.Event()
        self.now = NO_GATES
        self.fair: FairLambdas = {}
        self.breaker_lambdas: frozenset[str] = frozenset()
        """Those that have breakers."""
        self._store = store
        self._changed = changed
        self.changes = 0
        """How often others were in force than before."""
        self._version = -1
        self._gates: list[Gate] = []
        self._clock: tuple[datetime, float] | None = None
        """An instant of the store's clock, and the loop's time then."""
        self._lock = asyncio.Lock()
        self.ends = GateEnds()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when others are in force than before."""
        self._changed = changed

    def may_have_changed(self) -> None:
        """Read them again."""
        self.wake.set()

    async def known(self) -> GateSet:
        """Return those that were last read, and read them if nobody has.

        Raises:
            StoreUnavailableError: nobody has, and the store does not answer.
        """
        if self._version < 0:
            async with self._lock:
                if self._version < 0:
                    await self._read()
        return self.now

    async def run_once(self) -> timedelta:
        """Read what changed, and forget what expired; return when to come back.

        Raises:
            StoreUnavailableError: they cannot be read; what was known holds on, and ends when it expires.
        """
        try:
            await self._read()
        finally:
            next_end = self._forget_expired()
        if self._gates or self.breaker_lambdas:
            return min(INTERVAL, next_end)
        return self._pace.rest(INTERVAL, self.wake)

    async def _read(self) -> None:
        found = await store_gates.read_gates(self._store, self._version)
        # the answer came later than that: so no gate ends early
        self._clock = found.read_at, asyncio.get_running_loop().time()
        if found.gates is not None:
            lasting = {gate.gate_id for gate in found.gates}
            self.ends.note((gate for gate in self._gates if gate.gate_id not in lasting), found.read_at)
            self.breaker_lambdas = await store_gates.breaker_lambdas(self._store)
            self.fair = await fair_lambdas(self._store)
            self._version, self._gates = found.version, found.gates
            self._take()

    def store_time(self) -> datetime:
        """Return the time by the store's clock, once it was read."""
        if self._clock is None:
            message = "the gates were not read yet"
            raise RuntimeError(message)
        read_at, asked_at = self._clock
        return read_at + timedelta(seconds=asyncio.get_running_loop().time() - asked_at)

    def _take(self) -> None:
        self.changes += 1
        self.now = GateSet(self._gates)
        self._changed()

    def _forget_expired(self) -> timedelta:
        """Leave out what has expired by the store's clock; return how long until the next does."""
        if self._clock is None:
            return INTERVAL
        now = self.store_time()
        lasting = [gate for gate in self._gates if gate.expires_at is None or gate.expires_at > now]
        if len(lasting) < len(self._gates):
            self.ends.note((gate for gate in self._gates if gate not in lasting), now)
            self._gates = lasting
            self._take()
        return min(
            (gate.expires_at - now for gate in lasting if gate.expires_at is not None), default=INTERVAL
        )
