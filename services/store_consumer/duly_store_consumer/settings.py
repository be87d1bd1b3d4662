"""Settings of the Store Consumer."""

from typing import ClassVar

from duly_core.config.addresses import Listen
from duly_core.config.live_sections import LiveStoreConsumerSettings


class StoreConsumerSettings(LiveStoreConsumerSettings):
    """`[store_consumer]`: all but `listen` can be changed while it runs (`duly settings`)."""

    SECTION: ClassVar[str] = "store_consumer"

    listen: Listen = "127.0.0.1:7403"
    """HOST:PORT for health checks and reflection."""
