"""Bring what operators changed while a cell was away to that cell. Of each thing the newest change holds."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
import structlog

from duly_core.cells.copying import copy_some
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import texts, timestamps
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load

log = structlog.get_logger()

CHANGES = load("cells/changes.sql")

Thing = tuple[str, str]
"""A kind (copying.COPIED), and the name of what was changed; settings are one thing, without a name."""
Moments = Mapping[Thing, datetime]


@dataclass(slots=True)
class CaughtUp:
    """What a round did."""

    brought: dict[str, list[Thing]] = field(default_factory=dict)
    """By cell, what it got."""
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By cell, what it cannot take, in words. It is tried again in the next round."""
    is_whole: bool = True
    """Whether all cells answered."""


async def note_changes(stores: Sequence[Store], things: Iterable[Thing]) -> None:
    """Note what was just changed in these cells, and could not be in others. They are all noted as of one moment.

    It is noted after it was written: a moment whose change is missing would hold against the same moment of another cell.

    Raises:
        StoreUnavailableError: a cell does not answer; it may lack the note, and get the change again.
    """
    found = await asyncio.gather(*(store.run(CHANGES["next_change"], {}) for store in stores))
    moment = max(rows[0][0] for rows in found)
    noted = dict.fromkeys(things, moment)
    await asyncio.gather(*(_note(store, noted) for store in stores))


async def catch_up(stores: Mapping[str, Store]) -> CaughtUp:
    """Bring each thing that was changed while a cell was away from the cell with the newest change to those that lack it.

    A cell that does not answer is left out. A round that breaks off is completed by the next.

    Args:
        stores: by the name of the cell.
    """
    names = [*stores]
    looks = await asyncio.gather(*(_moments(stores[name]) for name in names), return_exceptions=True)
    known: dict[str, Moments] = {}
    done = CaughtUp()
    for name, look in zip(names, looks, strict=True):
        if isinstance(look, StoreUnavailableError | psycopg.errors.UndefinedTable):
            done.is_whole = False  # it does not answer, or is not migrated yet
            continue
        if isinstance(look, BaseException):
            raise look
        known[name] = look
    newest: dict[Thing, str] = {}
    for cell, moments in known.items():
        for thing, moment in moments.items():
            if thing not in newest or known[newest[thing]][thing] < moment:
                newest[thing] = cell
    for cell, moments in known.items():
        lacking: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for (kind, name), source in newest.items():
            mine = moments.get((kind, name))
            if mine is None or mine < known[source][kind, name]:
                lacking[source, kind].append(name)
        for (source, kind), lacked in lacking.items():
            try:
                refused = await copy_some(stores[source], stores[cell], kind, lacked)
                if refused:
                    done.refused[cell] = (*done.refused.get(cell, ()), *refused)
                    continue
                await _note(stores[cell], {(kind, name): known[source][kind, name] for name in lacked})
            except StoreUnavailableError as error:
                done.is_whole = False
                log.info("change waits for a cell", cell=cell, kind=kind, reason=str(error))
            else:
                done.brought.setdefault(cell, []).extend((kind, name) for name in lacked)
    return done


async def _moments(store: Store) -> Moments:
    rows = await store.run(CHANGES["operator_changes"], {})
    return {(kind, name): changed_at for kind, name, changed_at in rows}


async def _note(store: Store, noted: Moments) -> None:
    await store.run(
        CHANGES["note_changes"],
        {
            "kinds": texts([kind for kind, _ in noted]),
            "names": texts([name for _, name in noted]),
            "moments": timestamps([*noted.values()]),
        },
    )
