"""What a Store Consumer does: enqueue, put back, take up silence."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from duly_core.tasks import polling
from duly_core.tasks.lifecycle import LIVE, READY, Status
from tests.models import store_answers
from tests.models.machine_base import ENQUEUE_TIMEOUT, LIMIT, PICKS, QUEUES, ROOMS, SPANS, MachineBase
from tests.models.model import Between


class ConsumerRules(MachineBase):
    """What a Store Consumer does: enqueue, put back, take up silence."""

    @precondition(lambda self: self.model.in_status(READY))
    @rule(sizes=ROOMS)
    def enqueue(self, sizes: list[int]) -> None:
        room = dict(zip(QUEUES, sizes, strict=True))
        taken = self.world.run(polling.enqueue(self.world.store, room, ENQUEUE_TIMEOUT))
        assert len({each.task_id for each in taken}) == len(taken), "one task is sent twice"
        for queue, size in room.items():
            chosen = [self.model.tasks[each.task_id] for each in taken if each.queue == queue]
            store_answers.chose(chosen, self.model.due(queue.lambda_name, queue.priority), size)
            for task in chosen:
                task.row.status, task.row.next_trigger_at = Status.ENQUEUED, self.model.now + ENQUEUE_TIMEOUT

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3), delay=SPANS)
    def put_back(self, numbers: list[int], delay: timedelta) -> None:
        picked = [self._pick(number, Status.ENQUEUED) for number in numbers]
        asked = {task.asked.task_id: task for task in picked}
        self.world.run(polling.put_back(self.world.store, list(asked), delay))
        for task in asked.values():
            if task.row.status is Status.ENQUEUED:
                task.row.status = Status.NEW
                task.row.next_trigger_at = Between(self.model.now, self.model.now + delay)

    @precondition(lambda self: self.model.in_status(LIVE))
    @rule(sizes=ROOMS)
    def end_silence(self, sizes: list[int]) -> None:
        room = dict(zip(QUEUES, sizes, strict=True))
        silence = self.world.run(polling.handle_timeouts(self.world.store, room, ENQUEUE_TIMEOUT, LIMIT))
        store_answers.silence(self.model, silence, room, self.model.now + ENQUEUE_TIMEOUT)
