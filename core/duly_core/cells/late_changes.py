"""Bring what operators changed while a cell was away to that cell. Of each thing the newest change holds."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
import structlog

from duly_core.cells.copying import copy_some
from duly_core.cells.operators_turn import turns
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import texts, timestamps
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load

log = structlog.get_logger()

CHANGES = load("cells/changes.sql")

Thing = tuple[str, str]
"""A kind (copying.COPIED), and the name of what was changed; settings are one thing, without a name."""
Moments = Mapping[Thing, datetime]
SETTLED: Thing = ("settled", "")
"""The note of up to when each cell of the directory has all changes. Older notes say nothing any more, and upkeep removes them."""


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
    is_settled: bool = False
    """Whether there was nothing to bring and nothing to settle."""


async def note_changes(stores: Sequence[Store], things: Iterable[Thing]) -> None:
    """Note what was just changed in these cells, and could not be in others. They are all noted as of one moment.

    It is noted after it was written: a moment whose change is missing would hold against the same moment of another cell. The caller
    has the turn of each cell (operators_turn.py) since before it wrote.

    Raises:
        StoreUnavailableError: a cell does not answer; it may lack the note, and get the change again.
    """
    found = await asyncio.gather(*(store.run(CHANGES["next_change"], {}) for store in stores))
    moment = max(rows[0][0] for rows in found)
    noted = dict.fromkeys(things, moment)
    await asyncio.gather(*(_note(store, noted) for store in stores))


async def catch_up(stores: Mapping[str, Store], *, has_turns: bool = False) -> CaughtUp:
    """Bring each thing that was changed while a cell was away from the cell with the newest change to those that lack it.

    A cell that does not answer is left out. A round that breaks off is completed by the next.

    Args:
        stores: by the name of the cell.
        has_turns: whether the caller has the turn of each cell. Else they are taken, if there is something to bring.
    """
    looks = await _look(stores)
    known = _unsettled(looks)
    if has_turns or all(not _lacking(known, cell) for cell in known):
        done = await _catch_up(stores, known)
        done.is_settled = not any(known.values()) and len({look.get(SETTLED) for look in looks.values()}) < 2
        return done
    async with turns({cell: stores[cell] for cell in known}) as missed:
        those = {cell: stores[cell] for cell in known if cell not in missed}
        done = await _catch_up(those, _unsettled(await _look(those)))
    for cell, reason in missed.items():
        log.info("changes wait for a cell", cell=cell, reason=str(reason))
    done.is_whole &= those.keys() == stores.keys()
    return done


async def settle(stores: Mapping[str, Store], version: int) -> bool:
    """Say in each cell up to when all of them have all changes. Upkeep removes older notes: they can never be needed any more.

    What no cell but one has, for another cannot take it, stays noted, and so does all that was changed later.

    Args:
        stores: of all cells of the directory, by name.
        version: of the directory. A cell with a newer one says nothing: there may be a cell that lacks a change.

    Returns:
        Whether it was said in each cell, or is known there. A cell that does not answer holds it up.
    """
    try:
        return await _settle(stores, version)
    except (StoreUnavailableError, psycopg.errors.UndefinedTable):
        return False


async def _settle(stores: Mapping[str, Store], version: int) -> bool:
    looks = {cell: await _moments(store) for cell, store in stores.items()}
    moments = [moments[SETTLED] for moments in looks.values() if SETTLED in moments]
    until = max([*moments, *_settled(_unsettled(looks).values())], default=None)
    if until is None:
        return True
    said = [
        looks[cell].get(SETTLED) == until
        or await store.run(CHANGES["settle_changes"], {"moment": until, "version": version})
        for cell, store in stores.items()
    ]
    return all(said)


def _settled(known: Collection[Moments]) -> list[datetime]:
    """Return the moments of changes that all cells have, but for those after one that a cell lacks."""
    things = {thing for moments in known for thing in moments}
    differ = {thing for thing in things if len({moments.get(thing) for moments in known}) > 1}
    first = min((moments[thing] for moments in known for thing in differ if thing in moments), default=None)
    equal = [moments[thing] for moments in known for thing in moments.keys() - differ]
    return [moment for moment in equal if first is None or moment < first]


def _unsettled(looks: Mapping[str, Moments]) -> dict[str, Moments]:
    """Return the changes of each cell that some cell may lack. An older note of a cell that was restored from a backup says nothing new."""
    until = max((moments[SETTLED] for moments in looks.values() if SETTLED in moments), default=None)
    return {
        cell: {
            thing: moment
            for thing, moment in moments.items()
            if thing != SETTLED and (until is None or moment > until)
        }
        for cell, moments in looks.items()
    }


async def _look(stores: Mapping[str, Store]) -> dict[str, Moments]:
    """Return what is noted, by cell; those that do not answer are left out."""
    looks = await asyncio.gather(*(_moments(store) for store in stores.values()), return_exceptions=True)
    known: dict[str, Moments] = {}
    for cell, look in zip(stores, looks, strict=True):
        if isinstance(look, StoreUnavailableError | psycopg.errors.UndefinedTable):
            continue  # it does not answer, or is not migrated yet
        if isinstance(look, BaseException):
            raise look
        known[cell] = look
    return known


def _newest(known: Mapping[str, Moments]) -> dict[Thing, str]:
    """Return the cell with the newest change of each thing."""
    newest: dict[Thing, str] = {}
    for cell, moments in known.items():
        for thing, moment in moments.items():
            if thing not in newest or known[newest[thing]][thing] < moment:
                newest[thing] = cell
    return newest


def _lacking(known: Mapping[str, Moments], cell: str) -> dict[tuple[str, str], dict[Thing, datetime]]:
    """Return what a cell lacks, by the cell that has it and its kind, and in the order in which it was changed."""
    newest = _newest(known)
    in_order = sorted(newest.items(), key=lambda each: (known[each[1]][each[0]], each[0]))
    lacking: defaultdict[tuple[str, str], dict[Thing, datetime]] = defaultdict(dict)
    for thing, source in in_order:
        if _lacks(known[cell], thing, known[source][thing]):
            lacking[source, thing[0]][thing] = known[source][thing]
    return lacking


async def _catch_up(stores: Mapping[str, Store], known: Mapping[str, Moments]) -> CaughtUp:
    done = CaughtUp(is_whole=known.keys() == stores.keys())
    for cell in known:
        for (source, _), lacked in _lacking(known, cell).items():
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
