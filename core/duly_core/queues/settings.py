"""Settings of the queues; both sides read the same section."""

from datetime import timedelta
from typing import ClassVar, Literal

from duly_core.config.settings import Duration, Section


class QueueSettings(Section):
    """`[queue]`: which backend, and how it is reached."""

    SECTION: ClassVar[str] = "queue"

    backend: Literal["store", "sqs"] = "store"
    """`store`: workers claim due tasks from the HSC. `sqs`: references go through a queue for each lambda and priority."""
    endpoint_url: str = ""
    """With SQS: its address. Empty: AWS."""
    region: str = "us-east-1"
    """With SQS: the AWS region."""
    prefix: str = "duly"
    """With SQS: queue names begin with it. Two installations in one AWS account need different ones."""
    visibility: Duration = timedelta(seconds=30)
    """With SQS: how long a received message stays hidden. Must outlast buffering and one ClaimTask."""
    retention: Duration = timedelta(hours=4)
    """With SQS: how long an unread message is kept. Its task is not lost; it is sent again."""
