"""Whose a store of blobs is: a database writes its name there, and would remove the blobs of another one."""

from uuid import UUID

from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.statements import SWEEPS
from duly_core.postgres.pool import Store


async def is_ours(store: Store, blobs: BlobThreads) -> bool:
    """Return whether a store of blobs is this database's; one that is nobody's is from now on.

    Raises:
        StoreUnavailableError: the database does not answer.
        BlobsUnavailableError: the store of blobs does not.
    """
    ((store_id,),) = await store.run(SWEEPS["store_id"], {})
    name = str(UUID(bytes=store_id))
    marker = await blobs.run(blobs.blobs.marker)
    if not marker:
        await blobs.run(blobs.blobs.put_marker, name)
    return marker in ("", name)
