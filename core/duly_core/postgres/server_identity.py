"""Whether the store is still the server it was: its timeline and start, kept in a row that a failover carries along.

After a promotion, a restart or a restore the leases in the store may be older than those that were acknowledged
last; whoever wants to void leases looks here first, on the connection that it will use.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.postgres.pool import Connection, fetch
from duly_core.postgres.statements import load

_SERVER = load("postgres/server.sql")
_LOOK = _SERVER["look_at_server"]

_CHANGED = _SERVER["server_changed"]


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What one look found."""

    at: datetime
    """The store's time."""
    server: str
    """Timeline and start of the server that answered."""
    before: str | None
    """The server that the row named until now."""
    since_change: timedelta | None
    """How long ago the server changed, or its clock stepped; None: never."""
    written: bool
    """Whether this look was the one that wrote the change."""

    @property
    def changed(self) -> bool:
        """Another server than the row named: this look, or another at the same moment, wrote it."""
        return self.server != self.before

    @property
    def was_restarted(self) -> bool:
        """Whether it is the same server with another start: as far as the timelines are known."""
        before, now = _timeline(self.before), _timeline(self.server)
        return self.changed and before == now != ""

    @property
    def failed_over(self) -> bool:
        """Whether another server is the primary now: as far as the timelines are known."""
        before, now = _timeline(self.before), _timeline(self.server)
        return "" not in (before, now) and before != now


def _timeline(server: str | None) -> str:
    """Return the timeline that the name of a server has; empty: a managed Postgres does not tell it."""
    return (server or "").partition("/")[0].replace("-", "")


async def check_server(connection: Connection) -> ServerCheck:
    """See which server this connection leads to, and write it down if it is another than before.

    What the connection is used for afterwards is done by that very server.
    """
    ((at, server, before, since_change, written),) = await fetch(connection, _LOOK, {})
    if before is None:
        written = True
        await note_change(connection)
    return ServerCheck(at, server, before, since_change, written)


async def note_change(connection: Connection) -> None:
    """Write down that leases are not what they seem from now on, for all Store Consumers."""
    await fetch(connection, _CHANGED, {})
