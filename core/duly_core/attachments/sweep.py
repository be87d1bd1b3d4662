"""Removes attachments that no task uses any more, and what crashes left of uploads: mark, then sweep.

What is marked cannot be used again, and a marked attachment goes even if this process ends now: each round goes on with what is marked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from duly_core.attachments.blobs import BlobThreads, FoundBlob
from duly_core.attachments.ownership import Owner, take_turn
from duly_core.attachments.rules import Hash
from duly_core.attachments.statements import SWEEPS
from duly_core.errors import BlobsUnavailableError
from duly_core.postgres.arrays import byteas, texts, uuids
from duly_core.postgres.pool import Store, fetch

_PAGE = 1_000
_REMOVED_AT_A_TIME = 100
_LOWEST = UUID(int=0)


@dataclass(slots=True)
class SweepRound:
    """What a round did."""

    uses: int = 0
    """Uses of tasks that are gone."""
    attachments: int = 0
    bytes: int = 0
    orphans: int = 0
    """Blobs of no attachment: of uploads that were started again, and of a store that was restored."""
    owner: Owner = Owner.OURS
    """Unless the blobs are ours, nothing was marked and removed."""


class Stored(NamedTuple):
    """What is stored now."""

    attachments: int
    bytes: int


class _Marked(NamedTuple):
    namespace: str
    hash: Hash
    blob: UUID


class Sweep:
    """`run_once` is a round. Several processes may do one at a time: each step may be repeated."""

    def __init__(
        self,
        store: Store,
        blobs: BlobThreads,
        grace: timedelta,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Make one: what nobody uses stays for `grace`. `now` is compared with the times of blobs."""
        self._store = store
        self._blobs = blobs
        self._grace = grace
        self._now = now
        self._searched_at: datetime | None = None

    async def run_once(self) -> SweepRound:
        """Forget uses, mark, remove, and now and then look for blobs of no attachment.

        Raises:
            StoreUnavailableError: the round was not completed.
            BlobsUnavailableError: it was not; what is marked is removed in a later round.
        """
        done = SweepRound()
        await self.forget_uses(done)
        done.owner = await take_turn(self._store, self._blobs)
        if done.owner is not Owner.OURS:
            return done
        await self.mark()
        await self.remove_marked(done)
        now = self._now()
        if self._searched_at is None or now - self._searched_at >= self._grace:
            await self.remove_orphans(done)
            self._searched_at = now
        return done

    async def stored(self) -> Stored:
        """Return what is stored.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ((attachments, size),) = await self._store.run(SWEEPS["usage"], {})
        return Stored(attachments, size)

    async def forget_uses(self, done: SweepRound) -> None:
        """Remove the uses of tasks that are gone: those that were purged took theirs with them, those of a dropped partition did not."""
        after = _LOWEST
        while True:
            rows = await self._store.run(SWEEPS["forget_uses_of_gone"], {"after": after, "limit": _PAGE})
            done.uses += sum(removed for _, removed in rows)
            if len(rows) < _PAGE:
                return
            after = UUID(bytes=rows[-1][0])

    async def mark(self) -> int:
        """Mark what nobody uses, and nobody is about to; return how many attachments that were."""
        after: tuple[str, Hash] = ("", b"")
        marked = 0
        while True:
            rows = await self._store.run(
                SWEEPS["unused"],
                {
                    "after_namespace": after[0],
                    "after_hash": after[1],
                    "limit": _PAGE,
                    "grace": self._grace,
                },
            )
            unused = [(namespace, content_hash) for namespace, content_hash, is_unused in rows if is_unused]
            marked += await self._mark(unused) if unused else 0
            if len(rows) < _PAGE:
                return marked
            after = rows[-1][0], rows[-1][1]

    async def _mark(self, unused: list[tuple[str, Hash]]) -> int:
        """Lock first, then look for uses in a new statement: it sees those of each transaction that had the weaker lock before."""
        async with self._store.connection() as connection, connection.transaction():
            locked = await fetch(connection, SWEEPS["lock_unused"], _names(unused) | {"grace": self._grace})
            if not locked:
                return 0
            return len(await fetch(connection, SWEEPS["mark"], _names([(row[0], row[1]) for row in locked])))

    async def remove_marked(self, done: SweepRound) -> None:
        """Remove the parts of what is marked, then forget it."""
        problem: BlobsUnavailableError | None = None
        tried: set[UUID] = set()
        while True:
            rows = await self._store.run(SWEEPS["removing"], {"limit": _REMOVED_AT_A_TIME})
            marked = [_Marked(row[0], row[1], UUID(bytes=row[2])) for row in rows]
            marked = [each for each in marked if each.blob not in tried]
            if not marked:
                break
            tried.update(each.blob for each in marked)
            removed = []
            for each in marked:
                try:
                    await self._blobs.run(self._blobs.blobs.remove, each.blob)
                    removed.append(each)
                except BlobsUnavailableError as error:
                    problem = error
            await self._forget(removed, done)
        if problem is not None:
            raise problem

    async def _forget(self, removed: list[_Marked], done: SweepRound) -> None:
        if not removed:
            return
        names = _names([(each.namespace, each.hash) for each in removed])
        namespaces = {"namespaces": texts(sorted({each.namespace for each in removed}))}
        async with self._store.connection() as connection, connection.transaction():
            await fetch(connection, SWEEPS["lock_usages"], namespaces)
            rows = await fetch(
                connection, SWEEPS["removed"], names | {"blobs": uuids(each.blob.bytes for each in removed)}
            )
        done.attachments += len(rows)
        done.bytes += sum(row[0] for row in rows)

    async def remove_orphans(self, done: SweepRound) -> None:
        """Remove the blobs of no attachment that were not written for `grace`.

        The blobs are ours. An attachment is there before its blob: a blob that is found, and then belongs to none, never will.
        """
        found: Iterator[FoundBlob] = self._blobs.blobs.blobs()
        before = self._now() - self._grace
        while page := await self._blobs.run(lambda: list(islice(found, _PAGE))):
            old = [each.blob for each in page if each.changed_at <= before]
            rows = await self._store.run(SWEEPS["known_blobs"], {"blobs": uuids(blob.bytes for blob in old)})
            known = {UUID(bytes=row[0]) for row in rows}
            for blob in old:
                if blob not in known:
                    await self._blobs.run(self._blobs.blobs.remove, blob)
                    done.orphans += 1


def _names(attachments: list[tuple[str, Hash]]) -> dict[str, object]:
    return {
        "namespaces": texts([namespace for namespace, _ in attachments]),
        "hashes": byteas([content_hash for _, content_hash in attachments]),
    }
