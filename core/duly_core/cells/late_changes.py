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
    left: dict[str, list[Thing]] = field(default_factory=dict)
    """By cell, what it did not get: it was refused, or changed meanwhile, or a cell did not answer."""
    is_whole: bool = True
    """Whether all cells answered, and nothing was changed meanwhile: else the next round should not be long in coming."""


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
    in_order = sorted(newest.items(), key=lambda each: (known[each[1]][each[0]], each[0]))
    for cell, moments in known.items():
        lacking: defaultdict[tuple[str, str], dict[Thing, datetime]] = defaultdict(dict)
        for thing, source in in_order:
            if _lacks(moments, thing, known[source][thing]):
                lacking[source, thing[0]][thing] = known[source][thing]
        for (source, _), lacked in lacking.items():
            await _bring(stores, source, cell, lacked, done)
    return done


async def _bring(
    stores: Mapping[str, Store], source: str, cell: str, lacked: Moments, done: CaughtUp
) -> None:
    """Bring things of one kind from one cell to another. What fails is left, and nothing else waits for it."""
    (kind,) = {kind for kind, _ in lacked}
    try:
        now = await _moments(stores[cell])
        wanted = {thing: moment for thing, moment in lacked.items() if _lacks(now, thing, moment)}
        if wanted.keys() != lacked.keys():
            done.is_whole = (
                False  # another Frontend changed or brought it meanwhile: the next round compares again
            )
            done.left.setdefault(cell, []).extend(lacked.keys() - wanted.keys())
        if not wanted:
            return
        refused = await copy_some(stores[source], stores[cell], kind, [name for _, name in wanted])
        if not refused:
            await _note(stores[cell], wanted)
            done.brought.setdefault(cell, []).extend(wanted)
            return
    except StoreUnavailableError as error:
        done.is_whole = False
        log.info("change waits for a cell", cell=cell, kind=kind, reason=str(error))
    except Exception as error:  # noqa: BLE001 (whatever it is, other changes do not wait for it)
        said = str(error).partition("\n")[0]  # a second line of Postgres has values
        done.refused[cell] = (*done.refused.get(cell, ()), f"{kind}: {type(error).__name__}: {said}")
    else:
        done.refused[cell] = (*done.refused.get(cell, ()), *refused)
    done.left.setdefault(cell, []).extend(lacked)


def _lacks(moments: Moments, thing: Thing, moment: datetime) -> bool:
    return thing not in moments or moments[thing] < moment


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
