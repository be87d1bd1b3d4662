"""Settings of the HSC."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.addresses import Listen, OptionalListen
from duly_core.live_sections import LiveHscSettings
from duly_core.rpc.field_count import MOST_FIELDS
from duly_core.settings import Duration


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
    low_priority_share: float = Field(default=0.1, ge=0, le=0.5)
    """Without SQS: the share of starts that lower priorities get while higher ones wait."""
    result_concurrency: int = Field(default=2, ge=1)
    """How many statements with results run at a time. The HSC uses this, `claim_concurrency`, and five more connections."""
    retry_share: float = Field(default=0.2, ge=0)
    """Retries allowed for each first attempt of a lambda. Retries above it are delayed, never refused."""
    retry_floor: float = Field(default=10, gt=0)
    """Retries a second that each lambda may have in any case, at each HSC."""
    max_hold_back: Duration = Field(default=timedelta(hours=1), ge=timedelta())
    """The longest delay of a retry above its share."""
