"""Opens the queue that the settings name; its driver is imported only then."""

from duly_core.queues.port import QueueReceiver, QueueSender
from duly_core.queues.settings import QueueSettings


async def open_sender(settings: QueueSettings) -> QueueSender:
    """Open the Store Consumer's side; the queue need not be up yet.

    Raises:
        SettingsError: a setting is unusable.
    """
    from duly_core.queues.sqs.sender import SqsSender

    return await SqsSender.open(settings)


async def open_receiver(settings: QueueSettings) -> QueueReceiver:
    """Open the Controller's side; the queue need not be up yet.

    Raises:
        SettingsError: a setting is unusable.
    """
    from duly_core.queues.sqs.receiver import SqsReceiver

    return await SqsReceiver.open(settings)
