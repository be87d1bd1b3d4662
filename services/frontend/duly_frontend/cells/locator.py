"""Finds out in which cell something is that does not say it: asks the cells that answer, by primary key, all at once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly_core.access.current import restriction
from duly_core.access.methods import NEEDS
from duly_core.access.roles import Action
from duly_core.errors import StoreUnavailableError
from duly_core.graphs.reads import get_graphs
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.scope import task_origins
from duly_core.time_tables import store as time_tables
from duly_frontend.cells.cell_units import CellUnit
from duly_frontend.cells.routes import Form
from duly_wire.completion_tokens import read_completion_token

CELL_WITHIN = timedelta(seconds=2)
"""A cell that has not answered by then counts as away: others are not kept waiting for it."""

Look = Callable[[Store, Collection[Any], Action | None], Awaitable[Mapping[Any, bool]]]
"""Returns which of these a store has, and whether the caller may reach each."""


async def _tasks(store: Store, ids: Collection[bytes], action: Action | None) -> Mapping[bytes, bool]:
    scope = restriction(action) if action is not None else None
    origins = await task_origins(store, ids)
    return {task_id: scope is None or scope.reaches(*origin) for task_id, origin in origins.items()}


async def _graphs(store: Store, ids: Collection[bytes], action: Action | None) -> Mapping[bytes, bool]:
    scope = restriction(action) if action is not None else None
    return dict.fromkeys(await get_graphs(store, list(ids), scope), True)


async def _time_tables(store: Store, names: Collection[str], _action: Action | None) -> Mapping[str, bool]:
    return dict.fromkeys(await time_tables.get(store, list(names)), True)


def _id_of(text: str) -> bytes | None:
    try:
        return parse_task_id(text)
    except Problem:
        return None


def _id_of_token(token: str) -> bytes | None:
    try:
        return read_completion_token(token)[0]
    except ValueError:
        return None


def _name(text: str) -> str | None:
    return text if text and "\x00" not in text else None


READERS: Mapping[Form, Callable[[Any], Hashable | None]] = {
    Form.TASK: _id_of,
    Form.TASK_BYTES: lambda task_id: task_id if len(task_id) == len(UUID(int=0).bytes) else None,
    Form.COMPLETION_TOKEN: _id_of_token,
    Form.GRAPH: _id_of,
    Form.TIME_TABLE: _name,
}
"""What cells are asked for; None: it is invalid, and any cell says so."""

_LOOKS: Mapping[Form, Look] = {
    Form.TASK: _tasks,
    Form.TASK_BYTES: _tasks,
    Form.COMPLETION_TOKEN: _tasks,
    Form.GRAPH: _graphs,
    Form.TIME_TABLE: _time_tables,
}


@dataclass(slots=True)
class Located:
    """Where things are."""

    cells: dict[Hashable, str] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)
    """Cells that did not answer: what is not found may be there."""


class Locator:
    """A cell that does not answer is not waited for once all is found in others."""

    def __init__(self) -> None:
        self._looking: set[asyncio.Task[Mapping[Any, bool]]] = set()

    async def locate(
        self,
        form: Form,
        path: str,
        keys: Collection[Hashable],
        units: Mapping[str, CellUnit | None],
        within: timedelta,
    ) -> Located:
        """Find what a call names.

        Callers make the ids: if several cells have one, that of which the caller may reach the task counts.

        Args:
            form: of the keys.
            path: of the method.
            keys: as READERS have them.
            units: of all cells, by name; None: it is not served here.
            within: how long the call may still take.
        """
        found = Located()
        beyond: dict[Hashable, str] = {}
        looks: dict[asyncio.Task[Mapping[Any, bool]], str] = {}
        need = NEEDS.get(path)
        for name, unit in units.items():
            if unit is not None and unit.is_serving:
                looks[self._look(form, unit, keys, None if need is None else need.action)] = name
            else:
                found.away.append(name)
        wanted = set(keys)
        pending = set(looks)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(within, CELL_WITHIN).total_seconds()
        while pending and wanted:
            done, pending = await asyncio.wait(
                pending, timeout=max(0.0, end - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for look in done:
                try:
                    answer = look.result()
                except (StoreUnavailableError, TimeoutError):
                    found.away.append(looks[look])
                    continue
                for key, is_reachable in answer.items():
                    if is_reachable and key in wanted:
                        found.cells[key] = looks[look]
                        wanted.discard(key)
                    else:
                        beyond.setdefault(key, looks[look])
        found.away.extend(looks[look] for look in pending)
        for key in wanted & beyond.keys():
            found.cells[key] = beyond[key]
        found.away.sort()
        return found

    def _look(
        self, form: Form, unit: CellUnit, keys: Collection[Hashable], action: Action | None
    ) -> asyncio.Task[Mapping[Any, bool]]:
        async def look() -> Mapping[Any, bool]:
            async with asyncio.timeout(CELL_WITHIN.total_seconds()):
                return await _LOOKS[form](unit.reads, keys, action)

        task = asyncio.get_running_loop().create_task(look())
        # one that is no longer waited for ends by itself: to cancel a statement costs its connection
        self._looking.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Mapping[Any, bool]]) -> None:
        self._looking.discard(task)
        with suppress(asyncio.CancelledError):
            task.exception()
