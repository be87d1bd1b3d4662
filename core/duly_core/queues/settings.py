"""Settings of the queues; both sides read the same section."""

from datetime import timedelta
from typing import ClassVar, Literal

from duly_core.settings import Duration, Section


class QueueSettings(Section):
    """`[queue]`: which backend, and how it is reached."""

    SECTION: ClassVar[str] = "queue"

    backend: Literal["store", "sqs"] = "store"
    """store: hosts claim due tasks from the HSC. sqs: references go through a queue for each lambda and priority."""
    endpoint_url: str = ""
    """sqs: empty is AWS itself."""
    region: str = "us-east-1"
    prefix: str = "duly"
    """sqs: queue names start with it: two installations in one account must differ here."""
    visibility: Duration = timedelta(seconds=30)
    """sqs: how long a received message stays hidden: it must outlast buffering and one ClaimTask."""
    retention: Duration = timedelta(hours=4)
    """sqs: how long an unread message is kept; its task is re-sent by the store anyway."""
