"""Copy what operators own from one cell to another: all cells have the same grants, tokens, settings, limits, gates, pools, calendars."""

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

from duly_core.access import store as store_access
from duly_core.access.copies import AccessRows, GrantRow, read_access, write_access, write_tokens
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
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
_MOST_LOOKS = 3
"""How often something is copied that callers change meanwhile. What was written from an older look must not stay: a grant may be gone since."""
_LONGEST_NAME = 1_024
"""Of a change, in bytes (operator_change)."""

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
    return _differ(
        await read_access(source), await read_access(target), await _read(source), await _read(target)
    )


def _differ(ours: AccessRows, theirs: AccessRows, owned: "_Owned", other: "_Owned") -> Mapping[str, int]:
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


async def copy_operators_data(
    source: Store, target: Store, but_for: Collection[tuple[str, str]] = ()
) -> Copied:
    """Make what operators own in one cell what it is in another. Done again, it completes what was broken off.

    What applications declare, breakers, and all that belongs to a namespace stays as it is. It may be that a resource in use
    cannot be changed or removed: it stays, and is named.

    Args:
        source: the cell that is copied.
        target: the other one.
        but_for: kinds and names, as those of `copy_some`, of what stays as it is in the target. Tokens all stay if one is named.

    Raises:
        StoreUnavailableError: a cell does not answer; what was written before stays.
    """
    left: defaultdict[str, set[str]] = defaultdict(set)
    for kind, name in but_for:
        left[kind].add(name)
    there = await read_access(target)
    rows = _access_but_for(await read_access(source), there, left)
    ours, theirs = [_but_for(await _read(store), left) for store in (source, target)]
    differ = _differ(rows, there, ours, theirs)
    refused: list[str] = []
    if {"grants", "tokens"} & differ.keys():
        await write_access(target, rows)
        revoked = _revoked(there)
        refused += [
            f"token {row[1]} is revoked there and stays so: revoke it in all cells (duly tokens revoke {row[1]})"
            for row in rows.tokens
            if row[-1] is None and revoked.get(row[0])
        ]
    for kind, copy in _COPIES.items():
        if kind in differ:
            refused += await copy(ours, theirs, target)
    return Copied(differ, tuple(refused))


def _access_but_for(ours: AccessRows, theirs: AccessRows, left: Mapping[str, Collection[str]]) -> AccessRows:
    """Return what the target gets: of what is left its own."""
    names = left.get("grants", ())
    if not names and not left.get("tokens"):
        return ours
    grants = [row for row in ours.grants if grant_name(*row[:3]) not in names]
    grants += [row for row in theirs.grants if grant_name(*row[:3]) in names]
    return AccessRows(theirs.tokens if left.get("tokens") else ours.tokens, grants)


def _but_for(owned: "_Owned", left: Mapping[str, Collection[str]]) -> "_Owned":
    """Return what is owned, without what is left. Settings are one thing."""
    kept = {
        kind: {
            name: each
            for name, each in getattr(owned, kind).items()
            if kind != "settings" and name not in names
        }
        for kind, names in left.items()
        if kind in _COPIES
    }
    return replace(owned, **kept)


async def copy_some(source: Store, target: Store, kind: str, names: Collection[str]) -> tuple[str, ...]:
    """Make some things of one kind in one cell what they are in another; return what could not be changed, in words.

    Args:
        source: the cell that has them as they are to be.
        target: the other one.
        kind: one of COPIED.
        names: of the things; a grant's as `grant_name` says. Settings are all copied. So are tokens: one that is missing is added, and one that is
            revoked in one of both is revoked.

    Raises:
        StoreUnavailableError: a cell does not answer; what was written before stays.
    """
    if kind == "tokens":
        await write_tokens(target, await read_access(source))
        return ()
    for _ in range(_MOST_LOOKS):
        if kind == "grants":
            refused = await _copy_some_grants(source, target, names)
            ours, theirs = await _some_grants(source, names), await _some_grants(target, names)
            is_equal = ours.keys() == theirs.keys()
        else:
            owned, other = [_only(await _read(store), kind, names) for store in (source, target)]
            refused = await _COPIES[kind](owned, other, target)
            owned, other = [_only(await _read(store), kind, names) for store in (source, target)]
            is_equal = _of(kind, owned) == _of(kind, other)
        if refused or is_equal:
            return tuple(refused)
    return (f"{' '.join([kind, ', '.join(sorted(names))]).strip()} changed meanwhile",)


def grant_name(principal: str, role: str, pattern: str) -> str:
    """Return what a grant is called among changes: at most 1,024 bytes."""
    name = json.dumps([principal, role, pattern], separators=(",", ":"), ensure_ascii=False)
    # characters that JSON escapes take up to 6 bytes, and may be all of a principal
    return name if len(name.encode()) <= _LONGEST_NAME else sha256(name.encode()).hexdigest()


async def _copy_some_grants(source: Store, target: Store, names: Collection[str]) -> list[str]:
    there, here = await _some_grants(source, names), await _some_grants(target, names)
    gone = [row[:3] for name, row in here.items() if name not in there]
    await store_access.remove_grants(
        target, [Grant(principal, Role(role), pattern) for principal, role, pattern in gone]
    )
    refused = []
    for principal, role, pattern, _, granted_by in there.values():
        try:
            await store_access.add_grants(target, [Grant(principal, Role(role), pattern)], granted_by)
        except store_access.TooManyGrantsError:
            refused.append(f"{principal!r} has too many grants to get {role} on {pattern}")
    return refused


async def _some_grants(store: Store, names: Collection[str]) -> Mapping[str, GrantRow]:
    rows = {grant_name(*row[:3]): row for row in (await read_access(store)).grants}
    return {name: row for name, row in rows.items() if name in names}


def _only(owned: "_Owned", kind: str, names: Collection[str]) -> "_Owned":
    """Return what is owned, but of a kind only what has these names. Settings have none: they are one thing."""
    if kind == "settings":
        return owned
    kept = {name: each for name, each in getattr(owned, kind).items() if name in names}
    return replace(owned, **{kind: kept})


def _of(kind: str, owned: "_Owned") -> Mapping[str, object]:
    """Return what is compared of a kind."""
    if kind == "resources":
        return _limits(owned)
    if kind == "calendars":
        return _calendars(owned)
    found: Mapping[str, object] = getattr(owned, kind)
    return found


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


async def _copy_settings(ours: _Owned, theirs: _Owned, target: Store) -> list[str]:
    await store_settings.put(
        target, {name: value for name, value in ours.settings.items() if theirs.settings.get(name) != value}
    )
    if gone := sorted(theirs.settings.keys() - ours.settings.keys()):
        await store_settings.reset(target, gone)
    return []


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


async def _copy_gates(ours: _Owned, theirs: _Owned, target: Store) -> list[str]:
    refused = []
    without_room = []
    for name, gate in ours.gates.items():
        if theirs.gates.get(name) == gate:
            continue
        try:
            if await store_gates.put_gate(target, name, partial(_of_all_lambdas, gate)) is None:
                without_room.append(gate)
        except _TakenError as taken:
            refused.append(
                f"gate {name} holds {taken} there: delete it (duly gates delete {name}), and set both again with names of their own"
            )
    if gone := sorted(theirs.gates.keys() - ours.gates.keys()):
        await store_gates.delete_gates(target, gone)  # after the new ones: no task passes between two pauses
    refused += [
        f"gate {gate.name} has no room: there are as many gates as there may be"
        for gate in without_room
        if await store_gates.put_gate(target, gate.name, partial(_of_all_lambdas, gate)) is None
    ]
    return refused


class _TakenError(Exception):
    """A gate on some lambdas has the name."""


def _of_all_lambdas(gate: NewGate, before: Gate | None) -> NewGate:
    if before is not None and before.scope.pattern != EVERYTHING:
        raise _TakenError(repr(before.scope.pattern))
    return gate


async def _copy_pools(ours: _Owned, theirs: _Owned, target: Store) -> list[str]:
    if gone := sorted(theirs.pools.keys() - ours.pools.keys()):
        await store_pools.delete_pools(target, gone)  # first: they may take the room of new ones
    refused = []
    for name, pool in ours.pools.items():
        if theirs.pools.get(name) != pool:
            try:
                await store_pools.put_pool(target, name, lambda _, pool=pool: pool)  # type: ignore[misc]
            except store_pools.TooManyPoolsError:
                refused.append(f"pool {name} has no room: there are as many pools as there may be")
    return refused


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


_COPIES: Mapping[str, Callable[[_Owned, _Owned, Store], Awaitable[list[str]]]] = {
    "settings": _copy_settings,
    "resources": _copy_resources,
    "gates": _copy_gates,
    "pools": _copy_pools,
    "calendars": _copy_calendars,
}
