"""Write new tasks: entity and assoc in one statement, once, however often it is asked."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from duly_core.store.arrays import byteas, int2s, intervals, texts, timestamps, uuids
from duly_core.store.pool import Store
from duly_core.store.statements import READS, TRANSITIONS
from duly_core.task import NewTask, Scheduled, Scheduling, TaskId


async def schedule(store: Store, tasks: Sequence[NewTask]) -> list[Scheduled]:
    """Write what is not there yet; answer for each task in order.

    Repeating a call is safe: a task that is there already under the same id or key is REPEATED if it says
    the same (lambda, payload, priority, collection), and a CONFLICT if not.

    Raises:
        StoreUnavailableError: nothing is known of the outcome; ask again with the same tasks.
    """
    # one order of locks for all callers, so that two batches with the same keys cannot deadlock
    ordered = sorted(
        range(len(tasks)),
        key=lambda place: (
            tasks[place].lambda_name if tasks[place].idempotency_key else "",
            tasks[place].idempotency_key or "",
            tasks[place].task_id,
        ),
    )
    batch = [tasks[place] for place in ordered]
    parameters: dict[str, Any] = {
        "task_ids": uuids(task.task_id for task in batch),
        "lambdas": texts([task.lambda_name for task in batch]),
        "collections": texts([task.collection for task in batch]),
        "priorities": int2s([task.priority for task in batch]),
        "encodings": int2s([task.encoding for task in batch]),
        "payloads": byteas([task.payload for task in batch]),
        "keys": texts([task.idempotency_key for task in batch]),
    }
    rows = await store.run(
        TRANSITIONS["schedule"],
        parameters
        | {
            "scheduled_at": timestamps([task.scheduled_at for task in batch]),
            "delays": intervals([task.delay for task in batch]),
            "expires_at": timestamps([task.expires_at for task in batch]),
        },
    )
    created: dict[TaskId, timedelta] = {row[0]: row[1] for row in rows}
    found: dict[int, tuple[TaskId, bool]] = {}
    if len(created) < len(tasks):
        found = {row[0]: (row[1], row[2]) for row in await store.run(READS["existing"], parameters)}
    answers = {}
    for number, place in enumerate(ordered, start=1):
        task = tasks[place]
        # of tasks that share an id in this very batch, one that says what was written is the created one
        if task.task_id in created and found.get(number, (task.task_id, True)) == (task.task_id, True):
            due_in = created.pop(task.task_id)
            answers[place] = Scheduled(Scheduling.CREATED, task.task_id, due_in=due_in)
        else:
            answers[place] = _explain(task, found.get(number))
    return [answers[place] for place in range(len(tasks))]


def _explain(task: NewTask, found: tuple[TaskId, bool] | None) -> Scheduled:
    if found is None:
        return Scheduled(Scheduling.UNKNOWN_LAMBDA, task.task_id)
    holder, same = found
    return Scheduled(Scheduling.REPEATED if same else Scheduling.CONFLICT, holder)
