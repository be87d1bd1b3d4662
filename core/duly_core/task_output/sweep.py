"""Removes the output of tasks that are gone, whatever removed them: retention, a dropped partition, a purge."""

from datetime import timedelta
from uuid import UUID

from duly_core.postgres.pool import Store
from duly_core.task_output.statements import OUTPUT

_FIRST = UUID(int=0)
_PAGE = 500
"""Tasks of one statement."""
_PAGES_A_ROUND = 20
_AT_ONCE = timedelta(milliseconds=100)
_EVERY = timedelta(minutes=10)


class OutputSweep:
    """Walks through all tasks with output, some pages a round. Several may walk at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = _FIRST
        self.removed = 0
        """Chunks, since the start."""

    async def run_once(self) -> timedelta:
        """Walk on; return when to go on.

        Raises:
            StoreUnavailableError: some pages are left for another time.
        """
        for _ in range(_PAGES_A_ROUND):
            page = await self._store.run(OUTPUT["forget_gone"], {"after": self._after, "limit": _PAGE})
            self.removed += sum(removed for _, removed in page)
            if len(page) < _PAGE:
                self._after = _FIRST
                return _EVERY
            self._after = UUID(bytes=page[-1][0])
        return _AT_ONCE
