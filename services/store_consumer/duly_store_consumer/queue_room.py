"""Tells how many references each queue may be sent, and asks for the depth of those it is unsure of."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import FULL, QueueSender
from duly_store_consumer import events
from duly_store_consumer.depth_limits import DepthLimits
from duly_store_consumer.live_config import LiveConfig

_MOST_A_STATEMENT = 10_000
_SHOWN_EVERY = 1.0
"""Seconds between two updates of the metric."""


class QueueRoom:
    """Feeds the depth limits, which do the arithmetic; fails if no queue tells its depth."""

    def __init__(self, sender: QueueSender, live_config: LiveConfig) -> None:
        self._sender = sender
        self._live_config = live_config
        self._shown_at = float("-inf")
        settings = live_config.settings
        self.limits = DepthLimits(
            settings.depth_horizon, settings.min_depth, settings.max_depth, sender.depth_age
        )

    async def for_due(self, now: float) -> dict[QueueKey, int]:
        """Return the room for what is due, best priorities first; full queues are left out."""
        queues = self._live_config.open_queues
        await self._look(self.limits.unsure(queues, now), now)
        room = self.limits.room(queues, self._live_config.settings.batch, now)
        total = max(_MOST_A_STATEMENT, sum(room.values()))
        ordered = sorted(room.items(), key=lambda entry: entry[0].priority)
        return {key: max(1, free * _MOST_A_STATEMENT // total) for key, free in ordered}

    async def for_lost(self, now: float, most: int, just_sent: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """Return the room for lost references: at least one, or they would wait until a full queue has room.

        What this round has just sent took none of it: what is lost is older than what is due.
        """
        queues = self._live_config.queues
        with suppress(QueueUnavailableError):  # the sending will say so
            await self._look(self.limits.unsure(queues, now), now)
        room = self.limits.room(queues, most, now)
        return {key: max(1, min(most, room.get(key, 0) + just_sent.get(key, 0))) for key in queues}

    async def refresh(self, now: float) -> None:
        """Ask for the depths that are out of date."""
        await self._look(self.limits.stale(self._live_config.queues, now), now)
        if now - self._shown_at >= _SHOWN_EVERY:
            self._shown_at = now
            events.queue_depths(self.limits.depths())

    async def _look(self, queues: Sequence[QueueKey], now: float) -> None:
        if not queues:
            return
        try:
            answers = await self._sender.depth(queues)
        except QueueUnavailableError:
            self.limits.not_told(queues, now)
            raise
        depths = {key: depth for key in queues if (depth := answers.get(key, 0)) < FULL}
        self.limits.not_told([key for key in queues if key not in depths], now)
        self.limits.looked(depths, now)
