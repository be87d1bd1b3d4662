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
    """Connections of one process's pool; the HSC has as many as its own settings say."""
    connect_timeout: Duration = timedelta(seconds=5)
    statement_timeout: Duration = timedelta(seconds=8)
    """No statement runs longer."""
    acquire_timeout: Duration = timedelta(seconds=5)
    """How long a statement may wait for a free connection."""
    unhealthy_after: Duration = Field(default=timedelta(seconds=5), ge=timedelta(seconds=1))
    """Health checks are told NOT_SERVING when Postgres has not answered for so long."""
    pooled: bool = False
    """Postgres is behind a pooler of transactions, as pgbouncer is: nothing is asked of a session."""
    direct_dsn: str = ""
    """With pooled: Postgres itself, past the pooler, for migrations and for hearing at once of what is due."""
    retention: Duration = Field(default=timedelta(days=7), ge=timedelta(minutes=1))
    """Finished tasks are kept for so long, their results and idempotency keys with them; then they are unknown."""
    dead_letter_retention: Duration = Field(default=timedelta(days=30), ge=timedelta(minutes=1))
    """The same for tasks that ended as fatal_failure: they wait for somebody to look."""
    partition_span: Duration = Field(
        default=timedelta(days=1), ge=timedelta(minutes=1), le=timedelta(days=366)
    )
    """Tasks made within such a time are one partition, and are removed together."""


def direct(settings: StoreSettings) -> StoreSettings:
    """The same store past the pooler, if there is one and its address is known."""
    if not (settings.pooled and settings.direct_dsn):
        return settings
    return settings.model_copy(update={"dsn": settings.direct_dsn, "pooled": False})
