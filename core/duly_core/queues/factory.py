"""Opens the queue that the settings name; only that backend's driver is imported."""

from duly_core.queues.port import QueueReceiver, QueueSender
from duly_core.queues.settings import QueueSettings


async def open_sender(settings: QueueSettings, store_dsn: str) -> QueueSender:
    """Open the Store Consumer's side; the queue need not be up yet.

    Args:
        settings: which backend, and where.
        store_dsn: where the Postgres queue is if its settings do not say.

    Raises:
        SettingsError: a setting is unusable.
    """
    if settings.backend == "sqs":
        from duly_core.queues.sqs_sender import SqsSender

        return await SqsSender.open(settings)
    from duly_core.queues.postgres_sender import PostgresSender

    return await PostgresSender.open(settings.dsn or store_dsn)


async def open_receiver(settings: QueueSettings, store_dsn: str) -> QueueReceiver:
    """Open the Controller's side; the queue need not be up yet.

    Args:
        settings: which backend, and where.
        store_dsn: where the Postgres queue is if its settings do not say.

    Raises:
        SettingsError: a setting is unusable.
    """
    if settings.backend == "sqs":
        from duly_core.queues.sqs_receiver import SqsReceiver

        return await SqsReceiver.open(settings)
    from duly_core.queues.postgres_receiver import PostgresReceiver

    return await PostgresReceiver.open(settings.dsn or store_dsn, settings.visibility)
