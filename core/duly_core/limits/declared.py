"""Resources that applications declare: what is there, and what becomes of a declaration (decision 0031)."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duly_core.lambdas.declarations import is_of_lower_numbers
from duly_core.limits.store import Rate, ResourceDeclaration, ResourceLimit
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import READS


@dataclass(frozen=True, slots=True)
class StoredResource:
    """A resource as it is."""

    limit: ResourceLimit
    declaration: ResourceDeclaration | None
    """None: an operator made or changed it."""
    set_by: str
    """The principal that set it, or whose declaration did; empty: nobody was asked who they are."""


class Fate(enum.Enum):
    """What becomes of a declaration."""

    NEW = "new"
    """There is no such resource: it is made."""
    CHANGED = "changed"
    """It replaces the declaration before."""
    RENAMED = "renamed"
    """Another version says the same; which one is remembered."""
    SAME = "same"
    """Nothing is different, except who said it."""
    OLDER = "older"
    """A newer version of the application said otherwise, and stays."""
    SET_BY_OPERATOR = "set by operator"
    """An operator said otherwise, and stays."""
    OF_OTHER_OWNER = "of other owner"
    """An application of another owner said otherwise, and stays."""


CHANGES = frozenset({Fate.NEW, Fate.CHANGED})
WRITTEN = CHANGES | {Fate.RENAMED}


def decide(declared: ResourceLimit, by: ResourceDeclaration, known: StoredResource | None) -> Fate:
    """Return what becomes of a declaration. An operator's word stands, then that of the first owner, then that of the newer version."""
    if known is None:
        return Fate.NEW
    is_same = declared == known.limit
    before = known.declaration
    if before is None:
        return Fate.SAME if is_same else Fate.SET_BY_OPERATOR
    if before.owner not in ("", by.owner):
        return Fate.SAME if is_same else Fate.OF_OTHER_OWNER
    if is_of_lower_numbers(by.version, before.version):
        return Fate.SAME if is_same else Fate.OLDER
    if not is_same:
        return Fate.CHANGED
    return Fate.SAME if before == by else Fate.RENAMED


async def read_resources(store: Store, names: Sequence[str]) -> Mapping[str, StoredResource]:
    """Return these resources by name; those that are not declared are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not names:
        return {}
    async with store.connection() as connection:
        return await read_resources_within(connection, names)


async def read_resources_within(connection: Connection, names: Sequence[str]) -> Mapping[str, StoredResource]:
    """Do the same in the transaction of the caller."""
    rows = await fetch(connection, READS["resources_as_declared"], {"names": texts(sorted(set(names)))})
    return {
        name: StoredResource(
            ResourceLimit(name, capacity, per_key, note, Rate(rate, period, burst) if rate else None),
            None if owner is None else ResourceDeclaration(owner, version),
            set_by,
        )
        for name, capacity, per_key, note, rate, period, burst, owner, version, set_by in rows
    }
