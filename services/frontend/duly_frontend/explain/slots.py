"""Says which tasks hold the slots that a task waits for."""

from collections import Counter
from datetime import timedelta

from duly_core.access.current import restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.explain.slots import read_taken_slots
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import command, may_be_named, number, reason, related, span
from duly_wire.v1 import explain_pb2

_LONG = timedelta(seconds=10)
"""A task that has held a slot for so long may hang: how to end it is said."""


async def slot_reasons(store: Store, row: TaskRow, scope: Scope | None) -> list[explain_pb2.Reason]:
    """Say that all slots of the Executors that serve its lambda are taken, and by which tasks; nothing if some are free.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    taken = await read_taken_slots(store, row["lambda"])
    if taken is None or not taken.holders:
        return []
    shown = [each for each in taken.holders if may_be_named(each, scope)]
    text = f"{taken.slots:,} of {taken.slots:,} slots of the Executors that serve {row['lambda']} are taken"
    action = "wait until others end, or add workers or slots"
    since_at = None
    if shown:
        since_at = shown[0]["held_since_at"]
        lambdas = Counter(each["lambda"] for each in shown)
        of = ", ".join(f"{count} of {name}" for name, count in lambdas.most_common(3))
        text += f"; the longest have been held for {span(row['now'] - since_at)}: {of}"
        if dying := sum(each["kill_requested"] for each in shown):
            text += f"; {number(dying, 'task')} of these {'is' if dying == 1 else 'are'} about to be killed"
        changeable = restriction(Action.CHANGE)
        mine = [each for each in shown if may_be_named(each, changeable) and not each["kill_requested"]]
        if mine and row["now"] - mine[0]["held_since_at"] > _LONG:
            action += "; if the first hangs: " + command("cancel", "--kill", str(mine[0]["task_id"]))
    return [
        reason(
            explain_pb2.REASON_KIND_SLOTS_TAKEN,
            text,
            action,
            since_at=since_at,
            limit=taken.slots,
            tasks=[_holder(each) for each in shown],
        )
    ]


def _holder(row: TaskRow) -> explain_pb2.RelatedTask:
    message = related(row)
    message.holder = row["holder"]
    return message
