"""Sends references to tasks that are marked `enqueued`, and puts back what cannot be sent."""

from collections import Counter as Count
from collections.abc import Callable, Sequence
from datetime import timedelta

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.process import failpoints
from duly_core.queues.message import batches
from duly_core.queues.port import QueueSender
from duly_core.tasks import polling
from duly_core.tasks.task import DueTask
from duly_store_consumer import events
from duly_store_consumer.depth_limits import DepthLimits
from duly_wire.ids import TaskId


class ReferenceSender:
    """Reports what it sends to the depth limits."""

    def __init__(
        self, store: Store, sender: QueueSender, limits: DepthLimits, on_due: Callable[[], None]
    ) -> None:
        """Make one; `on_due` is called when other tasks are due since some were put back."""
        self._on_due = on_due
        self._store = store
        self._sender = sender
        self._limits = limits

    async def send(self, tasks: Sequence[DueTask], kind: str, now: float, put_back_delay: timedelta) -> None:
        """Send references; `kind` is `due` or `again`.

        Raises:
            QueueUnavailableError: nothing could be sent; all are put back.
        """
        if not tasks:
            return
        by_queue: dict[QueueKey, list[TaskId]] = {}
        for task in tasks:
            by_queue.setdefault(task.queue, []).append(task.task_id)
        for key, task_ids in by_queue.items():
            self._limits.sent(key, len(task_ids), now)
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
        if await polling.put_back(self._store, [task.task_id for task in tasks], delay):
            self._on_due()
