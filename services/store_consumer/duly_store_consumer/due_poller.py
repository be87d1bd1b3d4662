"""Enqueues what is due and sends it to its queues, as far as they have room.

Update, then push: pushed first, a fast Controller could claim before the row says `enqueued`, be refused,
and delete the only message.
"""

import asyncio
from collections import Counter as Count
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.fairness.cursors import TurnCursors
from duly_core.gates.scans import GateScans
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.tasks import polling
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.queue_room import QueueRoom
from duly_store_consumer.reference_sender import ReferenceSender

_FULL_QUEUE_PAUSE = timedelta(milliseconds=20)
_GATED_QUEUE_PAUSE = timedelta(milliseconds=100)
"""A gate holds some of what is due there: until it is parked, or the gate's probes have ended, it stands first."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll did."""

    sent: Count[QueueKey] = field(default_factory=Count)
    full: frozenset[QueueKey] = frozenset()
    """Queues without room."""
    due_at: float | None = None
    """When something is due, on the loop's clock; None: not known yet."""


class DuePoller:
    """Asks before it locks rows, unless something may be due."""

    def __init__(
        self, store: Store, live_config: LiveConfig, room: QueueRoom, sender: ReferenceSender
    ) -> None:
        self._store = store
        self._live_config = live_config
        self._room = room
        self._sender = sender
        self._scans = GateScans()
        self._cursors = TurnCursors()

    async def poll(self, now: float, *, may_be_due: bool) -> Poll:
        """Enqueue what is due and send it; what cannot be sent is put back."""
        if not may_be_due:
            due_in = await self._due_in()
            if due_in > timedelta():
                return Poll(due_at=asyncio.get_running_loop().time() + due_in.total_seconds())
        settings = self._live_config.settings
        room = await self._room.for_due(now)
        gates = self._live_config.gates
        due = await polling.enqueue(
            self._store,
            room,
            settings.enqueue_timeout,
            gates,
            self._scans,
            fair=self._live_config.fair,
            cursors=self._cursors,
        )
        await self._sender.send(due, "due", now, settings.put_back_delay)
        return Poll(Count(task.queue for task in due), frozenset(self._live_config.open_queues) - room.keys())

    async def next_due_at(self, poll: Poll) -> float:
        """Return when something is due after this poll, on the loop's clock."""
        if poll.due_at is not None:
            return poll.due_at
        due_in = await self._due_in(poll.full)
        return asyncio.get_running_loop().time() + due_in.total_seconds()

    async def _due_in(self, full: frozenset[QueueKey] = frozenset()) -> timedelta:
        """Ask how long until something is due; a full queue is tried again soon, but not at once."""
        interval = self._live_config.settings.poll_interval
        ahead = await polling.next_triggers(self._store, self._live_config.open_queues, interval)
        waits = [max(_FULL_QUEUE_PAUSE, wait) if key in full else wait for key, wait in ahead.items()]
        if gates := self._live_config.gates:
            waits = [
                max(_GATED_QUEUE_PAUSE, wait)
                if gates.of(key.lambda_name).of_rows and not self._scans.has_more(key)
                else wait
                for key, wait in zip(ahead, waits, strict=True)
            ]
        # the next round, which is no later than the interval, asks again before it locks rows
        return min(waits, default=2 * interval)
