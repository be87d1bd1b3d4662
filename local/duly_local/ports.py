"""TCP ports on the loopback address."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

from duly_core.errors import PortInUseError

LOOPBACK = "127.0.0.1"
_LOOK_AGAIN_AFTER = timedelta(milliseconds=100)


def free_port() -> int:
    """A port that nothing listens on now. Another process may take it first: be ready to ask again."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, all different."""
    with ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((LOOPBACK, 0))
        return [listener.getsockname()[1] for listener in listeners]


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as listener:
        # As servers do, so that connections of an earlier run in TIME_WAIT are no obstacle.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()
        except OSError:
            return False
        return True


def require_free(port: int, owner: str, way_out: str = "choose another") -> None:
    """Refuse to go on when the port is taken.

    Raises:
        PortInUseError: names the port and who wanted it.
    """
    if not is_free(port):
        raise PortInUseError(
            f"port {port}, which {owner} was told to use, is in use: stop what listens there, or {way_out}"
        )


def await_free(
    port: int,
    owner: str,
    within: timedelta,
    tell: Callable[[str], None],
    way_out: str = "choose another",
) -> None:
    """Wait for whoever listens on the port to go: a worker of an earlier run that was killed drains first.

    Raises:
        PortInUseError: it did not go in time; names the port and who wanted it.
    """
    if is_free(port):
        return
    tell(
        f"port {port}, for {owner}, is in use: waiting up to {within.total_seconds():g} s, "
        "for an earlier run may be draining"
    )
    deadline = time.monotonic() + within.total_seconds()
    while time.monotonic() < deadline:
        if is_free(port):
            return
        time.sleep(_LOOK_AGAIN_AFTER.total_seconds())
    require_free(port, owner, way_out)
