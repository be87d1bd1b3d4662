"""The queues as the Store Consumer has to do with them: how deep each is, and how references get there."""

from collections import Counter as Count
from collections.abc import Mapping, Sequence
from datetime import timedelta

from duly_core import failpoints
from duly_core.errors import QueueUnavailableError
from duly_core.queues.message import batches
from duly_core.queues.port import FULL, QueueSender
from duly_core.routing import QueueKey
from duly_core.store import polling
from duly_core.store.pool import Store
from duly_core.task import DueTask, TaskId
from duly_store_consumer import events
from duly_store_consumer.queue_depth import DepthLimits


class ReferenceSender:
    """Tells the bounds what it sees and sends."""

    def __init__(self, store: Store, sender: QueueSender, bounds: DepthLimits) -> None:
        self._store = store
        self._sender = sender
        self._bounds = bounds

    async def look(self, queues: Sequence[QueueKey], now: float) -> None:
        """Look how deep these are.

        Raises:
            QueueUnavailableError: none of them tells.
        """
        if not queues:
            return
        try:
            answers = await self._sender.depth(queues)
        except QueueUnavailableError:
            self._bounds.not_told(queues, now)
            raise
        depths = {key: answers.get(key, 0) for key in queues}
        self._bounds.not_told([key for key, depth in depths.items() if depth >= FULL], now)
        self._bounds.looked({key: depth for key, depth in depths.items() if depth < FULL}, now)
        for key, depth in depths.items():
            events.depth(key, depth)

    async def send_due(
        self, room: Mapping[QueueKey, int], now: float, enqueue_timeout: timedelta, put_back_delay: timedelta
    ) -> Count[QueueKey]:
        """Enqueue what is due as far as there is room, and send it; returns how many references each queue got.

        Raises:
            StoreUnavailableError: nothing was done, or perhaps all.
            QueueUnavailableError: nothing could be sent; it is put back.
        """
        due = await polling.enqueue(self._store, room, enqueue_timeout)
        await self.push(due, "due", now, put_back_delay)
        return Count(task.queue for task in due)

    async def push(self, tasks: Sequence[DueTask], kind: str, now: float, put_back_delay: timedelta) -> None:
        """Send references to tasks that are marked `enqueued`; what cannot be sent is put back.

        Raises:
            QueueUnavailableError: nothing could be sent.
        """
        if not tasks:
            return
        by_queue: dict[QueueKey, list[TaskId]] = {}
        for task in tasks:
            by_queue.setdefault(task.queue, []).append(task.task_id)
        for key, task_ids in by_queue.items():
            self._bounds.sent(key, len(task_ids), now)
        messages = batches(by_queue)
        try:
            await failpoints.hit("store_consumer.push.before")
            failed = await self._sender.send(messages)
        except QueueUnavailableError:
            await self._put_back(tasks, put_back_delay)
            raise
        await failpoints.hit("store_consumer.push.after")
        events.sent(Count(task.queue for task in tasks), kind)
        if failed:
            lost = {task_id for message in failed for task_id in message.task_ids}
            await self._put_back([task for task in tasks if task.task_id in lost], put_back_delay)

    async def _put_back(self, tasks: Sequence[DueTask], delay: timedelta) -> None:
        events.unsent(tasks)
        await failpoints.hit("store_consumer.put_back.before")
        await polling.put_back(self._store, [task.task_id for task in tasks], delay)
