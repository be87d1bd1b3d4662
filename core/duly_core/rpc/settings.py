"""Settings of servers and of calls."""

from datetime import timedelta
from typing import ClassVar, Self

from duly_core.settings import Duration, Section


class RpcSettings(Section):
    """`[rpc]`: limits of every Duly server and client."""

    SECTION: ClassVar[str] = "rpc"

    max_message_bytes: int = 8 * 1024 * 1024
    """The largest request or answer; a larger one is refused with RESOURCE_EXHAUSTED."""
    call_timeout: Duration = timedelta(seconds=10)
    """Deadline of a call that names no other."""
    shutdown_grace: Duration = timedelta(seconds=5)
    """How long a stopping server lets running calls finish."""

    def for_local_socket(self) -> Self:
        """Without a limit on messages: on a host's own socket a batch may be as large as its tasks are."""
        return self.model_copy(update={"max_message_bytes": -1})
