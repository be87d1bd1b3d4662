"""Sweeps attachments: removes those that no task uses any more."""

import asyncio
from datetime import timedelta

from duly_core.attachments.blobs import BlobStore, BlobThreads
from duly_core.attachments.settings import AttachmentSettings
from duly_core.attachments.sweep import Sweep
from duly_core.postgres.pool import Store
from duly_core.process.loop import repeat
from duly_store_consumer import events

_THREADS = 2
"""That remove contents."""


async def sweep_attachments(
    store: Store, blobs: BlobStore, settings: AttachmentSettings, stop: asyncio.Event
) -> None:
    """Sweep until `stop`."""
    threads = BlobThreads(blobs, _THREADS)
    sweep = Sweep(store, threads, settings.grace)

    async def run_once() -> timedelta:
        done = await sweep.run_once()
        events.sweep_round(done, await sweep.stored(), blobs.where)
        return settings.sweep_interval

    try:
        await repeat("attachments", run_once, stop, asyncio.Event())
    finally:
        threads.close()
