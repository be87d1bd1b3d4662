"""Settings of the Store Consumer."""

from typing import ClassVar

from duly_core.addresses import Listen
from duly_core.live_settings import StoreConsumerTuning


class StoreConsumerSettings(StoreConsumerTuning):
    """`[store_consumer]`: all but `listen` and `send_in_store` can be changed while it runs, too (`duly settings`)."""

    SECTION: ClassVar[str] = "store_consumer"

    listen: Listen = "127.0.0.1:7403"
    """Health and reflection only."""
    send_in_store: bool = True
    """Where the queue is in the store, one statement enqueues and sends; off: two, as for any other queue."""
