"""Settings of the Store Consumer."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.settings import Duration, Section


class StoreConsumerSettings(Section):
    """`[store_consumer]`."""

    SECTION: ClassVar[str] = "store_consumer"

    listen: str = "127.0.0.1:7403"
    """Health and reflection only."""
    poll_interval: Duration = Field(default=timedelta(seconds=2), gt=timedelta(), le=timedelta(minutes=2))
    """The safety net: nothing that is due waits longer than this to be found."""
    exact: bool = True
    """Wake at the next due instant and on hints; off: poll at the interval only, as Dropbox's ATF did."""
    batching_gap: Duration = timedelta(milliseconds=2)
    """Polls are never closer together than this."""
    batch: int = Field(default=2_000, ge=1)
    """References one poll takes at most from each queue's backlog."""
    enqueue_timeout: Duration = Field(default=timedelta(seconds=60), ge=timedelta(seconds=1))
    """A reference that was not claimed by then is sent again."""
    put_back_delay: Duration = timedelta(seconds=5)
    """References that could not be sent are looked at again within this."""
    reclaim_rate: float = Field(default=500, gt=0)
    """Claims a second, at the most, that one Store Consumer takes from holders that fell silent."""
    depth_horizon: Duration = timedelta(seconds=5)
    """Each queue holds about as much as its hosts claim in this time; the backlog stays in the store."""
    depth_least: int = Field(default=100, ge=1)
    depth_most: int = Field(default=20_000, ge=1)
