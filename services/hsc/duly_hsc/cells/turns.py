"""ClaimWork for lambdas of several cells: fair turns, and one long poll in all of them.

The cells are asked one after another whether something is due now, and each call begins with the next one. So a busy cell takes
no turn of another. A cell in which nothing is due answers without a statement. The call then waits in all of them, and the first
with work answers it. One cell at a time looks for the call (`look_turn`). What a second one claimed all the same, because the first did
not answer soon, is handed back, uncharged.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from duly_core.errors import StoreUnavailableError
from duly_hsc.cells.served import ServedCell, ServedCells
from duly_hsc.convert import WorkRequest
from duly_hsc.work.caller_groups import Claimed
from duly_hsc.work.look_turn import LookTurn
from duly_wire.v1 import hsc_pb2

_HEAD_START = 0.1
"""Seconds that a cell has for what is due now before the next one is asked, too."""
_LOST_WITHIN = 1.0
"""Seconds for what a lost request brought; later it is handed back."""
_LOOK_AGAIN = 0.1
"""Seconds, at least, until a cell is asked again that ended a call early: its unit is replaced."""


class Turns:
    """Asks several cells for one caller."""

    def __init__(self, cells: ServedCells) -> None:
        """Make one."""
        self._cells = cells
        self._turn: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._background: set[asyncio.Task[Claimed]] = set()

    async def claim_work(
        self, asked: WorkRequest, lambdas: Mapping[str, frozenset[str]]
    ) -> hsc_pb2.ClaimWorkResponse:
        """Answer with tasks of one cell.

        Args:
            asked: what the caller asks for.
            lambdas: its lambdas, by cell.

        Raises:
            StoreUnavailableError: all of these cells are away.
        """
        if asked.lost_prefixes and (found := await self._find_lost(asked, lambdas)) is not None:
            return found
        return await _Poll(self._cells, asked, self._in_turn(lambdas), lambdas).answer()

    def _in_turn(self, lambdas: Mapping[str, frozenset[str]]) -> list[str]:
        names = tuple(lambdas)
        first = self._turn[names] % len(names)
        self._turn[names] = first + 1
        return [*names[first:], *names[:first]]

    async def _find_lost(
        self, asked: WorkRequest, lambdas: Mapping[str, frozenset[str]]
    ) -> hsc_pb2.ClaimWorkResponse | None:
        """Claim what lost requests brought, in one cell; hand back what they brought in others. None: they brought nothing."""
        asking: dict[asyncio.Task[Claimed], ServedCell] = {}
        for name, names in lambdas.items():
            cell = self._cells.get(name)
            if cell is None or not cell.pause.may_try():
                self._cells.owe(name, asked.lost_prefixes)
                continue
            part = replace(asked, lambdas=names)
            asking[asyncio.get_running_loop().create_task(cell.servicer.claim_lost(part))] = cell
        if not asking:
            return None
        try:
            await asyncio.wait(asking, timeout=_LOST_WITHIN)
        except asyncio.CancelledError:
            for task, cell in asking.items():
                self._give_up_later(task, cell)
            raise
        found: tuple[ServedCell, Claimed] | None = None
        for task, cell in asking.items():
            if not task.done():
                self._give_up_later(task, cell)
            elif task.exception() is not None:
                self._cells.owe(cell.name, asked.lost_prefixes)
                cell.pause.failed()
            elif task.result().tasks:
                if found is None:
                    found = cell, task.result()
                else:
                    cell.servicer.give_up(task.result().tasks)
        if found is None:
            return None
        with self._cells.naming(found[0]):
            return await found[0].servicer.answer(found[1])

    def _give_up_later(self, task: "asyncio.Task[Claimed]", cell: ServedCell) -> None:
        """Hand back what comes of this once it is done."""
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(lambda done: _give_up(done, cell))


class _Poll:
    """One call."""

    def __init__(
        self,
        cells: ServedCells,
        asked: WorkRequest,
        names: Sequence[str],
        lambdas: Mapping[str, frozenset[str]],
    ) -> None:
        self._cells = cells
        self._asked = asked
        self._lambdas = lambdas
        self._loop = asyncio.get_running_loop()
        self._arrived_at = self._loop.time()
        self._ends_at = self._arrived_at + asked.timeout.total_seconds()
        self._running: dict[asyncio.Task[Claimed], ServedCell] = {}
        self._idle = list(names)
        """Cells that are not asked now."""
        self._reason: StoreUnavailableError | None = None
        self._turn = LookTurn()
        self._answered: ServedCell | None = None
        """A cell that has said that nothing is due."""

    async def answer(self) -> hsc_pb2.ClaimWorkResponse:
        """Answer with tasks of one cell; without any when the time is over.

        Raises:
            StoreUnavailableError: all cells are away.
        """
        try:
            found = await self._find()
        finally:
            for task, cell in self._running.items():
                task.cancel()
                task.add_done_callback(lambda done, cell=cell: _give_up(done, cell))  # type: ignore[misc]
        if found is None and self._answered is not None:  # its terms are those of a claim
            found = self._answered, Claimed([], timedelta())
        if found is None:
            return hsc_pb2.ClaimWorkResponse()
        with self._cells.naming(found[0]):
            return await found[0].servicer.answer(found[1])

    async def _find(self) -> tuple[ServedCell, Claimed] | None:
        while not self._cells.is_closed:
            if (found := await self._begin()) is not None:
                return found
            if not self._running:
                if self._reason is not None and self._answered is None:
                    raise self._reason
                if self._ends_at <= self._loop.time():
                    return None
            if (found := await self._wait((), self._next_try())) is not None:
                return found
        return None

    def _next_try(self) -> float | None:
        """Return the seconds until a cell that is not asked may be; None: there is none."""
        pauses = [
            _LOOK_AGAIN if (cell := self._cells.get(name)) is None else max(_LOOK_AGAIN, cell.pause.left())
            for name in self._idle
        ]
        return min(pauses, default=None)

    async def _begin(self) -> tuple[ServedCell, Claimed] | None:
        """Ask the cells that are not asked yet, one after another; return what the first with work claimed."""
        for name in (*self._idle,):
            if self._answered is not None and self._ends_at <= self._loop.time():
                return None
            cell = self._cells.get(name)
            if cell is None or not cell.pause.may_try():
                self._reason = self._reason or self._cells.reason_of(name)
                continue
            self._idle.remove(name)
            looked: asyncio.Future[None] = self._loop.create_future()
            task = self._loop.create_task(self._poll(cell, looked))
            self._running[task] = cell
            if cell.pause.is_slow():
                continue
            if (found := await self._wait((looked,), _HEAD_START)) is not None:
                return found
            if not looked.done():
                cell.pause.was_slow()
        return None

    async def _poll(self, cell: ServedCell, looked: "asyncio.Future[None]") -> Claimed:
        """Claim what is due in a cell now; if nothing is, wait for it."""
        try:
            claimed = await self._claim(cell, timedelta())
            cell.pause.answered()
            self._answered = cell
        finally:
            if not looked.done():
                looked.set_result(None)
        left = self._ends_at - self._loop.time()
        if claimed.tasks or left <= 0:
            return claimed
        return await self._claim(cell, timedelta(seconds=left))

    async def _claim(self, cell: ServedCell, timeout: timedelta) -> Claimed:
        asked, began_at = self._asked, self._loop.time()
        claimed = await cell.servicer.claim_for(
            asked.caller,
            self._lambdas[cell.name],
            asked.most,
            timeout,
            asked.priorities,
            None if cell.pause.is_slow() else self._turn,
        )
        # the caller counts its lease from when it sent the call
        before = timedelta(seconds=began_at - self._arrived_at)
        return replace(claimed, waited=claimed.waited + before) if claimed.tasks else claimed

    async def _wait(
        self, others: Iterable["asyncio.Future[None]"], seconds: float | None
    ) -> tuple[ServedCell, Claimed] | None:
        """Wait for the end of a poll, or of one of `others`; return what it claimed."""
        waits: list[asyncio.Future[Any]] = [*self._running, *others]
        if not waits:
            await asyncio.sleep(min(seconds or 0.0, max(0.0, self._ends_at - self._loop.time())))
            return None
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task, cell in list(self._running.items()):
            if not task.done():
                continue
            del self._running[task]
            error = task.exception()
            if isinstance(error, StoreUnavailableError):
                cell.pause.failed()
                self._reason = StoreUnavailableError(f"cell {cell.name}: {error}")
                self._idle.append(cell.name)
            elif error is not None:
                raise error
            elif task.result().tasks:
                return cell, task.result()
            elif self._ends_at > self._loop.time():
                self._idle.append(cell.name)  # its unit stops: it is asked again under its next address
        return None


def _give_up(done: "asyncio.Task[Claimed]", cell: ServedCell) -> None:
    """Hand back what nobody gets."""
    if not done.cancelled() and done.exception() is None:
        cell.servicer.give_up(done.result().tasks)
