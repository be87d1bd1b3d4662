"""Sweeps attachments: removes those that no task uses any more."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta

from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.attachments.sweep import Sweep
from duly_core.postgres.pool import Store
from duly_core.process.loop import repeat
from duly_store_consumer import events

_THREADS = 2
"""That remove contents."""


def attachment_loop() -> Callable[[Store, asyncio.Event], Coroutine[None, None, None]]:
    """Read the settings, and open the store of contents; return what sweeps until it is told to stop.

    Raises:
        SettingsError: the settings are unusable.
    """
    settings = AttachmentSettings.load()
    blobs = open_blobs(settings)

    async def run(store: Store, stop: asyncio.Event) -> None:
        if blobs is None:
            return
        threads = BlobThreads(blobs, _THREADS)
        sweep = Sweep(store, threads, settings.grace)

        async def run_once() -> timedelta:
            done = await sweep.run_once()
            events.sweep_round(done, await sweep.stored())
            return settings.sweep_interval

        try:
            await repeat("attachments", run_once, stop, asyncio.Event())
        finally:
            threads.close()

    return run
