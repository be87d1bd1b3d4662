"""Keep what callbacks hand over for their next attempt."""

from collections.abc import Iterable
from typing import Protocol

from duly_core.postgres.arrays import byteas, uuids
from duly_core.postgres.pool import Connection, fetch
from duly_core.postgres.statements import ENTITIES
from duly_core.tasks.task import Token
from duly_wire.ids import TaskId


class Report(Protocol):
    """A heartbeat, a result or a release."""

    @property
    def task_id(self) -> TaskId: ...
    @property
    def token(self) -> Token: ...
    @property
    def checkpoint(self) -> bytes | None: ...


async def keep_checkpoints(connection: Connection, reports: Iterable[Report]) -> None:
    """Write the checkpoints of those that have one and whose token is current; the others are passed over.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, it is written again.
    """
    kept = {each.token: each for each in reports if each.checkpoint is not None}  # of one claim the last
    if not kept:
        return
    batch = sorted(kept.values(), key=lambda each: each.task_id)
    parameters = {
        "task_ids": uuids([each.task_id for each in batch]),
        "tokens": uuids([each.token for each in batch]),
        "checkpoints": byteas([each.checkpoint for each in batch]),
    }
    await fetch(connection, ENTITIES["keep_checkpoints"], parameters)
