"""Whose a store of blobs is: what another database, or a copy of this one, keeps there must not be removed.

The database's name stands in the store, alone: the release before turns compares all that stands there. Each sweep writes another
turn into the database and into the store. A copy of the database, as of a backup, does not know the turns that come after it: its name
is right, and its turn is not. A turn counts only beside a name: an operator who takes the name away says whose the store is.
"""

import enum
from uuid import UUID, uuid4

from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.statements import SWEEPS
from duly_core.postgres.pool import Store

_COPIED = "copied"
"""In place of a turn: two databases of this name have swept."""


class Owner(enum.Enum):
    """Whose the blobs are."""

    OURS = "ours"
    ANOTHER = "another"
    """The store has the name of another database."""
    COPY = "copy"
    """Another copy of this database has swept the store since this one did."""


async def is_ours(store: Store, blobs: BlobThreads) -> bool:
    """Return whether a store of blobs is this database's, or a copy's; one that is nobody's is from now on.

    Raises:
        StoreUnavailableError: the database does not answer.
        BlobsUnavailableError: the store of blobs does not.
    """
    name, _ = await _known(store)
    marker = await blobs.run(blobs.blobs.marker)
    if not marker:
        await blobs.run(blobs.blobs.put_marker, name)
    return marker.partition(" ")[0] in ("", name)


async def take_turn(store: Store, blobs: BlobThreads) -> Owner:
    """Return whose the blobs are, before a sweep; if they are ours, the next turn begins.

    Two copies that find each other stop both: what either knows is used stays.

    Raises:
        StoreUnavailableError: the database does not answer.
        BlobsUnavailableError: the store of blobs does not.
    """
    found, _, turn = (await blobs.run(blobs.blobs.marker)).partition(" ")  # some wrote the turn there
    if found:
        turn = await blobs.run(blobs.blobs.turn) or turn
    # after the store: a turn is in the database before it is in the store, so one that another server takes now is known
    name, turns = await _known(store)
    if found not in ("", name):
        return Owner.ANOTHER
    if turn and turn not in turns:
        if turn != _COPIED:
            await blobs.run(blobs.blobs.put_turn, _COPIED)
        return Owner.COPY
    if not turns or turn in ("", turns[0]):
        turns = [str(uuid4()), *turns]
        await store.run(SWEEPS["begin_turn"], {"turn": UUID(turns[0])})
    # else the last sweep ended before it wrote its turn into the store
    await blobs.run(blobs.blobs.put_turn, turns[0])
    await blobs.run(blobs.blobs.put_marker, name)
    return Owner.OURS


async def _known(store: Store) -> tuple[str, list[str]]:
    """Return the name of this database's store, and its last turns, the newest first."""
    rows = await store.run(SWEEPS["store_id"], {})
    return str(UUID(bytes=rows[0][0])), [str(UUID(bytes=turn)) for _, turn in rows if turn is not None]
