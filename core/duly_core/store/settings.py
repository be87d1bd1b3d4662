"""Settings of the store's connections."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from duly_core.settings import Duration, Section


class StoreSettings(Section):
    """`[store]`: where Postgres is and how long it may take."""

    SECTION: ClassVar[str] = "store"

    dsn: str = "postgresql://duly@127.0.0.1:5432/duly"
    """A libpq connection string or URI."""
    connections: int = 8
    """Connections for writes of a Frontend, and of a Store Consumer. The HSC has settings of its own."""
    connect_timeout: Duration = timedelta(seconds=5)
    """How long a new connection to Postgres may take."""
    statement_timeout: Duration = timedelta(seconds=8)
    """The longest time of a statement."""
    acquire_timeout: Duration = timedelta(seconds=5)
    """How long a statement may wait for a free connection."""
    unhealthy_after: Duration = Field(default=timedelta(seconds=5), ge=timedelta(seconds=1))
    """A process reports NOT_SERVING when Postgres has not answered for this long."""
    pooled: bool = False
    """True behind pgbouncer in transaction mode: Duly sets nothing on sessions."""
    direct_dsn: str = ""
    """With `pooled`: the address of Postgres itself, for migrations and notifications."""
    retention: Duration = Field(default=timedelta(days=7), ge=timedelta(minutes=1))
    """How long finished tasks are kept, with results and idempotency keys. Then they are unknown."""
    dead_letter_retention: Duration = Field(default=timedelta(days=30), ge=timedelta(minutes=1))
    """How long dead letters are kept."""
    audit_retention: Duration = Field(default=timedelta(days=365), ge=timedelta(days=1))
    """How long the audit log keeps who changed what."""
    partition_span: Duration = Field(
        default=timedelta(days=1), ge=timedelta(minutes=1), le=timedelta(days=366)
    )
    """Tasks made within one such span are in one partition, and are removed together."""


def direct(settings: StoreSettings) -> StoreSettings:
    """The same store past the pooler, if there is one and its address is known."""
    if not (settings.pooled and settings.direct_dsn):
        return settings
    return settings.model_copy(update={"dsn": settings.direct_dsn, "pooled": False})
