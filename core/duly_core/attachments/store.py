"""What is stored, and which tasks use it: uploads, uses, and who may read what. The content is in a BlobStore."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from duly_core.attachments.rules import AttachmentUse, Hash, NotStored, Role
from duly_core.attachments.statements import ATTACHMENTS
from duly_core.lambdas.names import namespace_of
from duly_core.postgres.arrays import byteas, int2s, texts, uuids
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.postgres.statements import Statement
from duly_wire.ids import TaskId


class Upload(NamedTuple):
    """What a caller is about to upload, found valid."""

    hash: Hash
    size_bytes: int
    part_hashes: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of an upload that a caller began."""

    blob: UUID | None = None
    """Where its parts go; None: none are needed."""
    is_new: bool = False
    """Nothing was there before: no part can be."""
    other_size: int | None = None
    """An attachment with this hash, and another size, is stored: the content of one is the part hashes of the other."""
    over_quota: bool = False


_STORED = Begun()
_AT_A_TIME = 1_000
"""Uses of a statement: other calls have their turn between."""


async def begin_uploads(
    store: Store, namespace: str, uploads: Sequence[Upload], quota: int
) -> dict[Hash, Begun]:
    """Note which attachments a caller is about to upload; those that are stored stay for a while.

    `quota` is how many bytes the namespace may have; 0: any number.

    Raises:
        StoreUnavailableError: the outcome is unknown; begin again.
    """
    touched = await store.run(
        ATTACHMENTS["touch"],
        {
            "namespace": namespace,
            "hashes": byteas([each.hash for each in uploads]),
            "sizes": [each.size_bytes for each in uploads],
        },
    )
    answers: dict[Hash, Begun] = {row[0]: _STORED for row in touched}
    left = {each.hash: each for each in uploads if each.hash not in answers}
    if not left:
        return answers
    of_namespace = {"namespace": namespace}
    async with store.connection() as connection, connection.transaction():
        ((used,),) = await fetch(connection, ATTACHMENTS["lock_usage"], of_namespace)
        rows = await fetch(
            connection, ATTACHMENTS["lock_begun"], of_namespace | {"hashes": byteas(sorted(left))}
        )
        known = {row[0]: row[1:] for row in rows}
        begun: list[tuple[Upload, UUID]] = []
        going_on: list[Hash] = []
        added = 0
        for each in left.values():
            blob, size, is_stored, is_removing = known.get(each.hash, (None, 0, False, True))
            if is_stored and not is_removing:
                if size == each.size_bytes:  # since the look before
                    going_on.append(each.hash)
                    answers[each.hash] = _STORED
                else:
                    answers[each.hash] = Begun(other_size=size)
            elif not is_removing and size == each.size_bytes:
                going_on.append(each.hash)
                answers[each.hash] = Begun(UUID(bytes=blob))
            elif quota and used + added + each.size_bytes - size > quota:
                answers[each.hash] = Begun(over_quota=True)
            else:
                added += each.size_bytes - size
                begun.append((each, uuid4()))
                answers[each.hash] = Begun(begun[-1][1], is_new=True)
        if going_on:
            await _run(connection, ATTACHMENTS["go_on"], of_namespace | {"hashes": byteas(going_on)})
        if begun:
            await _run(
                connection,
                ATTACHMENTS["begin"],
                of_namespace
                | {
                    "hashes": byteas([each.hash for each, _ in begun]),
                    "sizes": [each.size_bytes for each, _ in begun],
                    "part_hashes": byteas([each.part_hashes for each, _ in begun]),
                    "blobs": uuids(blob.bytes for _, blob in begun),
                },
            )
            await _run(connection, ATTACHMENTS["add_usage"], of_namespace | {"bytes": added})
    return answers


class ExpectedPart(NamedTuple):
    """A part of an attachment of which an upload was begun."""

    blob: UUID
    size_bytes: int
    """Of the attachment."""
    is_stored: bool
    part_hash: bytes
    """Empty: it has no such part."""


async def expected_parts(
    store: Store, namespace: str, parts: Sequence[tuple[Hash, int]], grace: timedelta
) -> list[ExpectedPart | None]:
    """Return what is known of these parts, in order; None: nobody began to upload the attachment.

    An upload that takes a part of `grace` is kept from being removed.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(
        ATTACHMENTS["expected_parts"],
        {
            "namespace": namespace,
            "hashes": byteas([content_hash for content_hash, _ in parts]),
            "indexes": [index for _, index in parts],
            "grace": grace,
        },
    )
    found: list[ExpectedPart | None] = [None] * len(parts)
    idle = set()
    for place, blob, size, is_stored, part_hash, is_idle in rows:
        found[place - 1] = ExpectedPart(UUID(bytes=blob), size, is_stored, part_hash)
        if is_idle:
            idle.add(parts[place - 1][0])
    if idle:
        async with store.connection() as connection:
            await _run(
                connection, ATTACHMENTS["go_on"], {"namespace": namespace, "hashes": byteas(sorted(idle))}
            )
    return found


class Unfinished(NamedTuple):
    """An upload that was begun."""

    blob: UUID
    size_bytes: int
    is_stored: bool


async def unfinished_uploads(
    store: Store, namespace: str, hashes: Collection[Hash]
) -> dict[Hash, Unfinished]:
    """Return the uploads of these hashes; those that nobody began are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    parameters = {"namespace": namespace, "hashes": byteas(sorted(hashes))}
    rows = await store.run(ATTACHMENTS["unfinished"], parameters)
    return {row[0]: Unfinished(UUID(bytes=row[1]), row[2], row[3]) for row in rows}


async def finish_uploads(store: Store, namespace: str, blobs: Mapping[Hash, UUID]) -> set[Hash]:
    """Let tasks use attachments all of whose parts are there; return those that were not removed meanwhile.

    Raises:
        StoreUnavailableError: the outcome is unknown; finish again.
    """
    if not blobs:
        return set()
    rows = await store.run(
        ATTACHMENTS["finish_upload"],
        {
            "namespace": namespace,
            "hashes": byteas(list(blobs)),
            "blobs": uuids(blob.bytes for blob in blobs.values()),
        },
    )
    return {row[0] for row in rows}


async def lock_uses(
    connection: Connection, uses: Iterable[tuple[str, AttachmentUse]]
) -> dict[tuple[str, Hash, int], NotStored]:
    """Lock what is used until the transaction ends, so that the sweep does not remove it; return what is not stored.

    Args:
        connection: in a transaction that writes the uses.
        uses: each with the lambda of its task.

    Returns:
        By namespace, hash and size (`key_of`).

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    wanted = {key_of(name, use): use for name, use in uses}
    keys = sorted(wanted)
    if not keys:
        return {}
    lacking: dict[tuple[str, Hash, int], NotStored] = {}
    for start in range(0, len(keys), _AT_A_TIME):
        some = keys[start : start + _AT_A_TIME]
        rows = await fetch(
            connection,
            ATTACHMENTS["lock_stored"],
            {
                "namespaces": texts([namespace for namespace, _, _ in some]),
                "hashes": byteas([content_hash for _, content_hash, _ in some]),
                "sizes": [size for _, _, size in some],
            },
        )
        stored = {row[0] - 1 for row in rows}
        lacking |= {
            key: NotStored(key[0], wanted[key]) for place, key in enumerate(some) if place not in stored
        }
    return lacking


def key_of(lambda_name: str, use: AttachmentUse) -> tuple[str, Hash, int]:
    """Return what names the attachment of a use by a task of this lambda."""
    return namespace_of(lambda_name), use.hash, use.size_bytes


async def write_uses(
    connection: Connection, uses: Mapping[TaskId, tuple[str, Sequence[AttachmentUse]]], *, by_run: bool
) -> None:
    """Write what tasks use (their lambdas beside it), in the transaction that locked it.

    With `by_run` it is what a run kept: it replaces what runs before kept. Otherwise the tasks were written now.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    task_ids = sorted(uses)
    if not task_ids:
        return
    await _run(connection, ATTACHMENTS["forget_uses"], {"task_ids": uuids(task_ids), "by_run": by_run})
    rows = [
        (task_id, place, namespace_of(uses[task_id][0]), use)
        for task_id in task_ids
        for place, use in enumerate(uses[task_id][1])
    ]
    for start in range(0, len(rows), _AT_A_TIME):
        some = rows[start : start + _AT_A_TIME]
        await _run(
            connection,
            ATTACHMENTS["add_uses"],
            {
                "by_run": by_run,
                "task_ids": uuids(task_id for task_id, *_ in some),
                "positions": int2s([place for _, place, _, _ in some]),
                "roles": int2s([use.role for *_, use in some]),
                "namespaces": texts([namespace for _, _, namespace, _ in some]),
                "hashes": byteas([use.hash for *_, use in some]),
                "sizes": [use.size_bytes for *_, use in some],
                "names": texts([use.name for *_, use in some]),
                "media_types": texts([use.media_type for *_, use in some]),
            },
        )


async def lambdas_of(connection: Connection, task_ids: Collection[TaskId]) -> dict[TaskId, str]:
    """Return the lambdas of tasks; unknown tasks are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await fetch(connection, ATTACHMENTS["lambdas_of"], {"task_ids": uuids(sorted(task_ids))})
    return {row[0]: row[1] for row in rows}


class StoredAttachment(NamedTuple):
    """An attachment that somebody may read."""

    blob: UUID
    size_bytes: int
    part_hashes: bytes


async def used_by_task(store: Store, task_id: TaskId, content_hash: Hash) -> StoredAttachment | None:
    """Return an attachment that a task uses; None: it does not.

    Raises:
        StoreUnavailableError: ask again.
    """
    return await _used(store, "used_by_task", {"task_id": UUID(bytes=task_id), "hash": content_hash})


async def used_by_predecessors(store: Store, task_id: TaskId, content_hash: Hash) -> StoredAttachment | None:
    """Return an attachment that the result of a node names which this one waits for; None: none does.

    Raises:
        StoreUnavailableError: ask again.
    """
    parameters = {"task_id": UUID(bytes=task_id), "hash": content_hash}
    return await _used(store, "used_by_predecessors", parameters)


async def _used(store: Store, name: str, parameters: dict[str, Any]) -> StoredAttachment | None:
    for blob, size, part_hashes in await store.run(ATTACHMENTS[name], parameters):
        return StoredAttachment(UUID(bytes=blob), size, part_hashes)
    return None


async def claimed_lambda(store: Store, task_id: TaskId, token: bytes) -> str | None:
    """Return the lambda of a task that is held under this token; None: it is not.

    Raises:
        StoreUnavailableError: ask again.
    """
    parameters = {"task_id": UUID(bytes=task_id), "token": UUID(bytes=token)}
    for (name,) in await store.run(ATTACHMENTS["claimed_lambda"], parameters):
        return str(name)
    return None


async def uses_of(store: Store, task_ids: Collection[TaskId]) -> dict[TaskId, list[AttachmentUse]]:
    """Return what tasks use, inputs first; those that use nothing are left out.

    Raises:
        StoreUnavailableError: ask again.
    """
    found: dict[TaskId, list[AttachmentUse]] = {}
    rows = await store.run(ATTACHMENTS["uses"], {"task_ids": uuids(sorted(set(task_ids)))})
    for task_id, role, content_hash, size, name, media_type in rows:
        use = AttachmentUse(content_hash, size, name, media_type, Role(role))
        found.setdefault(task_id, []).append(use)
    return found


async def _run(connection: Connection, statement: Statement, parameters: Mapping[str, Any]) -> None:
    """Run a statement that has no rows."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(statement.sql, parameters, prepare=not statement.anew)
