"""Settings of the HSC."""

from typing import ClassVar

from pydantic import Field

from duly_core.config.addresses import Listen, OptionalListen
from duly_core.config.live_sections import LiveHscSettings
from duly_core.rpc.requests.field_count import MOST_FIELDS


class HscSettings(LiveHscSettings):
    """`[hsc]`: Its timeouts are those of `[timing]`."""

    SECTION: ClassVar[str] = "hsc"

    listen: Listen = "127.0.0.1:7402"
    """HOST:PORT for workers."""
    health_listen: OptionalListen = ""
    """HOST:PORT of a second server that answers health checks only; empty: none."""
    max_items_per_call: int = Field(default=5_000, ge=1, le=MOST_FIELDS)
    """The most claims, heartbeats or results in one call."""
    max_group: int = 1_000
    """The most items that one statement takes. A larger single call is not split."""
    claim_concurrency: int = Field(default=2, ge=1)
    """How many claim statements run at a time, each on a connection."""
    result_concurrency: int = Field(default=2, ge=1)
    """How many statements with results run at a time. The HSC uses this, `claim_concurrency`, and six more connections."""
