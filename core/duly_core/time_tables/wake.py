"""Wakes the Store Consumers when time tables were changed."""

from duly_core.postgres.channels import TIME_TABLE_CHANNEL
from duly_core.postgres.pool import Connection


async def wake(connection: Connection) -> None:
    """Wake the Store Consumers when this transaction commits."""
    await connection.execute("select pg_notify(duly_channel(%s), '')", (TIME_TABLE_CHANNEL,))
