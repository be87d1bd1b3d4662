"""The reasons of tasks that gates hold back. Whatever finds the gates of a task adds them here."""

from duly.v1 import explain_pb2
from duly_core.store.pool import Store
from duly_core.store.tasks import TaskRow

GATE = "gate:"
"""Begins what a task is parked on that a gate holds back."""


async def gate_reasons(_store: Store, _row: TaskRow) -> list[explain_pb2.Reason]:
    """Say which gates hold back a task that is due or will be; nothing holds it back yet: there are no gates."""
    return []
