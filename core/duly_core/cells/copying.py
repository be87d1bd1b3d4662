"""Copy what operators own from one cell to another: all cells have the same grants, tokens, settings, limits, gates, pools, calendars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duly_core.access.copies import AccessRows, read_access, write_access
from duly_core.gates import store as store_gates
from duly_core.gates.rules import Gate
from duly_core.gates.store import NewGate
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.limits import store as store_limits
from duly_core.limits.changes import Contradiction, NotPut, ResourceChange, put_resource
from duly_core.limits.store import Deletion, ResourceState
from duly_core.live_settings import store as store_settings
from duly_core.pools import store as store_pools
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from duly_core.time_tables import calendars as store_calendars
from duly_core.time_tables.calendars import CalendarRow

_PAGE = 1_000

COPIED = ("grants", "tokens", "settings", "resources", "gates", "pools", "calendars")
"""What is copied, in this order; of gates those on all lambdas, for others are of the cell of their namespace. Targets of notifications are settings of Frontends, and not of a store."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did, or what differs."""

    changed: Mapping[str, int]
    """How many were written or removed, by their kind (COPIED); without those of which there was nothing to do."""
    refused: tuple[str, ...] = ()
    """What could not be changed, in words."""


@dataclass(frozen=True, slots=True)
class _Owned:
    """What operators own in a store, but for tokens and grants."""

    settings: Mapping[str, str]
    resources: Mapping[str, ResourceState]
    """Those that no application declared."""
    gates: Mapping[str, NewGate]
    pools: Mapping[str, Pool]
    calendars: Mapping[str, CalendarRow]


async def differences(source: Store, target: Store) -> Mapping[str, int]:
    """Return how many things of each kind differ between two cells; those of which none does are left out.

    Raises:
        StoreUnavailableError: a cell does not answer.
    """
    ours, theirs = await read_access(source), await read_access(target)
    owned, other = await _read(source), await _read(target)
    pairs: tuple[tuple[Mapping[Any, object], Mapping[Any, object]], ...] = (
        ({grant[:3]: None for grant in ours.grants}, {grant[:3]: None for grant in theirs.grants}),
        (_revoked(ours), _revoked(theirs)),
        (owned.settings, other.settings),
        (_limits(owned), _limits(other)),
        (owned.gates, other.gates),
        (owned.pools, other.pools),
        (_calendars(owned), _calendars(other)),
    )
    counts = {
        kind: sum(
            name not in mine or name not in its or mine[name] != its[name]
            for name in mine.keys() | its.keys()
        )
        for kind, (mine, its) in zip(COPIED, pairs, strict=True)
    }
    return {kind: count for kind, count in counts.items() if count}


async def copy_operators_data(source: Store, target: Store) -> Copied:
    """Make what operators own in one cell what it is in another. Done again, it completes what was broken off.

    What applications declare, breakers, and all that belongs to a namespace stays as it is. It may be that a resource in use
    cannot be changed or removed: it stays, and is named.

    Raises:
        StoreUnavailableError: a cell does not answer; what was written before stays.
    """
    differ = await differences(source, target)
    changed = dict(differ)
    refused: list[str] = []
    if {"grants", "tokens"} & differ.keys():
        rows, there = await read_access(source), _revoked(await read_access(target))
        await write_access(target, rows)
        refused += [
            f"token {row[1]} is revoked there and stays so: revoke it in all cells (duly tokens revoke {row[1]})"
            for row in rows.tokens
            if row[-1] is None and there.get(row[0])
        ]
    ours, theirs = await _read(source), await _read(target)
    if "settings" in differ:
        await _copy_settings(ours, theirs, target)
    if "resources" in differ:
        refused += await _copy_resources(ours, theirs, target)
    if "gates" in differ:
        await _copy_gates(ours, theirs, target)
    if "pools" in differ:
        await _copy_pools(ours, theirs, target)
    if "calendars" in differ:
        refused += await _copy_calendars(ours, theirs, target)
    return Copied(changed, tuple(refused))


def _revoked(rows: AccessRows) -> Mapping[bytes, bool]:
    return {row[0]: row[-1] is not None for row in rows.tokens}


async def _read(store: Store) -> _Owned:
    gates = {each.gate.name: _asked(each.gate) for each in await store_gates.list_gates(store)}
    return _Owned(
        settings=await store_settings.values(store),
        resources={each.limit.name: each for each in await _resources(store) if each.declaration is None},
        gates={name: gate for name, gate in gates.items() if gate.scope.pattern == EVERYTHING},
        pools={each.pool.name: each.pool for each in await store_pools.list_pools(store)},
        calendars=await _all_calendars(store),
    )


async def _resources(store: Store) -> list[ResourceState]:
    found: list[ResourceState] = []
    while True:
        after = found[-1].limit.name if found else ""
        page = await store_limits.list_resources(store, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


async def _all_calendars(store: Store) -> dict[str, CalendarRow]:
    found: dict[str, CalendarRow] = {}
    after = ""
    while True:
        page = await store_calendars.page(store, after, 0, _PAGE)
        found |= {row.name: row for row in page}
        if len(page) < _PAGE:
            return found
        after = page[-1].name


def _limits(owned: _Owned) -> Mapping[str, object]:
    return {name: state.limit for name, state in owned.resources.items()}


def _calendars(owned: _Owned) -> Mapping[str, object]:
    return {name: row.calendar for name, row in owned.calendars.items()}


def _asked(gate: Gate) -> NewGate:
    return NewGate(gate.name, gate.kind, gate.scope, gate.delay, gate.owner, gate.reason, gate.expires_at)


async def _copy_settings(ours: _Owned, theirs: _Owned, target: Store) -> None:
    await store_settings.put(
        target, {name: value for name, value in ours.settings.items() if theirs.settings.get(name) != value}
    )
    if gone := sorted(theirs.settings.keys() - ours.settings.keys()):
        await store_settings.reset(target, gone)


async def _copy_resources(ours: _Owned, theirs: _Owned, target: Store) -> list[str]:
    refused = []
    for name, state in ours.resources.items():
        if name in theirs.resources and theirs.resources[name].limit == state.limit:
            continue
        done = await put_resource(target, ResourceChange.whole(state.limit), set_by=state.set_by)
        if isinstance(done, NotPut | Contradiction):
            refused.append(f"resource {name} is in use, and cannot have units by key or lose them")
    for name in sorted(theirs.resources.keys() - ours.resources.keys()):
        if await store_limits.delete_resource(target, name) is Deletion.IN_USE:
            refused.append(f"resource {name} is in use, and cannot be removed")
        else:
            await store_limits.end_delays(target, [name])
    return refused


async def _copy_gates(ours: _Owned, theirs: _Owned, target: Store) -> None:
    for name, gate in ours.gates.items():
        if theirs.gates.get(name) != gate:
            await store_gates.put_gate(target, name, lambda _, gate=gate: gate)  # type: ignore[misc]  # mypy infers no default
    if gone := sorted(theirs.gates.keys() - ours.gates.keys()):
        await store_gates.delete_gates(target, gone)


async def _copy_pools(ours: _Owned, theirs: _Owned, target: Store) -> None:
    for name, pool in ours.pools.items():
        if theirs.pools.get(name) != pool:
            await store_pools.put_pool(target, name, lambda _, pool=pool: pool)  # type: ignore[misc]
    if gone := sorted(theirs.pools.keys() - ours.pools.keys()):
        await store_pools.delete_pools(target, gone)


async def _copy_calendars(ours: _Owned, theirs: _Owned, target: Store) -> list[str]:
    for name, row in ours.calendars.items():
        if name not in theirs.calendars or theirs.calendars[name].calendar != row.calendar:
            await store_calendars.put(target, name, lambda _, row=row: row.calendar)  # type: ignore[misc]
    gone = sorted(theirs.calendars.keys() - ours.calendars.keys())
    if not gone:
        return []
    deleted, _ = await store_calendars.delete(target, gone)
    return [
        f"calendar {name} is named by time tables, and cannot be removed"
        for name in gone
        if name not in deleted
    ]
