"""Finds out in which cell something is that does not say it: asks the cells that answer, by primary key, all at once."""

import asyncio
import enum
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
from duly_core.task_output.store import Claim, claimed_runs
from duly_core.tasks.completions import TokenState, states_of_tokens
from duly_core.tasks.scope import task_origins
from duly_core.time_tables import store as time_tables
from duly_frontend.cells.cell_units import CellUnit
from duly_frontend.cells.routes import Form
from duly_wire.completion_tokens import read_completion_token

CELL_WITHIN = timedelta(seconds=2)
"""A cell that has not answered by then counts as away: others are not kept waiting for it."""


class Match(enum.IntEnum):
    """How well a cell has what is looked for."""

    BEYOND = 1
    """It has the id, and the caller may not reach the task, or the token is of none of its tasks."""
    MAYBE = 2
    """The task runs, and may give out the token."""
    SURE = 3


Look = Callable[[Store, Collection[Any], Action | None], Awaitable[Mapping[Any, Match]]]
"""Returns which of these a store has."""


async def _tasks(store: Store, ids: Collection[bytes], action: Action | None) -> Mapping[bytes, Match]:
    scope = restriction(action) if action is not None else None
    origins = await task_origins(store, ids)
    return {
        task_id: Match.SURE if scope is None or scope.reaches(*origin) else Match.BEYOND
        for task_id, origin in origins.items()
    }


async def _claims(store: Store, claims: Collection[Claim], _action: Action | None) -> Mapping[Claim, Match]:
    asked = list(claims)
    runs = await claimed_runs(store, asked)
    return {claim: Match.SURE for claim, run in zip(asked, runs, strict=True) if run is not None}


async def _tokens(
    store: Store, tokens: Collection[tuple[bytes, bytes]], _action: Action | None
) -> Mapping[tuple[bytes, bytes], Match]:
    return {token: _MATCHES[state] for token, state in (await states_of_tokens(store, tokens)).items()}


_MATCHES = {
    TokenState.CURRENT: Match.SURE,
    TokenState.TASK_RUNS: Match.MAYBE,
    TokenState.OF_NO_ATTEMPT: Match.BEYOND,
}


async def _graphs(store: Store, ids: Collection[bytes], action: Action | None) -> Mapping[bytes, Match]:
    scope = restriction(action) if action is not None else None
    return dict.fromkeys(await get_graphs(store, list(ids), scope), Match.SURE)


async def _time_tables(store: Store, names: Collection[str], _action: Action | None) -> Mapping[str, Match]:
    return dict.fromkeys(await time_tables.get(store, list(names)), Match.SURE)


def _id_of(text: str) -> bytes | None:
    try:
        return parse_task_id(text)
    except Problem:
        return None


def _id_and_hash(token: str) -> tuple[bytes, bytes] | None:
    try:
        return read_completion_token(token)
    except ValueError:
        return None


def _claim(said: tuple[str | bytes, bytes]) -> Claim | None:
    task, token = said
    task_id = _id_of(task) if isinstance(task, str) else task
    size = len(UUID(int=0).bytes)
    return Claim(task_id, token) if task_id and len(task_id) == len(token) == size else None


def _name(text: str) -> str | None:
    return text if text and "\x00" not in text else None


READERS: Mapping[Form, Callable[[Any], Hashable | None]] = {
    Form.TASK: _id_of,
    Form.CLAIM: _claim,
    Form.COMPLETION_TOKEN: _id_and_hash,
    Form.GRAPH: _id_of,
    Form.TIME_TABLE: _name,
}
"""What cells are asked for; None: it is invalid, and any cell says so."""

_LOOKS: Mapping[Form, Look] = {
    Form.TASK: _tasks,
    Form.CLAIM: _claims,
    Form.COMPLETION_TOKEN: _tokens,
    Form.GRAPH: _graphs,
    Form.TIME_TABLE: _time_tables,
}


@dataclass(slots=True)
class Located:
    """Where things are."""

    cells: dict[Hashable, str] = field(default_factory=dict)
    sure: set[Hashable] = field(default_factory=set)
    """Those that the caller may reach, or whose token is there: they may be remembered."""
    away: list[str] = field(default_factory=list)
    """Cells that did not answer: what is not found may be there."""


class Locator:
    """A cell that does not answer is not waited for once all is found in others."""

    def __init__(self) -> None:
        self._looking: set[asyncio.Task[Mapping[Any, Match]]] = set()

    async def locate(
        self,
        form: Form,
        path: str,
        keys: Collection[Hashable],
        units: Mapping[str, CellUnit | None],
        within: timedelta,
    ) -> Located:
        """Find what a call names.

        Callers make the ids: if several cells have one, that of which the caller may reach the task counts; with a token, that whose task has
        it. An id with a token that none has is not said to be nowhere while a cell is away.

        Args:
            form: of the keys.
            path: of the method.
            keys: as READERS have them.
            units: of all cells, by name; None: it is not served here.
            within: how long the call may still take.
        """
        found = Located()
        others: dict[Hashable, tuple[Match, str]] = {}
        looks: dict[asyncio.Task[Mapping[Any, Match]], str] = {}
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
                for key, match in answer.items():
                    if match is Match.SURE and key in wanted:
                        found.cells[key] = looks[look]
                        found.sure.add(key)
                        wanted.discard(key)
                    elif key not in others or match > others[key][0]:
                        others[key] = match, looks[look]
        found.away.extend(looks[look] for look in pending)
        for key in wanted & others.keys():
            match, cell = others[key]
            if match is Match.BEYOND and found.away and form is Form.COMPLETION_TOKEN:
                continue
            found.cells[key] = cell
        found.away.sort()
        return found

    def _look(
        self, form: Form, unit: CellUnit, keys: Collection[Hashable], action: Action | None
    ) -> asyncio.Task[Mapping[Any, Match]]:
        async def look() -> Mapping[Any, Match]:
            async with asyncio.timeout(CELL_WITHIN.total_seconds()):
                return await _LOOKS[form](unit.reads, keys, action)

        task = asyncio.get_running_loop().create_task(look())
        # one that is no longer waited for ends by itself: to cancel a statement costs its connection
        self._looking.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Mapping[Any, Match]]) -> None:
        self._looking.discard(task)
        with suppress(asyncio.CancelledError):
            task.exception()
